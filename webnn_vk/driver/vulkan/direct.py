"""Submits by the calling thread (`driver.direct`): a primary command buffer and the structs of a
submit, made beforehand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from webnn_vk.driver.direct import Turn
from webnn_vk.driver.errors import DeviceLost
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan import instance as process
from webnn_vk.driver.vulkan.deferred import Handle, Native
from webnn_vk.driver.vulkan.recording import (
    VulkanRecording,
    first_barrier,
    last_barrier,
    new_command_buffer,
    put_barrier,
)
from webnn_vk.driver.vulkan.semaphores import SLICE


class NativeSubmit(Native):
    """A primary command buffer that executes recordings, which live as long, and the structs of
    its submit."""

    __slots__ = ("_device", "_keep", "_pool", "_values", "calls")

    def __init__(self, driver: Any, recordings: Sequence[VulkanRecording]) -> None:
        super().__init__()
        self._device = device = driver.handle
        natives = [recording._native for recording in recordings]
        if None in natives:
            raise ValueError("a recording to submit was freed")
        self._pool, buffer = new_command_buffer(device, driver.physical.queue_family, "PRIMARY")
        self._keep: Any = recordings
        try:
            begin = vk.struct("VkCommandBufferBeginInfo", "COMMAND_BUFFER_BEGIN_INFO")
            vk.check(vk.lib.vkBeginCommandBuffer(buffer, begin), "vkBeginCommandBuffer")
            put_barrier(buffer, first_barrier())
            secondaries = vk.new("VkCommandBuffer[]", [n.command_buffer for n in natives])
            vk.lib.vkCmdExecuteCommands(buffer, len(natives), secondaries)
            put_barrier(buffer, last_barrier())
            vk.check(vk.lib.vkEndCommandBuffer(buffer), "vkEndCommandBuffer")
        except BaseException:
            self.destroy()
            raise
        self._values = vk.new("uint64_t[1]")
        values = vk.struct("VkTimelineSemaphoreSubmitInfo", "TIMELINE_SEMAPHORE_SUBMIT_INFO",
                           signalSemaphoreValueCount=1, pSignalSemaphoreValues=self._values)
        buffers = vk.new("VkCommandBuffer[]", [buffer])
        semaphores = vk.new("VkSemaphore[]", [driver._timeline.handle])
        info = vk.struct("VkSubmitInfo", "SUBMIT_INFO", pNext=values, commandBufferCount=1,
                         pCommandBuffers=buffers, signalSemaphoreCount=1,
                         pSignalSemaphores=semaphores)
        self._keep = recordings, values, buffers, semaphores
        #: The submit, as functions of C.
        self.calls: tuple[Callable[[], int]] = (
            partial(vk.lib.vkQueueSubmit, driver._queue, 1, info, vk.NULL),
        )

    def signals(self, value: int) -> None:
        """The next submit signals this value."""
        self._values[0] = self.last_value = value

    def destroy(self) -> None:
        """Destroys the command buffer, and lets go of the recordings."""
        vk.lib.vkDestroyCommandPool(self._device, self._pool, vk.NULL)
        self._keep = None
        self.calls = ()  # type: ignore[assignment]


class VulkanSubmit(Handle[NativeSubmit]):
    """The result of `VulkanDirect.prepare`."""

    __slots__ = ()


class VulkanDirect:
    """See `driver.facets.DirectSubmits` for the methods. `driver`: a `VulkanDriver`, which stays
    open while they run."""

    def __init__(self, driver: Any) -> None:
        self._driver, self._turns, self._timeline = driver, driver._turns, driver._timeline
        self._reached = driver._timeline.value_without_lock
        #: The next direct submit.
        self.turn = driver._turns.next

    def prepare(self, recordings: Sequence[VulkanRecording]) -> VulkanSubmit:
        driver = self._driver
        driver._ready()
        submit: VulkanSubmit = driver._guarded(
            lambda: driver._track(VulkanSubmit, NativeSubmit(driver, recordings)))
        return submit

    def open(self) -> tuple[int, int]:
        driver = self._driver
        with driver._lock:
            driver._close_turns()
            if not driver._closed:
                self._turns.open(driver._submitted)
            return driver._submitted, self._turns.taken

    def close(self) -> tuple[int, int]:
        driver = self._driver
        with driver._lock:
            driver._close_turns()
            return driver._submitted, self._turns.taken

    def submit(self, turn: Turn, prepared: VulkanSubmit) -> bool:
        native = prepared._native
        assert native is not None
        native.signals(turn.value)
        result = turn.take(native.calls)
        if result is None:
            return False
        if result < 0:
            error = self._driver._failed(result, "vkQueueSubmit")
            if isinstance(error, DeviceLost):
                raise error
        return result >= 0

    def completed(self) -> int:
        reached: int = self._reached()
        process.check_validation()
        return reached

    def wait(self, value: int, timeout: float | None = None) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        while self._reached() < value:
            left = SLICE if end is None else min(max(end - time.monotonic(), 0), SLICE)
            if not left:
                return False
            self._timeline.sleep(value, left)
        process.check_validation()
        return True
