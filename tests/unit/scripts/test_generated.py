"""The committed generated files equal the output of `python -m scripts.generate`."""

import pytest

from scripts.generate import __main__ as generate


@pytest.mark.parametrize("name", generate.GENERATORS)
def test_nothing_is_stale(name, capsys):
    assert generate.main(["--check", name]) == 0, capsys.readouterr().out


def test_a_stale_file_is_seen_and_written(monkeypatch, tmp_path, capsys):
    file = tmp_path / "made.txt"
    monkeypatch.setattr(generate, "GENERATORS", {"made": lambda: {file: "new\n"}})
    assert generate.main(["--check"]) == 1
    assert f"{file} is stale" in capsys.readouterr().out and not file.exists()
    assert generate.main([]) == 0
    assert file.read_text() == "new\n"
    assert generate.main(["--check"]) == 0
    assert capsys.readouterr().out == f"{file} written\n"
