"""The null driver's record of what would be submitted."""

import struct
import subprocess
import sys

import numpy as np
import pytest

from webnn_vk import MLGraphBuilder, NotSupportedError, Settings, devices, ml
from webnn_vk.driver import (
    BarrierCommand,
    CopyCommand,
    DispatchCommand,
    FillCommand,
    PipelineRequest,
)
from webnn_vk.driver.null.driver import NullDriver

SPIRV = struct.pack("<5I", 0x07230203, 0x00010500, 0, 1, 0)


def test_it_says_what_is_submitted():
    said = []
    driver = NullDriver(say=said.append)
    a, b = driver.allocate(1024, label="a"), driver.allocate(256, label="b")
    [pipeline] = driver.pipelines([
        PipelineRequest(SPIRV, 2, 4, ((0, b"\x40\0\0\0"),), "sum")])
    recording = driver.record([
        FillCommand(a, 0, 1024, 0xFF), BarrierCommand(),
        DispatchCommand(pipeline, ((a, 256, 512), (b, 0, 256)), b"\1\2\3\4", (2, 3, 1)),
        BarrierCommand(), CopyCommand(a, 4, b, 8, 16),
    ])
    assert said == []
    assert driver.submit([recording, recording]) == 1
    lines = [
        "  fill a#1 with 0xff",
        "  barrier",
        "  dispatch sum 2x3x1 (a#1[256+512], b#2) constants 0=64 push 01020304",
        "  barrier",
        "  copy a#1[4+16] to b#2[8+16]",
    ]
    assert said == ["submit 1", *lines, *lines]
    assert bytes(b.mapped[8:24]) == bytes([0xFF, 0, 0, 0]) * 4


def test_memory_is_zero_at_first():
    assert not any(NullDriver().allocate(4096).mapped)


@pytest.mark.filterwarnings("ignore:.*the null driver computes nothing")
def test_a_context_without_vulkan_says_what_a_graph_would_run(tmp_path):
    settings = Settings(driver="null", dump=tmp_path)
    with ml.create_context(settings=settings).result() as context:
        assert context.device_info.name == "null device"
        assert context.device_info.index is None
        builder = MLGraphBuilder(context)
        x = builder.input("x", {"data_type": "float32", "shape": [64, 64]})
        graph = builder.build({"y": builder.matmul(builder.relu(x), x, label="product")}).result()
        ones = np.ones((64, 64), np.float32)
        assert not context.compute(graph, {"x": ones})["y"].any()
    [path] = tmp_path.glob("submissions-*.txt")
    dispatches = [line for line in path.read_text().splitlines() if "dispatch" in line]
    assert [line.split()[1].split(".")[0] for line in dispatches][-1].startswith("matmul")
    assert len(dispatches) == 2


@pytest.mark.filterwarnings("ignore:.*the null driver computes nothing")
def test_two_pretended_devices_of_one_name(monkeypatch):
    monkeypatch.setenv("WEBNN_VK_NULL_DEVICES", "2")
    monkeypatch.setenv("WEBNN_VK_DRIVER", "null")
    first, second, cpu = devices()
    assert (first.name, first.index, second.index) == (second.name, 0, 1) and not cpu.is_vulkan
    assert first.uuid != second.uuid and first.pci != second.pci
    assert first.default and not second.default
    for wanted, info in (
        (f"uuid:{second.uuid}", second), (f"pci:{first.pci}", first), ("1", second), ("", first),
        ("vulkan", first), ("null device", first),
    ):
        with ml.create_context(settings=Settings(driver="null", device=wanted)).result() as context:
            assert context.device_info.uuid == info.uuid
            assert context.device_info.pci == info.pci
    for wanted in ("pci:0000:02:00.0", "2", "radeon", "uuid:0"):
        with pytest.raises(NotSupportedError, match="none of the 2 devices|is no UUID"):
            ml.create_context(settings=Settings(driver="null", device=wanted)).result()
    monkeypatch.setenv("WEBNN_VK_NULL_DEVICES", "many")
    with pytest.raises(ValueError, match="WEBNN_VK_NULL_DEVICES: 'many' is not a number"):
        ml.create_context().result()


def test_no_vulkan_is_loaded_for_it():
    code = (
        "import sys, warnings\nwarnings.simplefilter('ignore')\nfrom webnn_vk import ml\n"
        "with ml.create_context(driver='null').result(): pass\n"
        "names = 'vulkan', 'webnn_vk.driver.vulkan', 'kp'\n"
        "print([m for m in sys.modules if m.startswith(names)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_device_that_is_asked_for_as_the_cpu_stays_that():
    chosen = Settings(driver="null", device="cpu")
    with ml.create_context(settings=chosen).result() as context:
        assert not context.device_info.is_vulkan
