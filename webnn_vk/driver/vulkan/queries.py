"""Query pools: slots for times that recordings write and resolve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webnn_vk.driver.commands import ResolveCommand
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan.deferred import Handle, Native


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
    """See `driver.resources.Queries`. Recordings that use it hold it. `handle`: the VkQueryPool."""

    __slots__ = ("count", "handle")

    def __init__(self, native: NativeQueries, retire: Callable[[Any], None], count: int) -> None:
        super().__init__(native, retire)
        self.handle, self.count = native.handle, count


def resolve(buffer: Any, command: ResolveCommand, barrier: Callable[[], None]) -> None:
    """Records the copying of times.

    It doesn't wait for slots, because waiting for an unwritten slot would never end: its bytes
    stay 0. Writing a slot and copying it are ordered as commands of one query.
    """
    target, size = command.destination, 8 * command.count
    at = target.offset + command.offset
    vk.lib.vkCmdFillBuffer(buffer, target.buffer, at, size, 0)
    barrier()
    vk.lib.vkCmdCopyQueryPoolResults(
        buffer, command.queries.handle, command.first, command.count, target.buffer, at, 8,
        vk.const("VK_QUERY_RESULT_64_BIT"))
