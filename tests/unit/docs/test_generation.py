"""docs/generation.md: its programs and its commands run, on small models with random weights."""

import json
import re
import shlex

import pytest

from tests.support.gguf_files import text_gguf
from tests.support.paths import ROOT
from tests.support.text_models import text_folder
from webnn_vk.generate.gguf.file import TENSOR_TYPES
from webnn_vk.generate.gguf.tokenizer import PRE_TOKENIZERS
from webnn_vk.tools import cli

PAGE = (ROOT / "docs" / "generation.md").read_text(encoding="utf-8")
NAME = "SmolLM2-135M-Instruct"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu")
    text_folder(tmp_path / NAME)
    text_gguf(tmp_path / f"{NAME}-Q8_0.gguf")


def test_the_programs_of_the_page(folder, capsys):
    names = {}
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(programs) == 4
    for program in programs:
        exec(compile(program, "generation.md", "exec"), names)
        assert capsys.readouterr().out.strip()
    assert [m["role"] for m in names["messages"]] == ["user", "assistant", "user"]


COMMANDS = re.findall(r"^webnn-vk (.*)$", PAGE, re.MULTILINE)


def test_the_page_has_commands():
    assert len(COMMANDS) == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page(folder, capsys, command):
    arguments = [*shlex.split(command), "--device", "cpu"]
    assert cli.main(arguments) == 0
    written = capsys.readouterr()
    assert re.search(r"loaded in .*, first text after .*, 100 tokens in ", written.err)
    assert cli.main([*arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["tokens"] == 100 and result["text"] + "\n" == written.out
    assert set(result["seconds"]) == {"load", "first", "all"}


def test_what_is_read_of_gguf_files():
    assert f"| tensors | {', '.join(TENSOR_TYPES)} |" in PAGE
    assert ", ".join(f"`{name}`" for name in PRE_TOKENIZERS) in PAGE


@pytest.mark.parametrize(("arguments", "message"), [
    (["nothing", "x"], "nothing is neither a folder nor a GGUF file"),
    ([NAME, "x", "--context-length", "9999"], "context_length is 9999"),
    ([NAME, "y" * 400], "tokens exceed the context of 200"),
])
def test_errors_are_one_line(folder, capsys, arguments, message):
    assert cli.main(["generate", *arguments, "--device", "cpu"]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
