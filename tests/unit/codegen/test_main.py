"""The command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kernels import COPY, templates
from webnn_vk.codegen import __main__ as command_line
from webnn_vk.codegen import render, spirv
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.spec import Buffer, KernelSpec, Param

ARGUMENTS = ["copy", "--buffer", "a:float16", "--buffer", "out:float16:w", "--param", "n",
             "--option", "vectors=False"]
SPEC = KernelSpec(
    "copy.comp.j2", (Buffer("a", "float16"), Buffer("out", "float16", "w")), (Param("n"),),
    options=(("vectors", False),),
)


@pytest.fixture(autouse=True)
def _templates() -> Iterator[None]:
    with templates(copy=COPY):
        yield


def test_help_and_unknown_commands() -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "webnn_vk.codegen", *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    done = run("--help")
    assert done.returncode == 0 and "NAME:TYPE[:ACCESS[:WIDTH[:PORTIONS[:LOAD]]]]" in done.stdout
    assert run("nosuch").returncode == 2
    assert run("list").returncode == 0


def test_render_prints_what_the_module_renders(capsys: pytest.CaptureFixture) -> None:
    assert command_line.main(["render", *ARGUMENTS]) == 0
    assert capsys.readouterr().out == render.render(SPEC)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["render", "nosuch"], "no template 'nosuch.comp.j2'"),
        (["render", "copy", "--buffer", "a"], "NAME:TYPE is needed"),
        (["render", "copy", "--buffer", "a:float32:r:four"], "'four' is no whole number"),
        (["render", "copy", "--buffer", "a:float33"], "accepted: float32"),
        (["render", "copy", "--buffer", "a:float32:r:1:1:storage:1"], "at most 6 parts"),
        (["render", "copy", "--buffer", "a:float16:r:4:1:texel"], "texels are float32"),
        (["render", "copy", "--option", "vectors"], "NAME=VALUE is accepted"),
        (["render", *ARGUMENTS[:-2]], "'vectors' is undefined"),
        (["render", *ARGUMENTS, "--feature", "warp"], "features warp; known"),
        (["disassemble", "nosuch.spv"], "nosuch.spv: there is no such file"),
        (["inspect", "nosuch.comp"], "nosuch.comp: there is no such file"),
        (["describe", "./nosuch.comp.j2"], "nosuch.comp.j2: there is no such file"),
        (["compile", "own.comp"], "own.comp: a template's name, or a path to NAME.comp.j2, is"),
        (["inspect", "own.txt"], "is expected, or .spv, or .comp, or .glsl"),
        (["render", "copy"], "`describe copy` shows which --buffer, --param and --option it takes"),
        (["pack", "nosuch.pack"], "nosuch.pack"),
        (["pack", "x.pack", "--specs", "nosuch"], "MODULE:FUNCTION is needed"),
        (["pack", "x.pack", "--specs", "nosuch_module:f"], "No module named 'nosuch_module'"),
    ],
)
def test_errors_are_one_message_and_status_2(
    capsys: pytest.CaptureFixture, arguments: list[str], message: str
) -> None:
    assert command_line.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("error: ") and message in printed.err


def test_compile_and_disassemble(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    if find_compiler() is None:
        pytest.skip("no GLSL compiler on this machine")
    path = tmp_path / "copy.spv"
    extra = ["--feature", "float16", "--feature", "nan_preserve_f32", "-o", str(path)]
    assert command_line.main(["compile", *ARGUMENTS, *extra]) == 0
    assert "StorageBuffer16BitAccess" in capsys.readouterr().out
    assert spirv.info(path.read_bytes()).capabilities == {
        "Shader", "StorageBuffer16BitAccess", "SignedZeroInfNanPreserve",
    }
    assert command_line.main(["disassemble", str(path)]) == 0
    text = capsys.readouterr().out
    assert "Capability Shader" in text and "SignedZeroInfNanPreserve" in text
    assert command_line.main(["disassemble", *ARGUMENTS]) == 0
    assert "StorageBuffer16BitAccess" not in capsys.readouterr().out


def test_disassemble_without_spirv_dis(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBNN_VK_GLSLANG", "auto")
    monkeypatch.setattr("shutil.which", lambda name: None)
    if find_compiler() is None:
        pytest.skip("no glslang library on this machine")
    assert command_line.main(["disassemble", *ARGUMENTS]) == 0
    assert capsys.readouterr().out.startswith("; no spirv-dis found")


def test_no_compiler(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBNN_VK_GLSLANG", "none")
    assert command_line.main(["compile", *ARGUMENTS]) == 2
    assert "glslang-tools" in capsys.readouterr().err


def specs() -> list[KernelSpec]:
    return [SPEC]


def test_pack(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    if find_compiler() is None:
        pytest.skip("no GLSL compiler on this machine")
    path = str(tmp_path / "x.pack")
    source = ["--specs", "tests.unit.codegen.test_main:specs"]
    assert command_line.main(["pack", path, *source, "--entries"]) == 0
    printed = capsys.readouterr().out
    assert f"{path}: 1 modules" in printed and "templates: copy.comp.j2" in printed
    assert len(printed.splitlines()) == 4


def test_a_template_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "of_mine.comp.j2").write_text("// here\n")
    monkeypatch.chdir(tmp_path)
    assert command_line.main(["render", "of_mine.comp.j2"]) == 0
    assert capsys.readouterr().out.endswith("// here\n")
