"""Texel views have equal sizes for llvmpipe: a graph's first run compiles no kernel again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from tests.support.profiles import stored_profile
from webnn_vk import MLGraphBuilder
from webnn_vk.driver.resources import room_for

# Products by texels, with one kernel, of operands of 64 KiB and others, tiny and large.
PROGRAM = """
import sys
import numpy as np
import webnn_vk

context = webnn_vk.ml.create_context().result()
builder = webnn_vk.MLGraphBuilder(context)
feeds, expected, outputs = {}, {}, {}
for name, (m, k, n) in {"a": (128, 128, 128), "b": (8, 96, 128), "c": (12, 4, 260)}.items():
    random = np.random.default_rng(m)
    x, w = random.standard_normal((m, k), np.float32), random.standard_normal((k, n), np.float32)
    feeds[name], expected["y" + name] = x, x @ w
    operand = builder.input(name, {"data_type": "float32", "shape": x.shape})
    outputs["y" + name] = builder.matmul(operand, builder.constant(w))
graph = builder.build(outputs).result()
kernels = {(s.kernel, s.variant) for s in graph.report().steps}
assert len(kernels) == 1 and "x " in kernels.pop()[1]
if sys.argv[1] == "run":
    for name, values in context.compute(graph, feeds).items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-4, atol=1e-4)
print(context.device_info)
"""


def compiled(folder: Path, what: str) -> int:
    """Files in Mesa's shader cache after a new process that started with an empty cache."""
    environment = {
        **os.environ, "MESA_SHADER_CACHE_DIR": str(folder), "WEBNN_VK_VALIDATE": "0",
        "WEBNN_VK_DEVICE": "vulkan",
    }
    environment.pop("MESA_SHADER_CACHE_DISABLE", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, what], env=environment, capture_output=True, text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    if "llvmpipe" not in done.stdout:
        pytest.skip("another driver than llvmpipe")
    return sum(path.is_file() and len(path.parent.name) == 2 for path in folder.rglob("*"))


@pytest.mark.device
def test_the_first_run_compiles_nothing(tmp_path: Path) -> None:
    """The driver caches the same for a build as for a build and a run."""
    built, run = compiled(tmp_path / "build", "build"), compiled(tmp_path / "run", "run")
    if not built:
        pytest.skip("Mesa keeps no compiled shaders here")
    assert run == built


def test_room() -> None:
    """No size that llvmpipe would compile for: whole steps, none a multiple of 64 KiB."""
    sizes = np.unique(np.concatenate([np.arange(1, 2000), 65536 * np.arange(1, 50), [3 << 28]]))
    llvmpipe = stored_profile("llvmpipe")
    rooms = np.array([room_for(int(size), llvmpipe) for size in sizes])
    assert (rooms >= sizes).all() and (rooms <= sizes + 511).all()
    assert (rooms % 256 == 0).all() and (rooms >> 8 & 0xFF != 0).all()


def test_room_of_other_drivers() -> None:
    """Only whole steps."""
    for name in ("amd_navi31", "nvidia_ampere", "adreno_minimum"):
        sizes = [1, 255, 256, 257, 65_535, 65_536, 1 << 28]
        assert [room_for(size, stored_profile(name)) for size in sizes] == [
            256, 256, 256, 512, 65_536, 65_536, 1 << 28
        ]


@pytest.mark.device
@pytest.mark.parametrize("by_size", [False, True])
def test_memory_of_a_tensor(by_size: bool) -> None:
    with open_context("vulkan", limits={"compiles_by_size": by_size}) as context:
        before = context._state.device.memory_in_use()
        described = {"data_type": "float32", "shape": [1 << 18], "writable": True}
        tensor = context.create_tensor(described).result()
        taken = context._state.device.memory_in_use() - before
        assert taken == (1 << 20) + (256 if by_size else 0)
        tensor.destroy()


@pytest.mark.device
@pytest.mark.parametrize("by_size", [False, True])
def test_a_graph_on_exact_and_on_widened_views(by_size: bool) -> None:
    """Operands and intermediates of 64 KiB, read as texels if the device has them."""
    with open_context("vulkan", limits={"compiles_by_size": by_size}) as context:
        builder = MLGraphBuilder(context)
        random = np.random.default_rng(1)
        x, w, v = (random.standard_normal((128, 128), np.float32) for _ in range(3))
        operand = builder.input("x", {"data_type": "float32", "shape": x.shape})
        first = builder.relu(builder.matmul(operand, builder.constant(w)))
        graph = builder.build({"y": builder.matmul(first, builder.constant(v))}).result()
        assert graph.report().arena_bytes == (65_536 + (256 if by_size else 0))
        result = context.compute(graph, {"x": x})["y"]
        expected = np.maximum(x @ w, 0) @ v
        assert_allclose(result, expected, rtol=1e-4, atol=1e-3)
