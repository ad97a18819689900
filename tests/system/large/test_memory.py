"""What a model's weights cost in resident memory, in a process of its own."""

import json
import os
import subprocess
import sys

import pytest

from bench.memory import imports, model_in_a_process
from tests.support.drivers import require_vulkan
from tests.support.paths import ROOT

MEGABYTES = 64
CODE = """
import json, sys
from dataclasses import asdict
from bench.memory import measure
from webnn_vk.tools.devices import open_context
with open_context("vulkan") as context:
    figures = asdict(measure(context, int(sys.argv[1])))
    figures["mapped"] = context._state.device.create_storage(16).backing.mapped is not None
    print(json.dumps(figures))
"""
#: What varies from run to run: the allocator's blocks, the driver's own memory.
NOISE = 12e6
#: What a first graph needs.
FIRST_GRAPH = 60e6
#: What the compilers need at the same time for the kernels of a model, where no cache has them.
COMPILER = 40e6


def test_weights_are_in_memory_once():
    """On a software driver device memory is resident memory: after the build there is the device's
    copy, and neither the host's nor staging memory."""
    require_vulkan()
    # The layer keeps records of its own.
    environment = os.environ | {"WEBNN_VK_VALIDATE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(MEGABYTES)], env=environment, cwd=ROOT,
        capture_output=True, text=True, timeout=300,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    weights = figures["weights"]
    assert abs(weights - MEGABYTES * 1e6) < 1e6
    assert weights <= figures["on_device"] < 1.02 * weights
    # Each layer's copy goes when it is on the device.
    assert figures["peak"] < 1.5 * weights + NOISE, figures
    for name in ("steady", "after_run"):
        assert figures[name] < 1.2 * weights + NOISE, figures
        if figures["mapped"]:
            # It does measure what it says.
            assert figures[name] > 0.9 * weights - NOISE, figures


@pytest.mark.parametrize("megabytes", [
    pytest.param(64, id="64 MB"),
    pytest.param(500, id="500 MB", marks=[pytest.mark.large, pytest.mark.long]),
])
def test_an_import_needs_its_weights_once(megabytes, monkeypatch):
    """With the weights beside the model, and in it: neither protobuf's copy nor the packing's
    originals stay."""
    require_vulkan()
    monkeypatch.setenv("WEBNN_VK_VALIDATE", "0")
    for name, figures in imports("vulkan", megabytes).items():
        weights = figures.weights
        assert weights >= megabytes * 1e6
        assert weights <= figures.on_device < 1.05 * weights
        # What any first graph needs (kernels, the driver's compiler) is in it, too.
        bound = {"external": 1.3, "embedded": 2.3}[name] * weights
        first_graph = 0 if megabytes >= 500 else FIRST_GRAPH
        assert figures.peak < bound + first_graph, (name, figures)
        assert figures.steady < 1.15 * weights + first_graph, (name, figures)


@pytest.mark.parametrize("name, on_device, compilers", [
    # Weights so small that half of them hides nothing.
    ("MobileNetV2", 1.02, COMPILER), ("BERT, 2 layers", 1.02, 0), ("ResNet-50", 1.3, 0),
])
def test_a_build_takes_half_as_much_again_as_the_weights(name, on_device, compilers, monkeypatch):
    """On a software driver the weights on the device are resident too: while it is built a model
    takes one and a half times those that it was given, beside what any first graph needs (kernels,
    the driver's compiler). Filters of some of ResNet-50's 3x3 layers lie there transformed."""
    require_vulkan()
    monkeypatch.setenv("WEBNN_VK_VALIDATE", "0")
    figures = model_in_a_process("vulkan", name)
    assert figures.given > 13e6
    assert figures.given <= figures.weights < on_device * figures.given, figures
    assert figures.peak < 1.5 * figures.given + FIRST_GRAPH + compilers, figures
