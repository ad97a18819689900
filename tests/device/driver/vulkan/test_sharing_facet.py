"""Memory shared between two devices, and host pages used in place."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.open_files import left_open, open_files
from webnn_vk.driver import CopyCommand, DispatchCommand, FeatureMissing, FillCommand, Pipeline
from webnn_vk.driver.vulkan.driver import VulkanDriver, open_driver
from webnn_vk.driver.vulkan.memory import VulkanAllocation
from webnn_vk.driver.vulkan.snapshot import PhysicalDevice

MakePipeline = Callable[..., Pipeline]
Scale = Callable[..., DispatchCommand]


def need(driver: VulkanDriver, feature: str) -> None:
    if feature not in driver.profile.features:
        pytest.skip(f"the device has no {feature}")


def run(driver: VulkanDriver, *commands: object) -> None:
    assert driver.wait(driver.submit([driver.record(commands)]), 60)


def download(driver: VulkanDriver, source: VulkanAllocation, count: int) -> np.ndarray:
    staging = driver.allocate(4 * count, host=True)
    run(driver, CopyCommand(source, 0, staging, 0, 4 * count))
    staging.invalidate()
    return np.frombuffer(staging.mapped, np.uint32)[:count].copy()


def test_two_devices_share_memory(physical: PhysicalDevice, own_driver: VulkanDriver,
                                  pipeline: MakePipeline, scale: Scale) -> None:
    need(own_driver, "external_memory_fd")
    other = open_driver(physical)
    mine = own_driver.allocate(4000, exportable=True)
    theirs = other.sharing.import_memory(own_driver.sharing.export_memory(mine), label="theirs")
    assert theirs.size == mine.size
    run(own_driver, FillCommand(mine, 0, 4000, 5))
    assert np.array_equal(download(other, theirs, 1000), np.full(1000, 5))
    result = other.allocate(4000)
    run(other, scale(pipeline(other, 3), theirs, result, 1000, 1),)
    run(other, CopyCommand(result, 0, theirs, 0, 4000))
    assert np.array_equal(download(own_driver, mine, 1000), np.full(1000, 16))
    # The importing side outlives the exporting one.
    mine.free()
    own_driver.close()
    assert np.array_equal(download(other, theirs, 1000), np.full(1000, 16))
    other.close()


def test_nothing_leaks_by_sharing(physical: PhysicalDevice, own_driver: VulkanDriver) -> None:
    need(own_driver, "external_memory_fd")
    other = open_driver(physical)
    before, files = (own_driver.memory_in_use(), other.memory_in_use()), open_files()
    for _ in range(20):
        mine = own_driver.allocate(1 << 16, exportable=True)
        theirs = other.sharing.import_memory(own_driver.sharing.export_memory(mine))
        assert other.memory_in_use().allocated == 1 << 16
        mine.free()
        theirs.free()
    assert (own_driver.memory_in_use(), other.memory_in_use()) == before
    assert not left_open(files)
    other.close()


def test_what_cannot_be_shared(physical: PhysicalDevice, own_driver: VulkanDriver) -> None:
    need(own_driver, "external_memory_fd")
    with pytest.raises(ValueError, match="not allocated exportable"):
        own_driver.sharing.export_memory(own_driver.allocate(256))
    external = own_driver.sharing.export_memory(own_driver.allocate(256, exportable=True))
    with pytest.raises(ValueError, match="another device"):
        own_driver.sharing.import_memory(replace(external, uuid="00" * 16))
    os.close(external.fd)
    masked = open_driver(physical, profile=physical.profile.masked(
        ["external_memory_fd", "external_memory_host"]))
    with pytest.raises(FeatureMissing, match="VK_KHR_external_memory_fd"):
        masked.allocate(256, exportable=True)
    with pytest.raises(FeatureMissing, match="VK_EXT_external_memory_host"):
        masked.sharing.import_host_memory(bytearray(4096))
    assert masked.memory_in_use().allocations == 0
    masked.close()


def test_numpy_pages(own_driver: VulkanDriver, pipeline: MakePipeline, scale: Scale) -> None:
    need(own_driver, "external_memory_host")
    page = own_driver.profile.min_imported_host_pointer_alignment
    backing = np.zeros(4 * page // 4, np.uint32)
    start = -backing.ctypes.data % page // 4
    array = backing[start:start + 2048]
    array[:] = np.arange(2048)
    shared = own_driver.sharing.import_host_memory(array)
    assert shared.size >= array.nbytes
    target = own_driver.allocate(array.nbytes)
    run(own_driver, scale(pipeline(own_driver, 2), shared, target, 2048))
    assert np.array_equal(download(own_driver, target, 2048), np.arange(2048) * 2)
    # Both see one memory, in both directions.
    array[7] = 1000
    run(own_driver, FillCommand(shared, 0, 16, 9), CopyCommand(shared, 28, target, 0, 4))
    assert array[:8].tolist() == [9, 9, 9, 9, 4, 5, 6, 1000]
    assert download(own_driver, target, 1)[0] == 1000
    shared.free()
    assert own_driver.memory_in_use().allocated == target.size


def test_pages_from_the_middle(own_driver: VulkanDriver) -> None:
    need(own_driver, "external_memory_host")
    page = own_driver.profile.min_imported_host_pointer_alignment
    backing = np.zeros(4 * page, np.uint8)
    start = -backing.ctypes.data % page + 512
    array = backing[start:start + page].view(np.uint32)
    array[:] = np.arange(page // 4)
    shared = own_driver.sharing.import_host_memory(array)
    assert shared.offset == 512
    assert np.array_equal(download(own_driver, shared, page // 4), np.arange(page // 4))


def test_read_only_memory_mapped_file(own_driver: VulkanDriver, tmp_path: Path) -> None:
    need(own_driver, "external_memory_host")
    path = tmp_path / "weights"
    path.write_bytes(np.arange(5000, dtype=np.uint32).tobytes())
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    shared = own_driver.sharing.import_host_memory(mapped, label="weights")
    assert np.array_equal(download(own_driver, shared, 5000), np.arange(5000))
    with pytest.raises(BufferError):
        mapped.close()  # kept for as long as it is used
    shared.free()
    assert own_driver.memory_in_use().allocations == 0
