"""Submits: the recordings of one, gathered in a primary command buffer, go to the queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan.recording import (
    NativeRecording,
    first_barrier,
    last_barrier,
    new_command_buffer,
    put_barrier,
)
from webnn_vk.driver.vulkan.semaphores import NativeTimeline


class _Primary:
    """A command pool with its one primary command buffer, which executes `natives`, free once
    `last_value` is done."""

    __slots__ = ("buffer", "last_value", "natives", "pool")

    def __init__(self, pool: Any, buffer: Any) -> None:
        self.pool, self.buffer = pool, buffer
        self.last_value = 0
        self.natives: list[NativeRecording] = []


class Submission:
    """Submits to one queue. The structs are built once and filled in for each submit, the primaries
    used again; so one call at a time."""

    def __init__(self, device: Any, queue_family: int, timeline: NativeTimeline) -> None:
        self._device, self._family, self._timeline = device, queue_family, timeline
        # In the order of their submits: the first ends first.
        self._primaries: deque[_Primary] = deque()
        self._done = 0
        self._begin = vk.struct("VkCommandBufferBeginInfo", "COMMAND_BUFFER_BEGIN_INFO")
        self._first, self._last = first_barrier(), last_barrier()
        self._submit = vk.lib.vkQueueSubmit
        self._values = vk.struct("VkTimelineSemaphoreSubmitInfo",
                                 "TIMELINE_SEMAPHORE_SUBMIT_INFO")
        self._info = vk.struct("VkSubmitInfo", "SUBMIT_INFO", pNext=self._values)
        self._stage = vk.const("VK_PIPELINE_STAGE_ALL_COMMANDS_BIT")
        self._primary_out = vk.new("VkCommandBuffer[1]")
        self._info.pCommandBuffers = self._primary_out
        self._reserve(16, 4, 4)

    def submit(self, queue: Any, natives: Sequence[NativeRecording],
               wait: Sequence[tuple[NativeTimeline, int]],
               signal: Sequence[tuple[NativeTimeline, int]], value: int) -> int:
        """Submits recordings in order, after `wait` and before `signal` and the timeline's `value`.
        Returns vkQueueSubmit's VkResult; raises a DriverError if a call before that fails."""
        needed = len(natives), len(wait), len(signal) + 1
        if any(need > have for need, have in zip(needed, self._capacity, strict=True)):
            self._reserve(*(2 * max(pair) for pair in zip(needed, self._capacity, strict=True)))
        for index, (semaphore, awaited) in enumerate(wait):
            self._waits[index], self._wait_values[index] = semaphore.handle, awaited
        self._signal_values[0] = value
        for index, (semaphore, reached) in enumerate(signal, 1):
            self._signals[index], self._signal_values[index] = semaphore.handle, reached
        info, values = self._info, self._values
        info.waitSemaphoreCount = values.waitSemaphoreValueCount = len(wait)
        info.signalSemaphoreCount = values.signalSemaphoreValueCount = len(signal) + 1
        info.commandBufferCount = min(len(natives), 1)
        primary = self._gather(natives) if natives else None
        result = self._submit(queue, 1, info, vk.NULL)
        if primary is not None and result >= 0:
            self._primaries.append(self._primaries.popleft())
            primary.last_value = value
        return result

    def close(self) -> None:
        """Destroys the primaries; nothing is in flight."""
        while self._primaries:
            vk.lib.vkDestroyCommandPool(self._device, self._primaries.popleft().pool, vk.NULL)

    def _gather(self, natives: Sequence[NativeRecording]) -> _Primary:
        """The first primary, which executes the recordings."""
        primary, lib = self._free(), vk.lib
        self._primary_out[0] = buffer = primary.buffer
        if primary.natives == natives:
            return primary
        primary.natives = []
        for index, native in enumerate(natives):
            self._buffers[index] = native.command_buffer
        vk.check(lib.vkResetCommandPool(self._device, primary.pool, 0), "vkResetCommandPool")
        vk.check(lib.vkBeginCommandBuffer(buffer, self._begin), "vkBeginCommandBuffer")
        # Recordings begin with a barrier too, which the validation layer does not count here.
        put_barrier(buffer, self._first)
        lib.vkCmdExecuteCommands(buffer, len(natives), self._buffers)
        put_barrier(buffer, self._last)
        vk.check(lib.vkEndCommandBuffer(buffer), "vkEndCommandBuffer")
        primary.natives = [*natives]
        return primary

    def _free(self) -> _Primary:
        """The first primary, made if the others are in flight."""
        if self._primaries:
            first = self._primaries[0]
            if first.last_value > self._done:
                self._done = self._timeline.value()
            if first.last_value <= self._done:
                return first
        primary = _Primary(*new_command_buffer(self._device, self._family, "PRIMARY"))
        self._primaries.appendleft(primary)
        return primary

    def _reserve(self, buffers: int, waits: int, signals: int) -> None:
        self._capacity = buffers, waits, signals
        self._buffers = vk.new("VkCommandBuffer[]", buffers)
        self._waits = vk.new("VkSemaphore[]", waits)
        self._wait_values = vk.new("uint64_t[]", waits)
        self._stages = vk.new("VkPipelineStageFlags[]", [self._stage] * waits)
        self._signals = vk.new("VkSemaphore[]", signals)
        self._signal_values = vk.new("uint64_t[]", signals)
        self._signals[0] = self._timeline.handle
        info, values = self._info, self._values
        info.pSignalSemaphores = self._signals
        info.pWaitSemaphores, info.pWaitDstStageMask = self._waits, self._stages
        values.pWaitSemaphoreValues = self._wait_values
        values.pSignalSemaphoreValues = self._signal_values
