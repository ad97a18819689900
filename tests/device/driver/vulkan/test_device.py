"""The driver on a real Vulkan device: memory, pipelines, recordings, limits, closing."""

from __future__ import annotations

import gc
import hashlib
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.driver_proxy import DriverProxy, has_interface
from webnn_vk.driver import (
    BarrierCommand,
    CopyCommand,
    DispatchCommand,
    Driver,
    DriverClosed,
    FillCommand,
    OutOfDeviceMemory,
    Pipeline,
    PipelineRequest,
    TimestampCommand,
)
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan import blocks
from webnn_vk.driver.vulkan.driver import VulkanDriver, open_driver
from webnn_vk.driver.vulkan.errors import VulkanError, VulkanUnavailable
from webnn_vk.driver.vulkan.instance import drain_validation_messages
from webnn_vk.driver.vulkan.memory import VulkanAllocation
from webnn_vk.driver.vulkan.snapshot import PhysicalDevice

MakePipeline = Callable[..., Pipeline]
Scale = Callable[..., DispatchCommand]


def words(allocation: VulkanAllocation) -> np.ndarray:
    return np.frombuffer(allocation.mapped, np.uint32)


def run(driver: Driver, *commands: object) -> None:
    assert driver.wait(driver.submit([driver.record(commands)]), 60)


def upload(driver: Driver, values: np.ndarray) -> VulkanAllocation:
    staging = driver.allocate(values.nbytes, host=True)
    staging.mapped[:values.nbytes] = values.tobytes()
    staging.flush()
    target = driver.allocate(values.nbytes)
    run(driver, CopyCommand(staging, 0, target, 0, values.nbytes))
    return target


def download(driver: Driver, source: VulkanAllocation, count: int, offset: int = 0) -> np.ndarray:
    staging = driver.allocate(4 * count, host=True)
    run(driver, CopyCommand(source, offset, staging, 0, 4 * count))
    staging.invalidate()
    return words(staging)[:count].copy()


def test_interface(driver: VulkanDriver) -> None:
    assert isinstance(driver, Driver)
    proxy = DriverProxy(driver)
    assert has_interface(proxy)
    assert proxy.profile is driver.profile


def test_dispatch(driver: VulkanDriver, pipeline: MakePipeline, scale: Scale) -> None:
    values = np.arange(1000, dtype=np.uint32)
    source, target = upload(driver, values), driver.allocate(4000)
    run(driver, scale(pipeline(driver, 3), source, target, 1000, 7))
    assert np.array_equal(download(driver, target, 1000), values * 3 + 7)


def test_specialisation_constants_make_pipelines(driver: VulkanDriver,
                                                 pipeline: MakePipeline) -> None:
    assert pipeline(driver, 3) is pipeline(driver, 3)
    assert pipeline(driver, 3) is not pipeline(driver, 4)


def test_chain_with_barriers(driver: VulkanDriver, pipeline: MakePipeline, scale: Scale) -> None:
    double = pipeline(driver, 2)
    buffers = [upload(driver, np.ones(256, np.uint32)), driver.allocate(1024)]
    commands: list[object] = []
    for step in range(10):
        commands += [scale(double, buffers[step % 2], buffers[1 - step % 2], 256),
                     BarrierCommand()]
    run(driver, *commands)
    assert np.array_equal(download(driver, buffers[0], 256), np.full(256, 1024))


def test_offsets(driver: VulkanDriver, pipeline: MakePipeline) -> None:
    data = upload(driver, np.arange(256, dtype=np.uint32))
    run(driver, FillCommand(data, 512, 512, 5))
    # The first 64 elements go to the last quarter.
    run(driver, DispatchCommand(pipeline(driver, 1), ((data, 0, 256), (data, 768, 256)),
                                struct.pack("<II", 64, 100)))
    expected = np.concatenate([np.arange(128), np.full(64, 5), np.arange(64) + 100])
    assert np.array_equal(download(driver, data, 256), expected)
    assert np.array_equal(download(driver, data, 2, offset=124), [31, 32])


def test_fill_and_copy(driver: VulkanDriver) -> None:
    data = driver.allocate(1024)
    run(driver, FillCommand(data, 0, 1024), BarrierCommand(),
        FillCommand(data, 4, 8, 0xDEADBEEF), BarrierCommand(), CopyCommand(data, 4, data, 100, 8))
    expected = np.zeros(256, np.uint32)
    expected[[1, 2, 25, 26]] = 0xDEADBEEF
    assert np.array_equal(download(driver, data, 256), expected)


def test_recordings_run_in_order_within_a_submit(driver: VulkanDriver, pipeline: MakePipeline,
                                                 scale: Scale) -> None:
    data, other = driver.allocate(256), driver.allocate(256)
    recordings = [
        driver.record([FillCommand(data, 0, 256, 1)]),
        driver.record([scale(pipeline(driver, 5), data, other, 64, 1)]),
        driver.record([scale(pipeline(driver, 5), other, data, 64, 1)])]
    driver.wait(driver.submit(recordings))
    assert np.array_equal(download(driver, data, 64), np.full(64, 31))
    # Twice the same recordings in one submit
    driver.wait(driver.submit([*recordings[1:], *recordings[1:]]))
    assert np.array_equal(download(driver, data, 64), np.full(64, ((31 * 5 + 1) * 5 + 1) * 25 + 6))


def test_more_recordings_than_the_structs_hold(driver: VulkanDriver, pipeline: MakePipeline,
                                               scale: Scale) -> None:
    data, other = upload(driver, np.zeros(64, np.uint32)), driver.allocate(256)
    step = driver.record([scale(pipeline(driver, 1), data, other, 64, 1), BarrierCommand(),
                          scale(pipeline(driver, 1), other, data, 64)])
    semaphores = [driver.sharing.semaphore() for _ in range(9)]
    value = driver.submit([step] * 70, signal=[(semaphore, 2) for semaphore in semaphores])
    driver.wait(value)
    assert [semaphore.wait(2, 60) for semaphore in semaphores] == [True] * 9
    assert [semaphore.value() for semaphore in semaphores] == [2] * 9
    driver.wait(driver.submit([step], wait=[(semaphore, 2) for semaphore in semaphores]))
    assert np.array_equal(download(driver, data, 64), np.full(64, 71))


def test_precompile(own_driver: VulkanDriver, spirv: bytes, scale: Scale) -> None:
    requests = [PipelineRequest(spirv, 2, 8, ((0, struct.pack("<I", 64)),
                                              (1, struct.pack("<I", factor))), f"scale{factor}")
                for factor in range(2, 10)]
    pipelines = own_driver.pipelines(requests)
    assert [pipeline.request.name for pipeline in pipelines] == [r.name for r in requests]
    assert own_driver.wait(own_driver.precompile(pipelines), 60)
    assert own_driver.precompile([]) == own_driver.submitted()
    # The empty dispatches changed nothing and the pipelines are the expected ones.
    source, target = upload(own_driver, np.ones(64, np.uint32)), own_driver.allocate(256)
    for factor, pipeline in enumerate(pipelines, 2):
        run(own_driver, scale(pipeline, source, target, 64))
        assert np.array_equal(download(own_driver, target, 64), np.full(64, factor))


def test_timestamps(driver: VulkanDriver, pipeline: MakePipeline, scale: Scale) -> None:
    if "timestamps" not in driver.profile.features:
        pytest.skip("the device has no timestamps")
    source, target = driver.allocate(1 << 20), driver.allocate(1 << 20)
    recording = driver.record([
        FillCommand(source, 0, 1 << 20, 1), BarrierCommand(), TimestampCommand(0),
        *[scale(pipeline(driver, 2), source, target, 1 << 18), BarrierCommand()] * 5,
        TimestampCommand(1)])
    with pytest.raises(ValueError, match="not done"):
        driver.timestamps.read(recording)
    driver.wait(driver.submit([recording]))
    first, second = driver.timestamps.read(recording)
    assert 0 < second - first < 60e9
    assert driver.timestamps.read(driver.record([])) == []


def test_nothing_leaks(own_driver: VulkanDriver, pipeline: MakePipeline, scale: Scale) -> None:
    kernel = pipeline(own_driver, 2)

    def cycle(size: int) -> None:
        source, target = own_driver.allocate(size), own_driver.allocate(size)
        recording = own_driver.record([FillCommand(source, 0, size, 1), BarrierCommand(),
                                       scale(kernel, source, target, size // 4)])
        semaphore = own_driver.sharing.semaphore()
        value = own_driver.submit([recording], signal=[(semaphore, 1)])
        if size % 512:
            recording.free()
            source.free()
            semaphore.close()
        own_driver.wait(value)
    cycle(256)
    gc.collect()
    before = own_driver.memory_in_use()
    assert before.allocations == 0
    for index in range(1000):
        cycle(256 * (1 + index % 7))
    gc.collect()
    assert own_driver.memory_in_use() == before
    assert [*own_driver._natives] == [own_driver._timeline]
    # Descriptor and command pools too: at closing the validation layer reports what is left.
    own_driver.close()
    assert drain_validation_messages() == []


def test_memory_stays_while_a_recording_uses_it(own_driver: VulkanDriver) -> None:
    data = own_driver.allocate(4096)
    recording = own_driver.record([FillCommand(data, 0, 4096, 3)])
    data.free()
    assert own_driver.memory_in_use().allocated == 4096
    own_driver.wait(own_driver.submit([recording]))
    recording.free()
    assert own_driver.memory_in_use().allocated == 0
    with pytest.raises(ValueError, match="freed"):
        own_driver.submit([recording])
    with pytest.raises(ValueError, match="freed"):
        own_driver.record([FillCommand(data, 0, 4096, 3)])


def test_memory_of_a_processor_asks_for_large_pages(physical: PhysicalDevice) -> None:
    """For every page of 2 MB that lies within a block; the contents stay."""
    if physical.profile.device_type != "cpu":
        pytest.skip("the device has memory of its own")
    if not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("the system has no large pages")
    driver = open_driver(physical)
    size, page = 33 << 20, 2 << 20
    block = driver.allocate(size, host=True)
    words(block)[:] = 7
    address = words(block).ctypes.data
    first, last = -(-address // page) * page, (address + size) // page * page
    asked = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *rest = line.split()
        if "-" in name:
            start, end = (int(number, 16) for number in name.split("-"))
        elif name == "VmFlags:" and "hg" in rest:
            asked += max(0, min(end, last) - max(start, first))
    assert asked == last - first
    assert (words(block) == 7).all()
    driver.close()


def test_memory_that_fails_when_it_is_mapped_is_freed(
    own_driver: VulkanDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the error is; the validation layer reports what is left when the device closes."""
    if own_driver.profile.device_type != "cpu":
        pytest.skip("the device has memory of its own")

    def fail(mapped: memoryview) -> None:
        raise TypeError("no large pages")

    before = own_driver.memory_in_use()
    with monkeypatch.context() as patch, pytest.raises(TypeError, match="no large pages"):
        patch.setattr(blocks, "_ask_for_large_pages", fail)
        own_driver.allocate(96 << 20, host=True)
    assert own_driver.memory_in_use() == before
    assert own_driver.allocate(96 << 20, host=True).size == 96 << 20


def test_recordings_that_are_never_submitted_go(own_driver: VulkanDriver) -> None:
    """Though no submit, wait or query of memory follows that would free them."""
    for _ in range(200):
        place = own_driver.allocate(256)
        own_driver.record([FillCommand(place, 0, 256)]).free()
    assert len(own_driver._natives) < 50


def test_out_of_memory_with_real_allocations(physical: PhysicalDevice) -> None:
    # The heap of a masked profile; llvmpipe itself would over-commit without limit.
    profile = physical.profile.replace(memory_heaps=tuple(
        (256 << 20, local) for _, local in physical.profile.memory_heaps))
    driver = open_driver(physical, profile=profile)
    held = [driver.allocate(100 << 20) for _ in range(2)]
    with pytest.raises(OutOfDeviceMemory, match="'big'") as caught:
        driver.allocate(100 << 20, label="big")
    assert caught.value.limit == 256 << 20
    assert caught.value.in_use >= 200 << 20
    held.pop().free()
    assert driver.allocate(100 << 20).size == 100 << 20
    driver.close()


def test_the_whole_heap_limits(own_driver: VulkanDriver) -> None:
    with pytest.raises(OutOfDeviceMemory):
        own_driver.allocate(own_driver.profile.max_memory_allocation_size + 1)


def test_dump_of_modules(physical: PhysicalDevice, spirv: bytes, pipeline: MakePipeline,
                         tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "new" / "folder"
    monkeypatch.setenv("WEBNN_VK_DUMP_SPIRV", str(folder))
    driver = open_driver(physical)
    pipeline(driver, 1)
    pipeline(driver, 2)
    driver.close()
    name = hashlib.sha256(spirv).hexdigest() + ".spv"
    assert [path.name for path in folder.iterdir()] == [name]
    assert (folder / name).read_bytes() == spirv


def test_features_are_enabled_as_the_profile_says(physical: PhysicalDevice) -> None:
    profile = physical.profile.masked(["float16", "int8", "int64"])
    driver = open_driver(physical, profile=profile)
    assert driver.profile is profile
    driver.close()


def test_mask_in_the_environment(physical: PhysicalDevice,
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBNN_VK_MASK", "int64,int8")
    driver = open_driver(physical)
    assert not {"int64", "int8"} & driver.profile.features
    assert driver.profile == physical.profile.masked(["int64", "int8"])
    driver.close()


def test_unusable_device(physical: PhysicalDevice) -> None:
    old = PhysicalDevice(0, physical.profile, "driver too old: Vulkan 1.1, 1.2 is needed", None, 0,
                         frozenset())
    with pytest.raises(VulkanUnavailable, match="driver too old: Vulkan 1.1, 1.2 is needed"):
        open_driver(old)


def test_closed(physical: PhysicalDevice) -> None:
    driver = open_driver(physical)
    allocation = driver.allocate(100)
    recording = driver.record([FillCommand(allocation, 0, 100)])
    semaphore = driver.sharing.semaphore()
    driver.close()
    driver.close()
    for call in (lambda: driver.allocate(1), lambda: driver.record([]), driver.completed,
                 lambda: driver.submit([recording]), driver.sharing.semaphore, semaphore.value,
                 lambda: semaphore.signal(1), lambda: semaphore.wait(1),
                 lambda: driver.pipelines([])):
        with pytest.raises(DriverClosed):
            call()
    recording.free()
    semaphore.close()
    allocation.free()
    assert driver.memory_in_use().allocations == 0


def test_collected_without_close(physical: PhysicalDevice, pipeline: MakePipeline) -> None:
    driver = open_driver(physical)
    pipeline(driver)
    data = driver.allocate(256, host=True)
    driver.wait(driver.submit([driver.record([FillCommand(data, 0, 256, 9)])]))
    del driver
    gc.collect()
    # The allocation keeps the device, whose memory it maps.
    assert data.mapped is None or words(data)[0] == 9
    del data
    gc.collect()
    # The layer would report objects that were not destroyed.
    assert drain_validation_messages() == []


def test_failed_calls_name_the_result() -> None:
    with pytest.raises(VulkanError, match="something: VK_ERROR_FORMAT_NOT_SUPPORTED") as caught:
        vk.check(vk.const("VK_ERROR_FORMAT_NOT_SUPPORTED"), "something")
    assert caught.value.result == "VK_ERROR_FORMAT_NOT_SUPPORTED"
    assert vk.check(vk.TIMEOUT, "waiting") == vk.TIMEOUT
    with pytest.raises(OutOfDeviceMemory):
        vk.check(vk.const("VK_ERROR_OUT_OF_DEVICE_MEMORY"), "something")


def _enabled(physical: PhysicalDevice, mask: list[str], monkeypatch) -> tuple[set[str], dict]:
    """The extensions, and the enabled members of feature structs, when a device of a GPU with
    cooperative matrices is created. No such device is really created."""
    extensions: set[str] = set()
    members: dict[str, set[str]] = {}
    kinds = {
        vk.const(f"VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_{stype}_FEATURES{end}"): f"VkPhysicalDevice{c}"
        for stype, end, c in (
            ("VULKAN_1_2", "", "Vulkan12Features"), ("VULKAN_1_3", "", "Vulkan13Features"),
            ("COOPERATIVE_MATRIX", "_KHR", "CooperativeMatrixFeaturesKHR"),
        )
    }

    def refuse(call, parent, info, handle):
        assert handle == "VkDevice"
        names = info.ppEnabledExtensionNames
        extensions.update(vk.text(names[i]) for i in range(info.enabledExtensionCount))
        link = info.pNext
        while link != vk.NULL:
            link = vk.ffi.cast("VkBaseInStructure *", link)
            kind = kinds.get(link.sType)
            if kind:
                struct = vk.ffi.cast(f"{kind} *", link)
                on = {m for m in dir(struct) if m not in ("sType", "pNext") and getattr(struct, m)}
                members[kind.removeprefix("VkPhysicalDevice")] = on
            link = link.pNext
        raise VulkanError("refused", "VK_ERROR_FEATURE_NOT_PRESENT")

    profile = physical.profile.replace(
        features=physical.profile.features | {"cooperative_matrix", "subgroup_size_control"})
    monkeypatch.setattr(vk, "create", refuse)
    with pytest.raises(VulkanError, match="refused"):
        open_driver(replace(physical, profile=profile), profile=profile.masked(mask))
    monkeypatch.undo()
    return extensions, members


def test_cooperative_matrices_are_switched_on_with_what_they_need(
        physical: PhysicalDevice, monkeypatch) -> None:
    extensions, members = _enabled(physical, [], monkeypatch)
    assert "VK_KHR_cooperative_matrix" in extensions
    assert members["CooperativeMatrixFeaturesKHR"] == {"cooperativeMatrix"}
    assert members["Vulkan12Features"] >= {
        "vulkanMemoryModel", "vulkanMemoryModelDeviceScope", "shaderFloat16"}
    assert members["Vulkan13Features"] >= {"subgroupSizeControl", "computeFullSubgroups"}
    extensions, members = _enabled(physical, ["cooperative_matrix", "subgroup"], monkeypatch)
    assert "VK_KHR_cooperative_matrix" not in extensions
    assert "CooperativeMatrixFeaturesKHR" not in members
    assert not members["Vulkan13Features"] & {"subgroupSizeControl", "computeFullSubgroups"}
