"""When a GLSL compiler fails, the next one is used, then unfused kernels of the shader archive,
then the CPU."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

#: Failing compilers as scripts. Each records that it was run.
BROKEN = {
    "exits 1": "exit 1",
    "crashes": "kill -SEGV $$",
    "writes garbage": "for f in *.comp; do printf nonsense > $f.spv; done",
    "hangs": "sleep 600",
}


def impatient(fault: str) -> str:
    """Ends a compiler that hangs soon after its start; others have the time that they need."""
    return f"""
from webnn_vk.codegen import process
wait = process.ProcessCompiler._wait
def impatient(compiler, running, folder, log, seconds):
    with open(compiler.path, "rb") as file:
        hangs = {fault == "hangs"} and file.read(2) == b"#!"
    while hangs and not os.path.exists(os.environ["PATH"] + "/runs"):
        time.sleep(0.01)
    wait(compiler, running, folder, log, 1.0 if hangs else 600.0)
process.ProcessCompiler._wait = impatient
"""


@pytest.fixture
def tools(tmp_path: Path, vulkan: None) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sleep", "sh", "env"):
        os.symlink(shutil.which(name), folder / name)
    return folder


def broken(tools: Path, name: str, fault: str) -> None:
    path = tools / name
    path.write_text(f"#!/bin/sh\necho run >> {tools}/runs\n{BROKEN[fault]}\n")
    path.chmod(0o755)


def environment(tools: Path, pack: Path | str) -> dict[str, str]:
    return {"PATH": str(tools), "WEBNN_VK_GLSLANG": "process", "WEBNN_VK_CACHE": "off",
            "WEBNN_VK_DEVICE": "vulkan", "WEBNN_VK_PACK": str(pack)}


@pytest.mark.parametrize("fault", BROKEN)
def test_the_next_compiler_is_taken(child, tools, pack, fault):
    real = shutil.which("glslangValidator")
    if real is None:
        pytest.skip("no glslangValidator to be the next")
    broken(tools, "glslc", fault)
    os.symlink(real, tools / "glslangValidator")
    printed = child(impatient(fault) + '''
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    context = ml.create_context().result(120)
    graph = check(context)
    check(context)
print(len(graph.report().steps), said(caught))
''', environment=environment(tools, pack))
    assert printed.split(None, 1)[1].strip() == "[]"
    assert int(printed.split()[0]) == 1  # fused
    # The broken compiler is not tried for the second graph.
    assert len((tools / "runs").read_text().split()) <= 3


@pytest.mark.parametrize("fault", BROKEN)
def test_unfused_kernels_of_the_pack(child, tools, pack, fault):
    for name in ("glslc", "glslangValidator"):
        broken(tools, name, fault)
    printed = child(impatient(fault) + '''
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    context = ml.create_context().result(120)
    graph = check(context)
    runs = os.stat(os.environ["PATH"] + "/runs").st_size
    again = check(context)
assert os.stat(os.environ["PATH"] + "/runs").st_size == runs, "they were asked again"
for report in (graph.report(), again.report()):
    assert {step.device for step in report.steps} == {"vulkan"}, report
    assert len(report.steps) > 1, report
(warning,) = said(caught)
print(warning)
''', environment=environment(tools, pack))
    assert "the GLSL compiler for" in printed and "does not work: " in printed
    assert "graphs run unfused from precompiled shaders" in printed


def test_without_a_pack_the_cpu_computes(child, tools, tmp_path):
    broken(tools, "glslangValidator", "exits 1")
    printed = child('''
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    context = ml.create_context().result(120)
    graph = check(context)
print({step.device for step in graph.report().steps}, said(caught))
''', environment=environment(tools, tmp_path / "none"))
    assert printed.startswith("{'cpu'}") and "does not work" in printed


def test_what_is_short_for_one_graph_is_there_for_the_next(child, tools, pack):
    """Without a file descriptor for the compiler's files the graph is unfused; the next graph is
    fused."""
    real = shutil.which("glslangValidator")
    if real is None:
        pytest.skip("no glslangValidator")
    os.symlink(real, tools / "glslangValidator")
    printed = child('''
context = ml.create_context().result(120)
# What is read once is read.
build(context, "sub").result(120)
warm = webnn.Settings(device="vulkan", cache="off", glslang="none")
with ml.create_context(settings=warm).result(120) as other:
    check(other)
held = []
restore = lower(resource.RLIMIT_NOFILE, 64)
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    unfused = build(context).result(120)
for descriptor in held:
    os.close(descriptor)
restore()
check(context, unfused)
fused = check(context)
print(len(unfused.report().steps), len(fused.report().steps), said(caught))
''', environment=environment(tools, pack))
    unfused, fused, said = printed.split(None, 2)
    assert int(unfused) > int(fused) == 1
    assert "Too many open files" in said
