"""Command buffers: plain-data commands are checked, their descriptors written, and recorded.

A recording is a secondary command buffer. `submission.py` gathers a submit's recordings in one
primary, because one primary for each costs more (lavapipe: 43 against 34 µs a dispatch in submits
of 250).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from webnn_vk.driver.checks import check_command, check_within
from webnn_vk.driver.commands import (
    BarrierCommand,
    Command,
    CopyCommand,
    DispatchCommand,
    FillCommand,
    OwnershipCommand,
    ResolveCommand,
    TimestampCommand,
    used_by,
)
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan.deferred import Handle, Native
from webnn_vk.driver.vulkan.descriptors import DescriptorSets
from webnn_vk.driver.vulkan.memory import VulkanAllocation
from webnn_vk.driver.vulkan.queries import VulkanQueries, WrittenSlots, new_pool

_SPARE_POOLS = 32
# A macro that is missing in the package's table of C types.
_QUEUE_FAMILY_EXTERNAL = 0xFFFFFFFE


_WORK = ("COMPUTE_SHADER", "TRANSFER")
_WRITES = ("SHADER_WRITE", "TRANSFER_WRITE")
_READS = ("SHADER_READ", "TRANSFER_READ")


def memory_barrier(source: Sequence[str], source_access: Sequence[str], target: Sequence[str],
                   target_access: Sequence[str]) -> tuple[int, int, Any]:
    """The argument of `put_barrier` for names of pipeline stages and kinds of access."""

    def bits(kind: str, names: Sequence[str]) -> int:
        return sum(vk.const(f"VK_{kind}_{name}_BIT") for name in names)

    memory = vk.struct("VkMemoryBarrier", "MEMORY_BARRIER",
                       srcAccessMask=bits("ACCESS", source_access),
                       dstAccessMask=bits("ACCESS", target_access))
    return bits("PIPELINE_STAGE", source), bits("PIPELINE_STAGE", target), memory


def first_barrier() -> tuple[int, int, Any]:
    """All writes before are visible: the device's, and the host's, which may also come after the
    submit, before the host signals a semaphore that it waits for."""
    return memory_barrier((*_WORK, "HOST"), (*_WRITES, "HOST_WRITE"), _WORK, (*_READS, *_WRITES))


def last_barrier() -> tuple[int, int, Any]:
    """All writes before are visible to the host."""
    return memory_barrier(_WORK, _WRITES, ("HOST",), ("HOST_READ",))


def put_barrier(buffer: Any, barrier: tuple[int, int, Any]) -> None:
    """Records a barrier."""
    source, target, memory = barrier
    vk.lib.vkCmdPipelineBarrier(buffer, source, target, 0, 1, memory, 0, vk.NULL, 0, vk.NULL)


def new_command_buffer(device: Any, queue_family: int, level: str) -> tuple[Any, Any]:
    """A command pool and its one command buffer; `level`: PRIMARY or SECONDARY."""
    info = vk.struct("VkCommandPoolCreateInfo", "COMMAND_POOL_CREATE_INFO",
                     queueFamilyIndex=queue_family)
    pool = vk.create(vk.lib.vkCreateCommandPool, device, info, "VkCommandPool")
    allocate = vk.struct("VkCommandBufferAllocateInfo", "COMMAND_BUFFER_ALLOCATE_INFO",
                         commandPool=pool, commandBufferCount=1,
                         level=vk.const(f"VK_COMMAND_BUFFER_LEVEL_{level}"))
    out = vk.new("VkCommandBuffer *")
    result = vk.lib.vkAllocateCommandBuffers(device, allocate, out)
    if result < 0:
        vk.lib.vkDestroyCommandPool(device, pool, vk.NULL)
        vk.check(result, "vkAllocateCommandBuffers")
    return pool, out[0]


class NativeRecording(Native):
    """The Vulkan objects of a recording, with everything that it uses."""

    __slots__ = ("_recorder", "command_buffer", "command_pool", "descriptors", "keep", "query_pool",
                 "slots")

    def __init__(self, recorder: Recorder, command_pool: Any, command_buffer: Any) -> None:
        super().__init__()
        self._recorder = recorder
        self.command_pool, self.command_buffer = command_pool, command_buffer
        self.descriptors = DescriptorSets(recorder.device)
        self.query_pool: Any = None
        self.slots = 0
        self.keep: tuple[Any, ...] = ()

    def destroy(self) -> None:
        """Destroys all but the command pool, which the recorder uses again."""
        self.descriptors.destroy()
        if self.query_pool is not None:
            vk.lib.vkDestroyQueryPool(self._recorder.device, self.query_pool, vk.NULL)
        self.keep = ()
        self._recorder.give_back(self.command_pool, self.command_buffer)


class VulkanRecording(Handle[NativeRecording]):
    """The result of `Driver.record`: see `driver.resources.Recording`."""

    __slots__ = ()


class Recorder:
    """Records commands for one device and queue family. Thread-safe."""

    def __init__(self, device: Any, profile: DeviceProfile, queue_family: int) -> None:
        self.device, self._profile, self._family = device, profile, queue_family
        self._lock = threading.Lock()
        self._spare: list[tuple[Any, Any]] = []
        self._between = memory_barrier(_WORK, _WRITES, _WORK, (*_READS, *_WRITES))
        self._bottom = vk.const("VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT")
        self._compute = vk.const("VK_SHADER_STAGE_COMPUTE_BIT")
        self._bind_point = vk.const("VK_PIPELINE_BIND_POINT_COMPUTE")
        self._inheritance = vk.struct("VkCommandBufferInheritanceInfo",
                                      "COMMAND_BUFFER_INHERITANCE_INFO")
        self._begin = vk.struct(
            "VkCommandBufferBeginInfo", "COMMAND_BUFFER_BEGIN_INFO",
            flags=vk.const("VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT"),
            pInheritanceInfo=self._inheritance)

    def record(self, commands: Sequence[Command]) -> NativeRecording:
        """Records commands; ValueError when one exceeds its allocation or the device."""
        for command in commands:
            self._check(command)
        return self._record(lambda native: self._fill(native, commands))

    def clear(self, queries: VulkanQueries) -> NativeRecording:
        """Records the reset of all slots and their times."""
        def fill(native: NativeRecording) -> None:
            native.keep = (queries,)
            buffer, times = native.command_buffer, queries.times
            vk.lib.vkCmdResetQueryPool(buffer, queries.handle, 0, queries.count)
            vk.lib.vkCmdFillBuffer(buffer, times.buffer, times.offset, 8 * queries.count, 0)

        return self._record(fill)

    def _record(self, fill: Callable[[NativeRecording], None]) -> NativeRecording:
        native = NativeRecording(self, *self._take_pool())
        buffer = native.command_buffer
        try:
            vk.check(vk.lib.vkBeginCommandBuffer(buffer, self._begin), "vkBeginCommandBuffer")
            fill(native)
            vk.check(vk.lib.vkEndCommandBuffer(buffer), "vkEndCommandBuffer")
        except BaseException:
            native.destroy()
            raise
        return native

    def give_back(self, pool: Any, buffer: Any) -> None:
        """Keeps a command pool for another recording, or destroys it."""
        with self._lock:
            # A pool that can't be reset can't be reused.
            if (len(self._spare) < _SPARE_POOLS
                    and vk.lib.vkResetCommandPool(self.device, pool, 0) >= 0):
                self._spare.append((pool, buffer))
                return
        vk.lib.vkDestroyCommandPool(self.device, pool, vk.NULL)

    def close(self) -> None:
        """Destroys the spare command pools."""
        with self._lock:
            for pool, _ in self._spare:
                vk.lib.vkDestroyCommandPool(self.device, pool, vk.NULL)
            self._spare.clear()

    def _take_pool(self) -> tuple[Any, Any]:
        # A pool per recording: pools may be recorded into by one thread at a time only.
        with self._lock:
            if self._spare:
                return self._spare.pop()
        return new_command_buffer(self.device, self._family, "SECONDARY")

    # -- checks -------------------------------------------------------------------------------
    def _check(self, command: Command) -> None:
        """Checks of the facets' commands, which `driver.checks` doesn't know."""
        match command:
            case TimestampCommand(index, queries):
                if "timestamps" not in self._profile.features:
                    raise ValueError("the device has no timestamps")
                if queries is not None:
                    _check_slots("timestamp", queries, index, 1)
            case ResolveCommand(queries, first, count, destination, offset):
                _check_slots("resolve", queries, first, count)
                check_within("resolve", destination, offset, 8 * count)
                if offset % 8:
                    raise ValueError(f"resolve: offset {offset} is not a multiple of 8")
            case OwnershipCommand(allocation):
                check_within("change of ownership", allocation, 0, allocation.size)
            case _:
                check_command(command, self._profile)

    # -- recording ----------------------------------------------------------------------------
    def _fill(self, native: NativeRecording, commands: Sequence[Command]) -> None:
        native.keep = used_by(commands)
        dispatches = [command for command in commands if isinstance(command, DispatchCommand)]
        sets = native.descriptors.write(dispatches)
        native.slots = 1 + max((command.index for command in commands
                                if isinstance(command, TimestampCommand)
                                and command.queries is None), default=-1)
        buffer, lib = native.command_buffer, vk.lib
        self._barrier(buffer, self._between)
        if native.slots:
            native.query_pool = new_pool(self.device, native.slots)
            lib.vkCmdResetQueryPool(buffer, native.query_pool, 0, native.slots)
        between, written = partial(self._barrier, buffer, self._between), WrittenSlots()
        bound_pipeline = bound = None
        set_out = vk.new("VkDescriptorSet *")
        turn = iter(sets)
        for command in commands:
            match command:
                case DispatchCommand(pipeline, _, push, groups):
                    if pipeline is not bound_pipeline:
                        lib.vkCmdBindPipeline(buffer, self._bind_point, pipeline.handle)
                        bound_pipeline = pipeline
                    descriptors = next(turn)
                    # Sets stay bound between pipelines only when their layouts are the same.
                    if descriptors is not None and bound != (pipeline.layout, descriptors):
                        bound = (pipeline.layout, descriptors)
                        set_out[0] = descriptors
                        lib.vkCmdBindDescriptorSets(buffer, self._bind_point, pipeline.layout, 0,
                                                    1, set_out, 0, vk.NULL)
                    if push:
                        lib.vkCmdPushConstants(buffer, pipeline.layout, self._compute, 0,
                                               len(push), vk.ffi.from_buffer(push))
                    lib.vkCmdDispatch(buffer, *groups)
                case BarrierCommand():
                    between()
                case CopyCommand(source, source_offset, target, target_offset, size):
                    region = vk.new("VkBufferCopy *", (source.offset + source_offset,
                                                       target.offset + target_offset, size))
                    lib.vkCmdCopyBuffer(buffer, source.buffer, target.buffer, 1, region)
                case FillCommand(target, offset, size, value):
                    lib.vkCmdFillBuffer(buffer, target.buffer, target.offset + offset, size,
                                        value)
                case OwnershipCommand(allocation, acquire):
                    self._transfer(buffer, allocation, acquire)
                case TimestampCommand(index, None):
                    lib.vkCmdWriteTimestamp(buffer, self._bottom, native.query_pool, index)
                case TimestampCommand(index, queries):
                    written.write(buffer, self._bottom, queries, index)
                case ResolveCommand(queries, first, count, target, offset):
                    written.copy(buffer, between, queries)
                    times = queries.times
                    region = vk.new("VkBufferCopy *", (times.offset + 8 * first,
                                                       target.offset + offset, 8 * count))
                    lib.vkCmdCopyBuffer(buffer, times.buffer, target.buffer, 1, region)
        written.copy(buffer, between)

    def _barrier(self, buffer: Any, barrier: tuple[int, int, Any]) -> None:
        put_barrier(buffer, barrier)

    def _transfer(self, buffer: Any, allocation: VulkanAllocation, acquire: bool) -> None:
        families = [self._family, _QUEUE_FAMILY_EXTERNAL]
        source, target = reversed(families) if acquire else families
        stages, _, memory = self._between
        barrier = vk.struct(
            "VkBufferMemoryBarrier", "BUFFER_MEMORY_BARRIER",
            srcAccessMask=0 if acquire else memory.srcAccessMask,
            dstAccessMask=memory.dstAccessMask if acquire else 0,
            srcQueueFamilyIndex=source, dstQueueFamilyIndex=target, buffer=allocation.buffer,
            offset=allocation.offset, size=allocation.size)
        vk.lib.vkCmdPipelineBarrier(buffer, stages, stages, 0, 0, vk.NULL, 1, barrier, 0, vk.NULL)


def _check_slots(what: str, queries: VulkanQueries, first: int, count: int) -> None:
    if not 0 <= first < first + count <= queries.count:
        raise ValueError(f"{what}: {count} slots from {first} on; there are {queries.count}")


