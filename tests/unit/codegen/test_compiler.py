"""Compilers: in process and as processes, errors, choice."""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support import selection
from webnn_vk.codegen import compiler as compilers
from webnn_vk.codegen import spirv
from webnn_vk.codegen.compiler import (
    FallbackCompiler,
    LibraryCompiler,
    find_compiler,
)
from webnn_vk.codegen.glsl import CompilerUnavailable, GlslError, Source
from webnn_vk.codegen.glslang import SlangLibrary, binding_of
from webnn_vk.codegen.process import ProcessCompiler
from webnn_vk.support import background

GOOD = """#version 450
layout(local_size_x = 64) in;
layout(std430, set = 0, binding = 0) buffer A { float v[]; } a;
void main() {
  a.v[gl_GlobalInvocationID.x] *= %s;
}
"""

BROKEN = {
    "unknown name": GOOD % "nosuch",
    "syntax": GOOD % ";; ) {",
    "type": GOOD % "uvec2(1)",
    "no main": "#version 450\nvoid other() {}\n",
    "empty": "",
    "binary": "\x01\x02\xff\u20ac" * 50,
    "unclosed comment": "#version 450\n/* void main() {}",
    "unknown extension": "#version 450\n#extension GL_NO_such : require\nvoid main() {}\n",
    "recursion": "#version 450\nint f(int i) { return f(i); }\nvoid main() { f(1); }\n",
    "macro": "#version 450\n#define A(x) x\nvoid main() { A( }\n",
}


def _slang() -> LibraryCompiler | None:
    """The glslang of slangpy, if it is installed."""
    paths = [path for path in compilers._libraries() if binding_of(path) is SlangLibrary]
    return LibraryCompiler(paths[0]) if paths else None


@pytest.fixture(params=["auto", "process", "slang"])
def compiler(request: pytest.FixtureRequest):
    found = _slang() if request.param == "slang" else find_compiler(request.param)
    if found is None:
        pytest.skip(f"no GLSL compiler of this kind on this machine: {request.param}")
    return found


def test_batch_keeps_order_and_reports_each(compiler) -> None:
    sources = [Source(GOOD % f"{i}.0", f"s{i}") for i in range(5)]
    sources.insert(2, Source(BROKEN["unknown name"], "bad"))
    results = compiler.compile(sources)
    assert [isinstance(r, GlslError) for r in results] == [i == 2 for i in range(6)]
    assert results[2].name == "bad"
    assert len({r for r in results if isinstance(r, bytes)}) == 5
    assert results[0] == compiler.compile(sources[:1])[0]
    assert spirv.info(results[0]).version == (1, 5)
    assert compiler.compile([]) == []


def test_another_library_by_slangs_name_is_no_compiler(tmp_path: Path) -> None:
    """A library without glslang's function, and a file that is not a library."""
    name = ctypes.util.find_library("m")
    if name is None:
        pytest.skip("no library of another kind on this machine")
    with pytest.raises(AttributeError, match="glslang_compile_1_2"):
        SlangLibrary(name)
    path = tmp_path / "libslang-glslang-2026.1.so"
    path.write_bytes(b"no library")
    with pytest.raises(CompilerUnavailable, match="libslang-glslang-2026.1.so"):
        _ = LibraryCompiler(str(path)).version


def test_version_and_identity(compiler) -> None:
    assert re.search(r"\d+\.\d+", compiler.version)
    assert compiler.identity


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_glsl_is_an_error_not_a_crash(compiler, fault: str) -> None:
    (result,) = compiler.compile([Source(BROKEN[fault], "broken.comp.j2")])
    assert isinstance(result, GlslError), fault
    assert str(result).startswith("broken.comp.j2: the GLSL does not compile\n")
    assert result.text == BROKEN[fault] and result.log
    (again,) = compiler.compile([Source(GOOD % "1.0")])
    assert isinstance(again, bytes)


def test_errors_show_the_lines_around(compiler) -> None:
    (error,) = compiler.compile([Source(BROKEN["unknown name"])])
    assert "nosuch" in error.log
    lines = str(error).splitlines()
    assert ">    5   a.v[gl_GlobalInvocationID.x] *= nosuch;" in lines
    assert "     2 layout(local_size_x = 64) in;" in lines


def test_random_damage_does_not_crash() -> None:
    """In a new process, so that a crash can be observed."""
    damage = selection.chance("damaged GLSL")
    texts = []
    for _ in range(200):
        text = list(GOOD % "2.0")
        for _ in range(damage.randrange(1, 8)):
            at = damage.randrange(len(text))
            piece = damage.choice(["{", "}", "(", "#", "\n", "0x", ""])
            text[at : at + damage.randrange(3)] = piece
        texts.append("".join(text))
    code = (
        "import sys; from webnn_vk.codegen.compiler import find_compiler, Source\n"
        f"results = find_compiler('auto').compile([Source(t) for t in {texts!r}])\n"
        "print(len(results))\n"
    )
    if not isinstance(getattr(find_compiler("auto"), "_current", None), LibraryCompiler):
        pytest.skip("no glslang library on this machine")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "200"), done.stderr


def test_a_zero_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="x: the GLSL contains a zero byte"):
        Source("#version 450\nvoid main() {}\0", "x")


def test_the_longest_statement_is_far_from_a_crash(compiler) -> None:
    terms = "+i" * 9_800
    text = (GOOD % "2.0").replace("a.v", f"uint i = gl_GlobalInvocationID.y; i = i{terms}; a.v")
    (result,) = compiler.compile([Source(text)])
    assert isinstance(result, bytes)
    with pytest.raises(ValueError, match="x: a GLSL statement of 39\\d+ characters; at most 20000"):
        Source(text.replace("+i", "+i+i"), "x")


def test_a_library_is_warmed_up_once_and_on_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = find_compiler()
    if compiler is None or isinstance(compiler._current, ProcessCompiler):
        pytest.skip("no GLSL compiler in a library")
    library = LibraryCompiler(compiler._current.path)
    compiled: list[tuple[str, bool]] = []
    compile_ = LibraryCompiler.compile

    def noted(self: LibraryCompiler, sources):
        on_main = threading.current_thread() is threading.main_thread()
        compiled.append((sources[0].name, on_main))
        return compile_(self, sources)

    monkeypatch.setattr(LibraryCompiler, "compile", noted)
    for _ in range(3):
        FallbackCompiler([library]).prepare()
    end = time.monotonic() + 60
    while not library._library and time.monotonic() < end:
        time.sleep(0.001)
    assert compiled == [("empty", False)]
    (module,) = library.compile([Source(GOOD % "2.0", "good")])
    assert spirv.info(module).version == (1, 5)


def test_a_library_that_is_missing_is_reported_by_the_compilation_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    library = LibraryCompiler(str(tmp_path / "none.so"))
    library.prepare()
    with pytest.raises(CompilerUnavailable, match="none.so"):
        library.compile([Source(GOOD % "2.0", "good")])
    end = time.monotonic() + 60
    while background._running and time.monotonic() < end:
        time.sleep(0.001)
    assert capfd.readouterr().err == ""


def test_many_threads() -> None:
    compiler = find_compiler("auto")
    if compiler is None:
        pytest.skip("no GLSL compiler on this machine")
    expected = [compiler.compile([Source(GOOD % f"{i}.0")])[0] for i in range(8)]
    found: dict[int, bytes] = {}

    def work(i: int) -> None:
        (found[i],) = compiler.compile([Source(GOOD % f"{i}.0")])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(8)] == expected


def test_mode_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_compiler("none") is None
    monkeypatch.setenv("WEBNN_VK_GLSLANG", "none")
    assert find_compiler() is None
    monkeypatch.setenv("WEBNN_VK_GLSLANG", "yes")
    with pytest.raises(ValueError, match="WEBNN_VK_GLSLANG: 'yes'; accepted: auto, process, none"):
        find_compiler()
    monkeypatch.setenv("WEBNN_VK_GLSLANG", "process")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert find_compiler() is None


def test_a_library_that_is_no_glslang_falls_back(tmp_path: Path) -> None:
    other = tmp_path / "libglslang.so"
    other.write_bytes(b"\x7fELF no library")
    program = tmp_path / "glslangValidator"
    program.write_text("#!/bin/sh\necho Fake 1.0\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(CompilerUnavailable, match="libglslang.so"):
        LibraryCompiler(str(other)).compile([Source(GOOD % "1.0")])
    both = FallbackCompiler([LibraryCompiler(str(other)), ProcessCompiler(str(program))])
    assert both.version == "glslangValidator: Fake 1.0"
    # It is tried next, and is not a compiler either: it prints this and writes nothing.
    with pytest.raises(CompilerUnavailable, match="wrote no SPIR-V.*Fake 1.0"):
        both.compile([Source(GOOD % "1.0", "x")])
    alone = FallbackCompiler([LibraryCompiler(str(other))])
    with pytest.raises(CompilerUnavailable):
        alone.compile([Source(GOOD % "1.0")])
    gone = ProcessCompiler(str(tmp_path / "gone"))
    with pytest.raises(CompilerUnavailable, match="gone"):
        gone.compile([Source(GOOD % "1.0")])


def test_library_of_libc_is_refused() -> None:
    """A library without glslang's names, or of an unknown version, is not called."""
    import ctypes.util

    libc = ctypes.util.find_library("c")
    if libc is None:
        pytest.skip("no C library found by name")
    with pytest.raises(CompilerUnavailable):
        LibraryCompiler(libc).compile([Source(GOOD % "1.0")])


# -- files
#: Ways to request a file; NAME stands for its name.
INCLUDES = {
    "quotes": '#include "NAME"',
    "angles": "#include <NAME>",
    "up": '#include "../../../../../../NAME"',
    "blanks": '  #  include   "NAME"',
    "tab": '#\tinclude\t"NAME"',
    "no blank": '#include"NAME"',
    "comments": '/* a */ # /* b\n*/ include "NAME"',
    "line joined": '#\\\ninclude "NAME"',
    "word joined": '#inc\\\nlude "NAME"',
    "word joined, CRLF": '#inc\\\r\nlude "NAME"',
    "carriage return": '\r#include "NAME"',
    "macro": '#define FILE "NAME"\n#include FILE',
    "condition": '#if 1\n#include "NAME"\n#endif',
    "behind a comment that may go on": '// x \\\n#include "NAME"',
    "in a comment": '// #include "NAME"',
}


@pytest.mark.parametrize("form", INCLUDES)
@pytest.mark.parametrize("name", ["/etc/passwd", "secret.glsl"])
def test_no_compiler_gets_an_include(form: str, name: str) -> None:
    """Checked before a compiler sees it: in process, glslc and glslangValidator get only a Source.
    """
    text = f"#version 450\n{INCLUDES[form].replace('NAME', name)}\nvoid main() {{}}\n"
    with pytest.raises(ValueError, match="^mine: the GLSL has an #include; no file is read"):
        Source(text, "mine")


COMPILERS = ["in process", "glslc", "glslangValidator"]


@pytest.mark.parametrize("which", COMPILERS)
def test_no_file_is_opened_for_the_text(which: str, tmp_path: Path, monkeypatch) -> None:
    """A named pipe is at the path in the text: a compiler that opened it for reading would wait for
    ever, and our writer would notice the reader."""
    if which == "in process":
        found = [c for c in compilers._found("auto") if isinstance(c, LibraryCompiler)]
    else:
        path = shutil.which(which)
        found = [ProcessCompiler(path)] if path else []
    if not found:
        pytest.skip(f"no {which} on this machine")
    pipe, link = tmp_path / "pipe.glsl", tmp_path / "link.glsl"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    extension = "#extension GL_GOOGLE_include_directive : enable\n"
    for name in (pipe, link, os.path.relpath(pipe, tmp_path.parent)):
        for form in INCLUDES.values():
            text = GOOD % "1.0"
            text = text.replace("\n", f"\n{extension}{form.replace('NAME', str(name))}\n", 1)
            with pytest.raises(ValueError, match="#include"):
                found[0].compile([Source(text)])
    # A #line directive doesn't name a file to open.
    line = GOOD % "1.0"
    line = line.replace("\n", f'\n#extension GL_GOOGLE_cpp_style_line_directive : enable\n'
                        f'#line 1 "{pipe}"\n', 1)
    (result,) = found[0].compile([Source(line)])
    assert isinstance(result, bytes), result
    with pytest.raises(OSError):  # nobody reads
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)


def test_the_compiler_would_have_read_it(tmp_path: Path) -> None:
    """glslangValidator does follow an include: the check prevents something real."""
    program = shutil.which("glslangValidator")
    if program is None:
        pytest.skip("no glslangValidator on this machine")
    (tmp_path / "secret.glsl").write_text("const float SECRET = 2.0;\n")
    text = (GOOD % "SECRET").replace("\n", '\n#extension GL_GOOGLE_include_directive : enable\n'
                                     '#include "secret.glsl"\n', 1)
    (tmp_path / "a.comp").write_text(text)
    done = subprocess.run([program, "--target-env", "vulkan1.2", "-S", "comp", "-o", "a.spv",
                           "a.comp"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    with pytest.raises(ValueError, match="#include"):
        Source(text)
