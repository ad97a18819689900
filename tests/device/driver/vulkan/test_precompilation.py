"""A second device compiles for the first, in a process without the validation layer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.device.driver.vulkan.test_instance import python
from webnn_vk.driver.vulkan.quirks import COMPILES_AT_FIRST_SUBMIT, quirks_of
from webnn_vk.driver.vulkan.snapshot import PhysicalDevice

BUILDS = """
import itertools
import types
import numpy as np
import webnn_vk as webnn
from webnn_vk.driver.vulkan import driver, precompilation

precompilation.cores = lambda: 2
# Whatever the machine's speed, the first pipeline is not in the cache, and what others compiled is.
precompilation.CACHED_SECONDS = 0.0
precompilation.time = types.SimpleNamespace(monotonic=itertools.count(0, 1000).__next__)
opened = []
original = driver.VulkanDriver
class Counted(original):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        opened.append(self)
driver.VulkanDriver = Counted
context = webnn.ml.create_context().result()

a = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
e = np.exp(a.astype(float) @ a)
GRAPHS = (
    (lambda b, x: b.softmax(b.matmul(x, x), 1), e / e.sum(1, keepdims=True)),
    (lambda b, x: b.cumulative_sum(x, 0), np.cumsum(a, 0)),
    (lambda b, x: b.transpose(x), a.T),
), (
    (lambda b, x: b.reduce_l2(b.sin(x), axes=[0]), np.sqrt(np.square(np.sin(a)).sum(0))),
    (lambda b, x: b.arg_max(x, 1), a.argmax(1)),
    (lambda b, x: b.instance_normalization(b.reshape(x, [1, 1, 64, 64])), a / a.std()),
)
for results in GRAPHS:
    builder = webnn.MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [64, 64]})
    graph = builder.build({
        str(number): make(builder, x) for number, (make, _) in enumerate(results)
    }).result()
    for number, got in context.compute(graph, {"x": a}).items():
        wanted = results[int(number)][1]
        np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-4)
    print(len(opened), len([driver for driver in opened if not driver._closed]))
"""


@pytest.fixture(autouse=True)
def late_compiler(physical: PhysicalDevice) -> None:
    if COMPILES_AT_FIRST_SUBMIT not in quirks_of(physical.profile):
        pytest.skip("the device compiles pipelines when they are made")


def builds(folder: Path, **variables: str) -> list[str]:
    """For each of two graphs: how many devices were opened by then, and how many are open."""
    return python(BUILDS, {
        "WEBNN_VK_DEVICE": "vulkan", "WEBNN_VK_VALIDATE": "0",
        "WEBNN_VK_CACHE": str(folder / "ours"), "MESA_SHADER_CACHE_DIR": str(folder / "mesa"),
        "MESA_SHADER_CACHE_DISABLE": "0", **variables,
    }).splitlines()


@pytest.mark.parametrize("off", ["0", "1"])
def test_another_device_helps_and_is_closed(tmp_path: Path, off: str) -> None:
    """With the driver's cache and without. That a driver's cache is off is found out by times: see
    tests/unit/driver/vulkan."""
    made = builds(tmp_path, MESA_SHADER_CACHE_DISABLE=off, MESA_GLSL_CACHE_DISABLE=off)
    assert made == ["2 1", "3 1"]


def test_none_under_the_validation_layer(tmp_path: Path) -> None:
    assert builds(tmp_path, WEBNN_VK_VALIDATE="1") == ["1 1", "1 1"]
