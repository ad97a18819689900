"""docs/generation.md: its programs and its command run, on a small model with random weights."""

import json
import re
import shlex

import pytest

from tests.support.paths import ROOT
from tests.support.text_models import text_folder
from webnn_vk.tools import cli

PAGE = (ROOT / "docs" / "generation.md").read_text(encoding="utf-8")
NAME = "SmolLM2-135M-Instruct"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu")
    text_folder(tmp_path / NAME)


def test_the_programs_of_the_page(folder, capsys):
    names = {}
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(programs) == 3
    for program in programs:
        exec(compile(program, "generation.md", "exec"), names)
        assert capsys.readouterr().out.strip()
    assert [m["role"] for m in names["messages"]] == ["user", "assistant", "user"]


def test_the_command_of_the_page(folder, capsys):
    (command,) = re.findall(r"```sh\nwebnn-vk (.*?)\n```", PAGE)
    arguments = [*shlex.split(command), "--device", "cpu"]
    assert cli.main(arguments) == 0
    written = capsys.readouterr()
    assert re.search(r"loaded in .*, first text after .*, 100 tokens in ", written.err)
    assert cli.main([*arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["tokens"] == 100 and result["text"] + "\n" == written.out
    assert set(result["seconds"]) == {"load", "first", "all"}


@pytest.mark.parametrize(("arguments", "message"), [
    (["nothing", "x"], "nothing is neither a folder nor a GGUF file"),
    ([NAME, "x", "--context-length", "9999"], "context_length is 9999"),
    ([NAME, "y" * 400], "tokens exceed the context of 200"),
])
def test_errors_are_one_line(folder, capsys, arguments, message):
    assert cli.main(["generate", *arguments, "--device", "cpu"]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
