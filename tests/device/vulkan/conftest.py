"""Drivers to test with: each test gets the session's, or opens one of its own."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.drivers import NO_DRIVER
from webnn_vk.driver import DispatchCommand, Pipeline
from webnn_vk.vulkan.devices import choose, list_devices
from webnn_vk.vulkan.driver import VulkanDriver, open_driver
from webnn_vk.vulkan.errors import VulkanUnavailable
from webnn_vk.vulkan.memory import Allocation
from webnn_vk.vulkan.snapshot import PhysicalDevice

# b[i] = a[i] * K + c for i < n
SHADER = """#version 450
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint K = 1;
layout(push_constant) uniform P { uint n; uint c; };
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) buffer B { uint b[]; };
void main() { uint i = gl_GlobalInvocationID.x; if (i < n) b[i] = a[i] * K + c; }
"""


@pytest.fixture(scope="session")
def physical() -> PhysicalDevice:
    try:
        devices = list_devices()
        index = choose([device.profile for device in devices], override="vulkan",
                       unusable=[device.unusable for device in devices])
    except VulkanUnavailable as error:
        pytest.skip(f"{NO_DRIVER}: {error}")
    return devices[index]


@pytest.fixture(scope="session")
def driver(physical: PhysicalDevice) -> Iterator[VulkanDriver]:
    """The session's driver: don't close it."""
    driver = open_driver(physical)
    yield driver
    driver.close()


@pytest.fixture
def own_driver(physical: PhysicalDevice) -> Iterator[VulkanDriver]:
    """A driver of the test's own."""
    driver = open_driver(physical)
    yield driver
    driver.close()


@pytest.fixture(scope="session")
def spirv(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """`SHADER` compiled."""
    if shutil.which("glslangValidator") is None:
        pytest.skip("glslangValidator is not installed")
    source: Path = tmp_path_factory.mktemp("spirv") / "scale.comp"
    source.write_text(SHADER)
    target = source.with_suffix(".spv")
    subprocess.run(["glslangValidator", "--target-env", "vulkan1.2", "-V", source, "-o", target],
                   check=True, stdout=subprocess.DEVNULL)
    return target.read_bytes()


@pytest.fixture
def pipeline(spirv: bytes) -> Callable[..., Pipeline]:
    """Makes the pipeline of `SHADER` for a driver and a factor K."""
    def make(driver: VulkanDriver, factor: int = 1) -> Pipeline:
        return driver.pipeline(spirv, binding_count=2, push_size=8, name="scale",
                               constants=((0, struct.pack("<I", 64)),
                                          (1, struct.pack("<I", factor))))
    return make


@pytest.fixture
def scale() -> Callable[..., DispatchCommand]:
    """Makes a dispatch over `count` elements: target = source * K + added."""
    def make(pipeline: Pipeline, source: Allocation, target: Allocation, count: int,
             added: int = 0) -> DispatchCommand:
        return DispatchCommand(pipeline, ((source, 0, 4 * count), (target, 0, 4 * count)),
                               struct.pack("<II", count, added), (-(-count // 64), 1, 1))
    return make
