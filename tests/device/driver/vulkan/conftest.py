"""Drivers for tests: each test uses the session's, or opens a new one."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest

from tests.support.drivers import NO_DRIVER, pipeline_of
from tests.support.glsl import SCALE, compiled
from webnn_vk.driver import DispatchCommand, Pipeline
from webnn_vk.driver.vulkan.devices import choose_device, list_devices
from webnn_vk.driver.vulkan.driver import VulkanDriver, open_driver
from webnn_vk.driver.vulkan.errors import VulkanUnavailable
from webnn_vk.driver.vulkan.memory import VulkanAllocation
from webnn_vk.driver.vulkan.snapshot import PhysicalDevice


@pytest.fixture(scope="session")
def physical() -> PhysicalDevice:
    try:
        devices = list_devices()
        index = choose_device([device.profile for device in devices], override="vulkan",
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
    """A new driver for the test."""
    driver = open_driver(physical)
    yield driver
    driver.close()


@pytest.fixture(scope="session")
def spirv(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """`SCALE` compiled."""
    return compiled(SCALE, tmp_path_factory.mktemp("spirv"))


@pytest.fixture
def pipeline(spirv: bytes) -> Callable[..., Pipeline]:
    """Makes the pipeline of `SCALE` for a driver and a factor K."""
    def make(driver: VulkanDriver, factor: int = 1) -> Pipeline:
        return pipeline_of(driver, spirv, binding_count=2, push_size=8, name="scale",
                               constants=((0, struct.pack("<I", 64)),
                                          (1, struct.pack("<I", factor))))
    return make


@pytest.fixture
def scale() -> Callable[..., DispatchCommand]:
    """Makes a dispatch over `count` elements: target = source * K + added."""
    def make(pipeline: Pipeline, source: VulkanAllocation, target: VulkanAllocation, count: int,
             added: int = 0) -> DispatchCommand:
        return DispatchCommand(pipeline, ((source, 0, 4 * count), (target, 0, 4 * count)),
                               struct.pack("<II", count, added), (-(-count // 64), 1, 1))
    return make
