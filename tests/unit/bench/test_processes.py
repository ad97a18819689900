"""Measured processes: whole ones, in a new environment."""

import os
import subprocess
import sys
import time

import pytest

from bench import cold, startup
from bench.peers.results import Result, cells, read, remarks, rows
from bench.processes import BEGUN, environment
from tests.support.paths import ROOT

DEVELOPERS = {"WEBNN_VK_CACHE": "/home/me/cache", "WEBNN_VK_TUNE": "1", "WEBNN_VK_MASK": "float16",
              "WEBNN_VK_CPU_ENGINE": "numpy"}


@pytest.fixture
def developers(monkeypatch):
    for name, value in DEVELOPERS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WEBNN_VK_PACK", "/pack.bin")


def test_a_developer_s_settings_do_not_decide(developers):
    found = environment(WEBNN_VK_VALIDATE="0")
    ours = {name: value for name, value in found.items() if name.startswith("WEBNN_VK_")}
    ours.pop("WEBNN_VK_DEVICE", None)
    assert ours == {"WEBNN_VK_PACK": "/pack.bin", "WEBNN_VK_VALIDATE": "0"}
    assert found["PATH"] == os.environ["PATH"]


def test_a_measured_process_finds_bytecode(developers, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    code = "import webnn_vk.api.builder"
    done = subprocess.run([sys.executable, "-v", "-c", code], capture_output=True, text=True,
                          check=True, cwd=ROOT, env=environment())
    assert "PYTHONDONTWRITEBYTECODE" not in environment()
    modules = [line for line in done.stderr.splitlines() if "webnn_vk/api/builder" in line]
    assert any("matches" in line for line in modules), modules


@pytest.mark.parametrize("start", [
    lambda: cold._measured("MobileNetV2", "again", "cpu", "/nowhere"),
    lambda: startup.main("cpu", 0),
])
def test_what_starts_processes_gives_them_that_environment(developers, monkeypatch, start):
    given = []

    def run(command, **options):
        given.append(options["env"])
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", run)
    before = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        start()
    (variables,) = given
    assert not {"WEBNN_VK_TUNE", "WEBNN_VK_MASK", "WEBNN_VK_CPU_ENGINE"} & variables.keys()
    assert variables["WEBNN_VK_CACHE"] != DEVELOPERS["WEBNN_VK_CACHE"]
    assert before <= float(variables[BEGUN]) <= time.perf_counter()


def test_the_whole_process_is_measured():
    """Includes the start of Python and the import of NumPy, which come before our first line."""
    code = "import json, time\nfrom bench.cold import _Stopwatch\nwatch = _Stopwatch()\n" \
           "watch.mark('import')\nprint(watch.times['clock']['import'], " \
           "watch.times['processor']['import'], time.process_time())"
    before = time.perf_counter() - 100  # as if it had taken that long to get there
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          cwd=ROOT, env=environment(**{BEGUN: str(before)}))
    clock, processor, later = map(float, done.stdout.split())
    assert clock > 100 and 0 < processor <= later and processor > 0.5 * later


REPORT = """step       device  kernel       variant        groups  MFLOP  MB     reason
neg        vulkan  elementwise  flat texels    1×1×1   0.000  0.000  has a kernel for it
copy       vulkan  copy         device to CPU          0.000  0.000
exp [foo]  cpu     onnxruntime  region 0               0.000  0.000  forced to the CPU
relu       vulkan  elementwise  flat texels    1×1×1   0.000  0.000  in float32  cpu
{} dispatches"""


@pytest.mark.parametrize(("report", "told"), [
    (REPORT.format("4 steps (3 Vulkan, 1 CPU), 2"), ("exp [foo]",)),
    (REPORT[:-20], ("exp [foo]", "perhaps more, the report is cut")),
    ("step  device\nneg   vulkan  x\n1 steps (1 Vulkan, 0 CPU), 1 dispatches", ()),
])
def test_our_own_steps_on_the_cpu_are_in_the_row(report, told):
    measured = {"peer": "webnn_vk", "workload": "matmul_512", "ms": 4.5, "build_s": 0.25,
                "first_run_s": 0.5, "max_rel_err": 2e-7, "info": {"report": report}}
    found = read(measured)
    assert isinstance(found, Result) and found.on_host == told
    table = rows([found])
    _, ((_, time_of_ours, *_),) = cells(table, "steady")
    assert time_of_ours == "4.5 + CPU" * bool(told) + "4.5" * (not told)
    assert remarks(table) == [f"ours, matmul 512³: on the CPU: {', '.join(told)}"] * bool(told)
    # On the CPU device this was requested.
    assert read({**measured, "peer": "webnn_vk_cpu"}).on_host == ()
