"""Mutants are drawn by their seed, of every kind, and change one place of code that decides."""

import ast

import pytest

from tests.mutants import drawing
from tests.support.paths import ROOT


@pytest.mark.full
def test_a_seed_draws_the_same():
    drawn = drawing.draw(1, 14)
    assert drawn == drawing.draw(1, 14) != drawing.draw(2, 14)
    assert {mutant.kind for mutant in drawn} == {*drawing.KINDS}
    assert len(set(drawn)) == 14


def test_one_place_is_changed(tmp_path):
    for mutant in drawing.draw(3, 21):
        source = (ROOT / mutant.file).read_text(encoding="utf-8")
        copy = tmp_path / mutant.file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(source, encoding="utf-8")
        mutant.apply(tmp_path)
        found, end = copy.read_text(encoding="utf-8"), mutant.offset + len(mutant.text)
        assert found == source[: mutant.offset] + mutant.by + source[end:] != source
        assert source[mutant.offset : end] == mutant.text
        if mutant.file.endswith(".py"):
            ast.parse(found)
        copy.write_text("another commit's", encoding="utf-8")
        with pytest.raises(AssertionError, match="of another commit"):
            mutant.apply(tmp_path)


@pytest.mark.parametrize(("name", "text", "expected"), [
    ("a.py", "def f(x: int) -> int:\n    'a + b'\n    return x + 1  # - 2\n", {"+", "1"}),
    ("a.py", "import a.min\nraise ValueError(f'{a - 1}')\nassert a < b\n", set()),
    ("a.py", "y = stride\nf(stride=x)\nz = a[stride]\n", {"stride"}),
    ("a.py", "if a:\n    f(Barrier())\n", {"    f(Barrier())\n"}),
    ("a.comp.j2", "#define A 1\n// a + b\n{# 3 #}float x = 'a' % y;\nbarrier();\n",
     {"float", "%", "barrier();\n"}),
])
def test_places(name, text, expected, tmp_path, monkeypatch):
    """Comments, texts, annotations and errors stay as they are."""
    monkeypatch.setattr(drawing, "ROOT", tmp_path)
    (tmp_path / name).write_text(text)
    found = list(drawing.mutants(tmp_path / name))
    assert {mutant.text for mutant in found} == expected
    assert "//" not in {mutant.by for mutant in found if name.endswith("j2")}


def test_speed_and_words_have_no_mutants():
    names = {path.relative_to(ROOT).as_posix() for path in drawing.files()}
    assert "shaders/matmul.comp.j2" in names and "webnn_vk/runtime/executable.py" in names
    assert not {name for name in names if "cost" in name or "heuristic" in name}
