"""Compilers that crash, hang, flood, write garbage or refuse everything, as processes."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from webnn_vk.codegen import process, spirv
from webnn_vk.codegen.compiler import FallbackCompiler, find_compiler
from webnn_vk.codegen.glsl import CompilerUnavailable, GlslError, Source
from webnn_vk.codegen.process import ProcessCompiler

GOOD = Source("#version 450\nlayout(local_size_x = 64) in;\nvoid main() {}\n", "good")
BAD = Source("#version 450\nvoid main() { nosuch(); }\n", "bad")

#: Fake compilers as shell scripts, and the messages about them.
BROKEN = {
    "exits 1": ("echo 'error: licence expired'; exit 1", "refuses every shader: .*licence expired"),
    "exits 1 without a word": ("exit 1", "refuses every shader: without a message"),
    "crashes": ("kill -SEGV $$", "ended by signal 11"),
    "aborts after writing": (": > 0.comp.spv; kill -ABRT $$", "ended by signal 6"),
    "writes garbage": ("printf 'no module' > 0.comp.spv", "does not write SPIR-V: 9 bytes"),
    "writes a header alone": (
        r"printf '\003\002\043\007\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' > 0.comp.spv",
        "does not write SPIR-V: the module has no entry point",
    ),
    "writes nothing": ("echo fine", "wrote no SPIR-V and says nothing is wrong: fine"),
    "makes a FIFO": ("mkfifo 0.comp.spv", "not a plain file"),
    "makes a folder": ("mkdir 0.comp.spv", "not a plain file"),
    "links to a device": ("ln -s /dev/zero 0.comp.spv", "not a plain file"),
    "hangs": ("sleep 600", "did not end within"),
    "hangs in a child": ("sleep 600 & wait", "did not end within"),
    "floods its output": ("exec cat /dev/zero", "writes more than"),
    "floods its file": ("exec cat /dev/zero > 0.comp.spv", "writes more than"),
}


def program(folder: Path, script: str, name: str = "glslangValidator") -> str:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


class Impatient(ProcessCompiler):
    """Gives up soon. Others keep their time, which they may need on a busy machine."""

    patience = 1.5

    def _wait(
        self, process: subprocess.Popen[bytes], folder: str, log: int, seconds: float
    ) -> None:
        super()._wait(process, folder, log, self.patience)


@pytest.fixture
def little_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LARGEST", 8 << 20)


@pytest.fixture
def working() -> ProcessCompiler:
    found = find_compiler("process")
    if found is None:
        pytest.skip("no GLSL compiler on this machine")
    return found


@pytest.mark.full
@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_one_is_said_to_be_and_the_next_is_taken(
    tmp_path: Path, little_output: None, working: ProcessCompiler, fault: str
) -> None:
    script, said = BROKEN[fault]
    kind = Impatient if said.startswith("did not end") else ProcessCompiler
    broken = kind(program(tmp_path / "bin", script))
    with pytest.raises(CompilerUnavailable, match=said) as caught:
        broken.compile([GOOD])
    assert not caught.value.temporary
    both = FallbackCompiler([broken, working])
    (module,) = both.compile([GOOD])
    assert spirv.info(module).local_size == (64, 1, 1)
    assert both.identity == working.identity


def test_what_a_killed_one_started_is_killed_too(tmp_path: Path) -> None:
    marker = tmp_path / "child"
    hanging = Impatient(program(tmp_path / "bin", f"sleep 601 & echo $! > {marker}; wait"))
    # Until it has got to the child, however long its start takes.
    while not (marker.exists() and marker.read_text()):
        with pytest.raises(CompilerUnavailable, match="did not end"):
            hanging.compile([GOOD])
        hanging.patience *= 2
    child = int(marker.read_text())
    end = time.monotonic() + 60
    while Path(f"/proc/{child}").exists() and "Z" not in _state(child):
        assert time.monotonic() < end
        time.sleep(0.02)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


def test_wrong_glsl_is_no_broken_compiler(working: ProcessCompiler) -> None:
    (error,) = working.compile([BAD])
    assert isinstance(error, GlslError) and "nosuch" in error.log


SHORT = {
    "files": (resource.RLIMIT_NOFILE, 6),
    "room": (resource.RLIMIT_FSIZE, 16),
}


@pytest.mark.parametrize("what", SHORT)
def test_what_is_short_at_a_time_passes(what: str) -> None:
    """The compiler is tried again: a later call finds it working."""
    if find_compiler("process") is None:
        pytest.skip("no GLSL compiler on this machine")
    limit, value = SHORT[what]
    code = f"""
import resource
from tests.unit.codegen.test_process import *
compiler = find_compiler("process")
assert isinstance(compiler.compile([GOOD])[0], bytes)
soft, hard = resource.getrlimit({int(limit)})
resource.setrlimit({int(limit)}, ({value}, hard))
try:
    compiler.compile([GOOD])
    raise SystemExit("it compiled")
except CompilerUnavailable as error:
    assert error.temporary, error
    said = str(error)
resource.setrlimit({int(limit)}, (soft, hard))
assert isinstance(compiler.compile([GOOD])[0], bytes)
print(said)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert done.returncode == 0, done.stderr
    assert {"files": "Too many open files", "room": "File too large"}[what] in done.stdout


def test_without_threads_it_compiles_by_itself(
    working: ProcessCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    results = working.compile([GOOD, BAD, GOOD])
    assert [isinstance(result, bytes) for result in results] == [True, False, True]


def test_signals_of_the_terminal_do_not_reach_it(working: ProcessCompiler, tmp_path: Path) -> None:
    """Ctrl-C in the middle of a build must not make the compiler look broken."""
    script = f"ps -o sid= -p $$ > {tmp_path}/session; exit 1"
    with pytest.raises(CompilerUnavailable):
        ProcessCompiler(program(tmp_path / "bin", script)).compile([GOOD])
    assert int((tmp_path / "session").read_text()) != os.getsid(0)
    assert signal.getsignal(signal.SIGINT) is not None
