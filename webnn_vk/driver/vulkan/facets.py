"""The driver's facets: shared memory and semaphores, and timestamps."""

from __future__ import annotations

from typing import Any

from webnn_vk.driver.errors import FeatureMissing
from webnn_vk.driver.resources import ExternalMemory
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan.memory import VulkanAllocation
from webnn_vk.driver.vulkan.queries import NativeQueries, VulkanQueries
from webnn_vk.driver.vulkan.recording import VulkanRecording
from webnn_vk.driver.vulkan.semaphores import TimelineSemaphore, shareable


class VulkanSharing:
    """See `driver.facets.Sharing` for the methods. `driver`: a `VulkanDriver`."""

    def __init__(self, driver: Any) -> None:
        self._driver, self._profile = driver, driver.profile
        self._ready, self._guarded = driver._ready, driver._guarded
        self._blocks, self._memory = driver._blocks, driver._memory

    def export_memory(self, allocation: VulkanAllocation) -> ExternalMemory:
        self._ready()
        block = allocation.held.block.native
        fd = self._guarded(lambda: self._blocks.export(block))
        return ExternalMemory(fd, allocation.offset, allocation.size, block.size,
                              block.memory_type, self._profile.uuid)

    def import_memory(self, external: ExternalMemory, *, label: str = "") -> VulkanAllocation:
        self._ready()
        visible = "host_visible" in self._profile.memory_types[external.memory_type][1]
        size = external.offset + external.size
        return self._guarded(lambda: self._memory.adopt(
            self._blocks.import_fd(external, size, visible=visible), external.memory_type, size,
            external.offset, label))

    def import_host_memory(self, buffer: Any, *, label: str = "") -> VulkanAllocation:
        self._ready()
        step = self._profile.min_imported_host_pointer_alignment
        if "external_memory_host" not in self._profile.features or not step:
            raise FeatureMissing(f"{self._profile.name} has no VK_EXT_external_memory_host")
        keep = vk.ffi.from_buffer(buffer)
        start = int(vk.ffi.cast("uintptr_t", keep))
        first, last = start - start % step, -(-(start + len(keep)) // step) * step
        allowed = sum(1 << index for index in self._memory.memory_types)

        def adopted() -> VulkanAllocation:
            block = self._blocks.import_pages(first, last - first, allowed, keep)
            return self._memory.adopt(block, block.memory_type, last - first, start - first, label)

        return self._guarded(adopted)

    def semaphore(self, *, exportable: bool = False) -> TimelineSemaphore:
        self._ready()
        if exportable:
            self._need_shareable()
        driver = self._driver
        return self._guarded(
            lambda: driver._track(TimelineSemaphore, driver._new_timeline(exportable)))

    def export_semaphore(self, semaphore: TimelineSemaphore) -> int:
        self._ready()
        fd: int = self._guarded(semaphore.native.export)
        return fd

    def import_semaphore(self, fd: int) -> TimelineSemaphore:
        self._need_shareable()
        semaphore = self.semaphore()
        self._guarded(lambda: semaphore.native.adopt(fd))
        return semaphore

    def _need_shareable(self) -> None:
        if ("external_semaphore_fd" not in self._profile.features
                or not shareable(self._driver.physical.handle)):
            raise FeatureMissing(f"{self._profile.name} has no VK_KHR_external_semaphore_fd for "
                                 "timeline semaphores")


class VulkanTimestamps:
    """See `driver.facets.Timestamps`. `driver`: a `VulkanDriver`."""

    def __init__(self, driver: Any) -> None:
        self._driver, self._profile = driver, driver.profile
        self._ready, self._guarded = driver._ready, driver._guarded

    def queries(self, count: int) -> VulkanQueries:
        self._ready()
        if count < 1:
            raise ValueError(f"{count} slots; at least 1 is needed")
        driver = self._driver
        times = driver.allocate(8 * count)
        made: VulkanQueries = self._guarded(lambda: driver._track(
            VulkanQueries, NativeQueries(driver.handle, count), count, times))
        # Slots have to be reset before anything reads them.
        driver.submit([driver._record(lambda: driver._recorder.clear(made))])
        return made

    def read(self, recording: VulkanRecording) -> list[int]:
        self._ready()
        native = recording._native
        if native is None:
            raise ValueError("the recording was freed")
        if not native.slots:
            return []
        ticks = vk.new("uint64_t[]", native.slots)
        result = self._guarded(lambda: vk.lib.vkGetQueryPoolResults(
            self._driver.handle, native.query_pool, 0, native.slots, 8 * native.slots, ticks, 8,
            vk.const("VK_QUERY_RESULT_64_BIT")))
        if result == vk.NOT_READY:
            raise ValueError("the recording's timestamps aren't there: it is not done yet")
        if result < 0:
            raise self._driver._failed(result, "vkGetQueryPoolResults")
        mask = (1 << self._profile.timestamp_valid_bits) - 1
        return [round((tick & mask) * self._profile.timestamp_period) for tick in ticks]
