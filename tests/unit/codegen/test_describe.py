"""`describe`, users' templates, and the command lines in the code generator's texts."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import webnn_vk.codegen
from tests.support.paths import ROOT
from webnn_vk.codegen import __main__ as command_line
from webnn_vk.codegen import arguments, render, spirv
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.describe import describe, table
from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param

OWN = """{# Doubles. #}
{% include "lib/prelude.glsl.j2" %}
void main() {
  uint i = invocation_index();
  if (i < P.n) store_out(i, load_x(i) * {{ factor }});
}
"""
OWN_ARGUMENTS = ["--buffer", "x:float32", "--buffer", "out:float32:w", "--param", "n",
                 "--option", "factor=2.0"]


@pytest.fixture
def needs_compiler() -> None:
    if find_compiler() is None:
        pytest.skip("no GLSL compiler on this machine")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """A folder with a template; forgotten at the end."""
    path = tmp_path / "templates" / "double.comp.j2"
    path.parent.mkdir()
    path.write_text(OWN)
    with render.own_templates():
        yield path


def test_every_template_is_in_the_table() -> None:
    assert sorted(table()) == render.templates()


@pytest.mark.parametrize("name", render.templates())
def test_the_described_command_works(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture, needs_compiler: None
) -> None:
    text = describe(name)
    python, dash, module, *words = shlex.split(text.splitlines()[-1])
    assert [python, dash, module] == ["python", "-m", "webnn_vk.codegen"]
    file = tmp_path / "x.spv"
    assert command_line.main([*words, "-o", str(file)]) == 0, capsys.readouterr().err
    assert spirv.info(file.read_bytes()).bindings
    for kind in ("buffers", "params", "constants", "options"):
        for what in table()[name][kind]:
            assert re.search(rf"^    {what}  ", text, re.MULTILINE), what


@pytest.mark.parametrize("name", render.templates())
def test_options_are_those_that_the_library_gives(name: str) -> None:
    """Everything that the text uses is described: nothing is missing from the table."""
    assert set(render.template_info(name).options) <= set(table()[name]["options"])


def test_the_help_s_examples_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture,
    needs_compiler: None,
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^    (\S.*)$", command_line.__doc__, re.MULTILINE)
    # Those for an archive and for a chip need files that don't exist here.
    examples = [shlex.split(line) for line in lines if not line.startswith(("pack ", "inspect "))]
    assert [words[0] for words in examples] == [
        "list", "describe", "render", "compile", "disassemble"
    ]
    for words in examples:
        assert command_line.main(words) == 0, capsys.readouterr().err


def test_the_package_s_example_works(needs_compiler: None) -> None:
    code = re.findall(r"^    (\S.*)$", webnn_vk.codegen.__doc__, re.MULTILINE)
    names: dict = {}
    exec("\n".join(code), names)
    assert spirv.info(names["spirv"]).bindings


def test_describe_says_the_legal_values() -> None:
    text = describe("copy")
    assert "    mode  'constant' | 'edge' | 'reflection' | 'strided' | 'triangular'\n" in text
    assert "    diagonal     int  (not always)\n" in text
    assert "    src  uint16:r:1 | uint32:r:1" in text


def test_a_spec_is_written_as_it_is_read() -> None:
    spec = KernelSpec(
        "copy.comp.j2",
        (Buffer("a", "float16"), Buffer("b", "int32", "rw"), Buffer("c", "uint8", "w", 4, 3)),
        (Param("n"), Param("f", "float"), Param("s", "int", 4)),
        (Constant("A"), Constant("B", "float", 0.5), Constant("C", "uint", 7)),
        {"mode": "edge", "text": "None", "none": None, "pairs": (("x", True), ("y z", 1.5))},
        frozenset({"int64", "float16"}),
    )
    template, *words = arguments.write_spec(spec)
    kinds = {"buffer": [], "param": [], "constant": [], "option": [], "feature": []}
    for flag, word in zip(words[::2], words[1::2], strict=True):
        kinds[flag.removeprefix("--")].append(word)
    assert kinds["buffer"] == ["a:float16", "b:int32:rw", "c:uint8:w:4:3"]
    read = arguments.read_spec(template, **{f"{kind}s": given for kind, given in kinds.items()})
    assert read == spec


def test_options_may_be_a_mapping() -> None:
    pairs = KernelSpec("copy.comp.j2", (), options=(("mode", "edge"), ("rank", 2)))
    mapping = KernelSpec("copy.comp.j2", (), options={"mode": "edge", "rank": 2})
    assert mapping == pairs and mapping.options == pairs.options and hash(mapping) == hash(pairs)


def test_an_own_template_by_path(
    own: Path, capsys: pytest.CaptureFixture, needs_compiler: None
) -> None:
    file = own.with_suffix(".spv")
    assert command_line.main(["compile", str(own), *OWN_ARGUMENTS, "-o", str(file)]) == 0
    assert len(spirv.info(file.read_bytes()).bindings) == 2
    assert command_line.main(["describe", str(own)]) == 0
    text = capsys.readouterr().out
    assert "double.comp.j2: Doubles." in text
    assert "--buffer x:TYPE:r\n" in text and "--buffer out:TYPE:w\n" in text
    assert "--param n\n" in text and "--option factor=VALUE" in text
    # A program that calls the command line, such as the tests', only has its own templates.
    assert "double.comp.j2" not in render.templates()


def test_own_templates_by_folder(own: Path, capsys: pytest.CaptureFixture) -> None:
    folder = ["--template-dir", str(own.parent)]
    assert command_line.main(["list", *folder]) == 0
    assert "double.comp.j2\n    Doubles.\n    options: factor\n" in capsys.readouterr().out
    assert command_line.main(["render", "double", *folder, *OWN_ARGUMENTS]) == 0
    assert "load_x(i) * 2.0" in capsys.readouterr().out
    own.write_text(OWN.replace("*", "+"))
    assert command_line.main(["render", "double", *folder, *OWN_ARGUMENTS]) == 0
    assert "load_x(i) + 2.0" in capsys.readouterr().out


def test_what_is_no_own_template(own: Path, capsys: pytest.CaptureFixture) -> None:
    def refused(*words: str) -> str:
        assert command_line.main([*words]) == 2
        return capsys.readouterr().err

    assert "did you mean softmax.comp.j2?" in refused("describe", "sofmax")
    assert "there is no such file" in refused("describe", str(own.with_name("no.comp.j2")))
    assert "a template is called NAME.comp.j2" in refused("describe", str(own.with_name("x.j2")))
    assert "there is no such folder" in refused("list", "--template-dir", str(own / "nowhere"))
    own.with_name("copy.comp.j2").write_text(OWN)
    said = refused("list", "--template-dir", str(own.parent))
    assert "copy.comp.j2 has the name of a template of the library, which is another" in said
    assert "copy.comp.j2" in refused("render", str(own), *OWN_ARGUMENTS)
    own.with_name("concat.comp.j2").write_text(OWN)  # no name of the library's
    own.with_name("softmax.comp.j2").write_text(OWN)
    assert "copy.comp.j2 (and 1 more) has the name" in refused("list", "--template-dir",
                                                               str(own.parent))


def test_the_library_s_templates_in_a_clone_s_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """As where a wheel is installed and a template of the clone is named."""
    shutil.copytree(ROOT / "shaders", tmp_path / "shaders")
    command = ["describe", str(tmp_path / "shaders" / "softmax.comp.j2")]
    assert command_line.main(command) == 0
    assert "softmax.comp.j2: Softmax along one dimension." in capsys.readouterr().out
