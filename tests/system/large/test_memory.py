"""Host memory of a model's weights, in a new process: counted arrays and the device's memory. With
--explore resident memory is measured."""

import json
import os
import subprocess
import sys

import pytest

from bench.memory import (
    import_with_cold_driver,
    imports,
    model_in_a_process,
    write_exported,
    write_model,
)
from bench.models import classic
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
#: Counts the arrays of the process and the bytes on the device while a model is built, looking at
#: their sum whenever the device allocates. ``make(context, path)`` builds it and returns the graph
#: and what the caller keeps.
COUNTED = """
from tests.support import host_memory
host_memory.start()
import gc, json, sys
from bench import memory
from bench.cold import MODELS
from bench.memory import build
from webnn_vk import MLGraphBuilder
from webnn_vk.tools.devices import open_context
import webnn_vk.onnx

def layers(context, megabytes):
    return build(context, int((int(megabytes) * 1e6 / memory.LAYERS / 4) ** 0.5) // 8 * 8)

def imported(context, path):
    builder = MLGraphBuilder(context)
    return builder.build(webnn_vk.onnx.build_operands(path, builder)).result(), None

def described(context, name):
    graph = MODELS[name](context).result()
    constants = graph._executable.program.constants
    return graph, sum(descriptor.byte_length for descriptor in constants)

with open_context("vulkan") as context:
    build(context, 64, 1)
    gc.collect()
    device, sums = context._state.device, []
    before, on_device = host_memory.held(), device.memory_in_use()
    allocate = device.driver.allocate
    def allocating(*given, **named):
        sums.append(host_memory.held() - before + device.memory_in_use() - on_device)
        return allocate(*given, **named)
    device.driver.allocate = allocating
    host_memory.begin_peak()
    graph, kept = globals()[sys.argv[1]](context, sys.argv[2])
    peak = host_memory.peak() - before
    context.fence().wait()
    gc.collect()
    print(json.dumps({
        "peak": peak, "steady": host_memory.held() - before, "most": max(sums), "allocations":
        len(sums), "on_device": device.memory_in_use() - on_device,
        "weights": graph.report().weight_bytes, "given": kept if isinstance(kept, int) else 0}))
"""
#: Variation from run to run: the allocator's blocks, the driver's own memory.
NOISE = 12e6
#: Memory that a first graph needs.
FIRST_GRAPH = 60e6
#: Memory that the compilers need at the same time for the kernels of a model without a cache.
COMPILER = 40e6


def counted(*words):
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, *map(str, words)], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"WEBNN_VK_VALIDATE": "0"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_weights_are_in_memory_once():
    """After the build there is the device's copy, but not the host's."""
    require_vulkan()
    weights = MEGABYTES * 1e6
    found = counted("layers", MEGABYTES)
    assert 0.99 * weights <= found["on_device"] < 1.02 * weights, found
    # The last layer's array, while it is copied, and the copies of all layers.
    assert found["peak"] < 1.4 * weights and found["steady"] < 0.05 * weights, found
    # Each layer's host copy is freed once it is on the device.
    assert found["allocations"] > 3 and found["most"] < 1.9 * weights, found


@pytest.mark.parametrize("name", ["embedded", "external"])
def test_an_import_reads_its_weights_once(name, tmp_path):
    """With the weights inside the model file and beside it: neither protobuf's copy nor the
    unpacked originals stay."""
    require_vulkan()
    write_model(tmp_path, MEGABYTES)
    weights = (tmp_path / "weights").stat().st_size
    found = counted("imported", tmp_path / f"{name}.onnx")
    assert weights <= found["on_device"] < 1.05 * weights, found
    assert found["most"] < 1.2 * weights and found["peak"] < 1.1 * weights, found
    assert found["steady"] < 0.1 * weights, found


@pytest.mark.parametrize(("name", "on_device"), [
    # With such small weights, half of them would not be noticed.
    ("MobileNetV2", 1.02), ("BERT, 2 layers", 1.02), ("ResNet-50", 1.12),
])
def test_a_build_frees_its_weights(name, on_device):
    """At no time is there one more copy of the weights. Filters of some of ResNet-50's 3x3 layers
    are stored transformed."""
    require_vulkan()
    found = counted("described", name)
    given = found["given"]
    assert given > 13e6
    assert found["most"] < 2.3 * given + 13e6, found
    assert found["steady"] < 8e6, found
    assert given <= found["weights"] < on_device * given, found


@pytest.mark.explore
def test_resident_weights():
    """On a software driver device memory is resident memory: after the build there is the device's
    copy, but neither the host's copy nor staging memory."""
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
    # Each layer's host copy is freed once it is on the device.
    assert figures["peak"] < 1.5 * weights + NOISE, figures
    for name in ("steady", "after_run"):
        assert figures[name] < 1.2 * weights + NOISE, figures
        if figures["mapped"]:
            # The measurement does see a copy that is kept.
            assert figures[name] > 0.9 * weights - NOISE, figures


@pytest.mark.explore
@pytest.mark.parametrize("megabytes", [
    pytest.param(64, id="64 MB"),
    pytest.param(500, id="500 MB", marks=pytest.mark.large),
])
def test_an_import_needs_its_weights_once(megabytes, monkeypatch):
    """With the weights beside the model file and inside it: neither protobuf's copy nor the
    unpacked originals stay."""
    require_vulkan()
    monkeypatch.setenv("WEBNN_VK_VALIDATE", "0")
    for name, figures in imports("vulkan", megabytes).items():
        weights = figures.weights
        assert weights >= megabytes * 1e6
        assert weights <= figures.on_device < 1.05 * weights
        # This includes the memory that any first graph needs (kernels, the driver's compiler).
        first_graph = 0 if megabytes >= 500 else FIRST_GRAPH
        assert figures.peak < 1.3 * weights + first_graph, (name, figures)
        assert figures.steady < 1.15 * weights + first_graph, (name, figures)


@pytest.mark.explore
def test_a_process_with_a_model_from_a_file(tmp_path, monkeypatch):
    """All resident pages, the interpreter's, the libraries' and the mapped file's included. With
    the file's pages resident, a model of this size exceeds the bound by half."""
    require_vulkan()
    monkeypatch.setenv("WEBNN_VK_VALIDATE", "0")
    write_model(tmp_path, 150)
    weights = (tmp_path / "weights").stat().st_size
    for name in ("embedded", "external"):
        figures = import_with_cold_driver("vulkan", tmp_path / f"{name}.onnx", weights)
        assert weights < figures.highest < figures.wanted, (name, figures)


@pytest.mark.explore
@pytest.mark.large
def test_a_process_with_bert_from_a_file(tmp_path, monkeypatch):
    require_vulkan()
    monkeypatch.setenv("WEBNN_VK_VALIDATE", "0")
    weights = write_exported(tmp_path / "bert.onnx", classic.bert(12))
    assert weights > 340e6
    figures = import_with_cold_driver("vulkan", tmp_path / "bert.onnx", weights)
    assert weights < figures.highest < figures.wanted, figures


@pytest.mark.explore
def test_a_process_with_resnet_from_a_file(tmp_path, monkeypatch):
    """Beyond ``wanted``: a tenth more weights on the device, in Winograd's form, and compilers of
    many kernels."""
    require_vulkan()
    monkeypatch.setenv("WEBNN_VK_VALIDATE", "0")
    weights = write_exported(tmp_path / "resnet.onnx", classic.resnet50)
    figures = import_with_cold_driver("vulkan", tmp_path / "resnet.onnx", weights)
    assert weights < figures.on_device < 1.25 * weights
    assert figures.highest < 1.15 * figures.on_device + 150e6 + COMPILER + NOISE, figures


@pytest.mark.explore
@pytest.mark.parametrize("name, on_device, compilers", [
    # With such small weights, half of them would not be noticed.
    ("MobileNetV2", 1.02, COMPILER), ("BERT, 2 layers", 1.02, 0), ("ResNet-50", 1.12, 0),
])
def test_a_build_takes_half_as_much_again_as_the_weights(name, on_device, compilers, monkeypatch):
    """On a software driver the weights on the device are resident too. During a build a model takes
    one and a half times its weights, beside the memory that any first graph needs (kernels, the
    driver's compiler). Filters of some of ResNet-50's 3x3 layers are stored transformed."""
    require_vulkan()
    monkeypatch.setenv("WEBNN_VK_VALIDATE", "0")
    figures = model_in_a_process("vulkan", name)
    assert figures.given > 13e6
    assert figures.given <= figures.weights < on_device * figures.given, figures
    assert figures.peak < 1.5 * figures.given + FIRST_GRAPH + compilers, figures
