"""Query pools: slots for times that recordings write and resolve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webnn_vk.driver.commands import ResolveCommand
from webnn_vk.driver.vulkan import binding as vk


def new_pool(device: Any, count: int) -> Any:
    """A query pool for times."""
    info = vk.struct("VkQueryPoolCreateInfo", "QUERY_POOL_CREATE_INFO",
                     queryType=vk.const("VK_QUERY_TYPE_TIMESTAMP"), queryCount=count)
    return vk.create(vk.lib.vkCreateQueryPool, device, info, "VkQueryPool")


class NativeQueries:
    """A query pool. Destroyed when nothing refers to it any more: recordings hold it as long as
    they may be in flight."""

    __slots__ = ("_device", "handle", "last_value")

    def __init__(self, device: Any, count: int) -> None:
        self._device = device
        self.handle = new_pool(device, count)
        self.last_value = 0  # of what is to be waited for: nothing

    def destroy(self) -> None:
        """Destroys the pool, which no recording uses."""
        vk.lib.vkDestroyQueryPool(self._device, self.handle, vk.NULL)


class VulkanQueries:
    """See `driver.resources.Queries`."""

    __slots__ = ("_retire", "count", "native")

    def __init__(self, native: NativeQueries, count: int,
                 retire: Callable[[NativeQueries], None]) -> None:
        self.native, self.count, self._retire = native, count, retire

    @property
    def handle(self) -> Any:
        """The VkQueryPool."""
        return self.native.handle

    def __del__(self) -> None:
        self._retire(self.native)


def resolve(buffer: Any, command: ResolveCommand, barrier: Callable[[], None]) -> None:
    """Records the copying of times.

    Without waiting for slots, since one that nothing wrote would be waited for for ever: such a
    slot's bytes stay 0. Writing a slot and copying it are ordered as commands of one query.
    """
    target, size = command.destination, 8 * command.count
    at = target.offset + command.offset
    vk.lib.vkCmdFillBuffer(buffer, target.buffer, at, size, 0)
    barrier()
    vk.lib.vkCmdCopyQueryPoolResults(
        buffer, command.queries.handle, command.first, command.count, target.buffer, at, 8,
        vk.const("VK_QUERY_RESULT_64_BIT"))
