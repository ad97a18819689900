"""`python -m bench`: impossible or ignored options are refused before anything is measured."""

import sys

import pytest

from bench import __main__ as command_line


@pytest.mark.parametrize(("words", "message"), [
    ("nothing", "invalid choice: 'nothing'"),
    ("models --json a.json", "is for chips, cold, drivers, estimates, isa, peers, scaling, "
     "not for models"),
    ("cold --sweep tokens", "--sweep is for scaling, not for cold"),
    ("serving --llama x", "--llama is for generation, peers, not for serving"),
    ("peers --workload generation", "the workload generation needs --llama"),
    ("peers --workload x", "no workload is called x; there are matmul_512"),
    ("scaling --json nowhere/a.json", "there is no folder nowhere"),
    ("scaling --size 0", "'0' is no whole number from 1 on"),
    ("memory --megabytes -1", "'-1' is no whole number from 1 on"),
    ("cold --model VGG", "no model is called VGG; there are MobileNetV2; ResNet-50"),
])
def test_what_is_refused(words, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench", *words.split()])
    monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu")  # no driver is used
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_help_has_a_line_for_each(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench", "--help"])
    with pytest.raises(SystemExit):
        command_line.main()
    said = capsys.readouterr().out.splitlines()
    assert all(f"    {name:<9}  {text}" in said for name, text in command_line.WHAT.items())
    assert command_line.READ_BY.keys() <= vars(command_line._parser().parse_args([])).keys()


@pytest.mark.parametrize("what", ["generation", "peers"])
def test_llama_cpp_must_be_there(what, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["bench", what, "--llama", str(tmp_path)])
    monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu")
    assert command_line.main() == 1
    assert "llama.cpp: " in capsys.readouterr().err

