"""Query pools: slots for times that recordings write and resolve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan.deferred import Handle, Native
from webnn_vk.driver.vulkan.memory import VulkanAllocation


def new_pool(device: Any, count: int) -> Any:
    """A query pool for times."""
    info = vk.struct("VkQueryPoolCreateInfo", "QUERY_POOL_CREATE_INFO",
                     queryType=vk.const("VK_QUERY_TYPE_TIMESTAMP"), queryCount=count)
    return vk.create(vk.lib.vkCreateQueryPool, device, info, "VkQueryPool")


class NativeQueries(Native):
    """A query pool. No submission refers to it by itself: recordings hold its handle."""

    __slots__ = ("_device", "handle")

    def __init__(self, device: Any, count: int) -> None:
        super().__init__()
        self._device = device
        self.handle = new_pool(device, count)

    def destroy(self) -> None:
        """Destroys the pool."""
        vk.lib.vkDestroyQueryPool(self._device, self.handle, vk.NULL)


class VulkanQueries(Handle[NativeQueries]):
    """See `driver.resources.Queries`. Recordings that use it hold it. `handle`: the VkQueryPool.

    `times` has the slots' times as recordings left them, 0 for slots that nothing has written. A
    slot of the pool can't be read where nothing has written it, as waiting for it would never end.
    And without waiting, copying a slot is not ordered behind writing it (the specification of
    vkCmdCopyQueryPoolResults excludes writes from the first synchronization scope). So a recording
    that writes slots copies them into `times` itself, waiting for them.
    """

    __slots__ = ("count", "handle", "times")

    def __init__(self, native: NativeQueries, retire: Callable[[Any], None], count: int,
                 times: VulkanAllocation) -> None:
        super().__init__(native, retire)
        self.handle, self.count, self.times = native.handle, count, times


class WrittenSlots:
    """The slots that a recording has written and not yet copied into `VulkanQueries.times`."""

    def __init__(self) -> None:
        self._slots: dict[VulkanQueries, set[int]] = {}

    def write(self, buffer: Any, stage: int, queries: VulkanQueries, slot: int) -> None:
        """Records the writing of a slot."""
        vk.lib.vkCmdResetQueryPool(buffer, queries.handle, slot, 1)
        vk.lib.vkCmdWriteTimestamp(buffer, stage, queries.handle, slot)
        self._slots.setdefault(queries, set()).add(slot)

    def copy(self, buffer: Any, barrier: Callable[[], None],
             of: VulkanQueries | None = None) -> None:
        """Records the copying of the slots (``of``: only of these queries), between barriers."""
        chosen = [queries for queries in self._slots if of in (None, queries)]
        if not chosen:
            return
        barrier()
        flags = vk.const("VK_QUERY_RESULT_64_BIT") | vk.const("VK_QUERY_RESULT_WAIT_BIT")
        for queries in chosen:
            times = queries.times
            for slot in sorted(self._slots.pop(queries)):
                vk.lib.vkCmdCopyQueryPoolResults(buffer, queries.handle, slot, 1, times.buffer,
                                                 times.offset + 8 * slot, 8, flags)
        barrier()
