"""Bind groups, encoders and command buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webnn_vk.driver import CopyCommand, DispatchCommand, FillCommand, Recording
from webnn_vk.runtime.work import Submit
from webnn_vk.support import background
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import InvalidStateError
from webnn_vk.support.integers import padded
from webnn_vk.support.mixins import OneOfAKind, PublicDir

from .buffer import GPUBuffer, part_of, usable
from .device_state import DeviceState
from .flags import GPUBufferUsage
from .objects import GPUObject, alive, integer, named, own, shown
from .query import (
    RESOLVE_ALIGNMENT,
    GPUComputePassTimestampWrites,
    GPUQuerySet,
    PassWrites,
    check_slots,
    resolution,
)
from .recorded import Recorded, Step, append, step_of
from .shader import GPUComputePipeline


@dataclass(frozen=True)
class GPUBufferBinding:
    """``size`` bytes of a buffer, starting at ``offset`` (None: to the end)."""

    buffer: GPUBuffer
    offset: int = 0
    size: int | None = None


class GPUBindGroup(GPUObject):
    """Buffers by binding number; made by ``device.create_bind_group``."""

    def __init__(self, device: DeviceState, entries: Any, label: str) -> None:
        what = named("create_bind_group", label)
        super().__init__(device, label)
        self._bound: dict[int, tuple[GPUBuffer, int, int]] = {}
        for binding, resource in _entries(entries, what):
            where = f"{what}, binding {binding}"
            if binding in self._bound:
                raise ValueError(f"{where} is given twice")
            self._bound[binding] = _bound(device, resource, where)

    def __repr__(self) -> str:
        return f"<GPUBindGroup{shown(self._label)} bindings {sorted(self._bound)}>"


def _entries(entries: Any, what: str) -> list[tuple[int, Any]]:
    """(binding, resource) of wgpu's entries, or of resources in the order of their bindings."""
    pairs = []
    for i, entry in enumerate(entries):
        if isinstance(entry, Mapping) and "binding" in entry and "resource" in entry:
            binding = integer(entry["binding"], f"{what}: a binding")
            pairs.append((binding, entry["resource"]))
        else:
            pairs.append((i, entry))
    return pairs


def _bound(device: DeviceState, resource: Any, where: str) -> tuple[GPUBuffer, int, int]:
    if isinstance(resource, GPUBuffer):
        resource = GPUBufferBinding(resource)
    elif isinstance(resource, Mapping) and set(resource) <= {"buffer", "offset", "size"}:
        resource = GPUBufferBinding(**resource)
    if not isinstance(resource, GPUBufferBinding) or not isinstance(resource.buffer, GPUBuffer):
        raise TypeError(
            f"{where}: a GPUBuffer, GPUBufferBinding or a mapping with buffer, offset and size is "
            f"expected, not {resource!r}"
        )
    buffer = resource.buffer
    usage = GPUBufferUsage.STORAGE
    _, offset, size = part_of(buffer, resource.offset, resource.size, device, usage, where)
    step = device.device.profile.min_storage_buffer_offset_alignment
    if offset % step:
        raise ValueError(f"{where}: offset {offset} is not a multiple of {step}")
    if offset + size == buffer.size:
        # A shader's array of words reaches the last bytes too.
        size = -(-size // 4) * 4
    return buffer, offset, size


class GPUCommandEncoder(GPUObject, OneOfAKind):
    """Records commands; ``finish()`` turns them into a command buffer. Each command sees the
    results of the commands before it. A signal handler may record too: its commands come before the
    one that it interrupts."""

    def __init__(self, device: DeviceState, label: str) -> None:
        super().__init__(device, label)
        # The recorded commands. Each is added in one step or not at all.
        self._log: list[Step | GPUComputePass] = []
        self._finished = False

    def begin_compute_pass(
        self, *, label: str = "", timestamp_writes: GPUComputePassTimestampWrites | None = None
    ) -> GPUComputePass:
        """Begin a pass that records dispatches. Returns at once. The encoder takes no other command
        until the pass's ``end()``.

        ``timestamp_writes``: a mapping with ``query_set`` and one or both of
        ``beginning_of_pass_write_index`` (the slot for the time when all work before the pass is
        done) and ``end_of_pass_write_index`` (the slot for the time when the pass is done). Raises
        TypeError or ValueError for an invalid mapping, InvalidStateError for a destroyed set or an
        encoder that is not open."""
        what = named("begin_compute_pass", label)
        self._check(what)
        writes = None
        if timestamp_writes is not None:
            writes = PassWrites(self._device, timestamp_writes, what)
        begun = GPUComputePass(self, label, writes)
        self._check(what)
        self._log.append(begun)
        return begun

    def resolve_query_set(
        self,
        query_set: GPUQuerySet,
        first_query: int,
        query_count: int,
        destination: GPUBuffer,
        destination_offset: int,
    ) -> None:
        """Copy times to ``destination`` (usage QUERY_RESOLVE), starting at ``destination_offset``
        bytes, a multiple of 256. Each time is a ``uint64`` of nanoseconds since a moment that the
        device chooses; an unwritten slot gives 0. Recorded at once. Raises TypeError or ValueError
        for invalid arguments, InvalidStateError for a destroyed set or buffer."""
        what = "resolve_query_set"
        self._check(what)
        alive(own(query_set, GPUQuerySet, self._device, what), what)
        first, count = check_slots(query_set, first_query, query_count, what)
        offset = integer(destination_offset, f"{what}: destination_offset")
        if offset % RESOLVE_ALIGNMENT:
            raise ValueError(f"{what}: offset {offset} is not a multiple of {RESOLVE_ALIGNMENT}")
        usage = GPUBufferUsage.QUERY_RESOLVE
        if not count:
            usable(destination, self._device, usage, what)
            return
        storage, _, _ = part_of(destination, offset, 8 * count, self._device, usage, what)
        uses = {destination: (8 * count < destination.size, True)}
        self._record(what, *[
            step_of(command, uses, query_set)
            for command in resolution(query_set, first, count, storage, offset)
        ])

    def copy_buffer_to_buffer(
        self,
        source: GPUBuffer,
        source_offset: int,
        destination: GPUBuffer,
        destination_offset: int,
        size: int | None = None,
    ) -> None:
        """Copy ``size`` bytes (None: the rest of ``source``) between two different buffers, which
        need usage COPY_SRC and COPY_DST. Recorded at once. Raises TypeError or ValueError for
        invalid arguments, InvalidStateError for a destroyed buffer or an encoder that is not
        open."""
        what = "copy_buffer_to_buffer"
        self._check(what)
        device, usage = self._device, GPUBufferUsage
        a, source_offset, size = part_of(
            source, source_offset, size, device, usage.COPY_SRC, what)
        b, destination_offset, _ = part_of(
            destination, destination_offset, size, device, usage.COPY_DST, what)
        if source is destination:
            raise ValueError(f"{what}: source and destination are the same {source!r}")
        command = CopyCommand(a.backing, source_offset, b.backing, destination_offset, size)
        uses = {source: (True, False), destination: (size < b.size, True)}
        self._record(what, step_of(command, uses))

    def clear_buffer(self, buffer: GPUBuffer, offset: int = 0, size: int | None = None) -> None:
        """Zero ``size`` bytes (None: to the end) from ``offset``. Both are multiples of 4, unless
        the range ends with the buffer. The buffer needs usage COPY_DST. Recorded at once. Raises
        TypeError or ValueError for invalid arguments, InvalidStateError for a destroyed buffer or
        an encoder that is not open."""
        what = "clear_buffer"
        self._check(what)
        usage = GPUBufferUsage.COPY_DST
        storage, offset, size = part_of(buffer, offset, size, self._device, usage, what)
        whole = size == buffer.size
        if offset + size == buffer.size:
            size = padded(buffer.size) - offset
        if offset % 4 or size % 4:
            raise ValueError(f"clear_buffer: offset {offset}, size {size}: not multiples of 4")
        command = FillCommand(storage.backing, offset, size)
        self._record(what, step_of(command, {buffer: (not whole, True)}))

    def finish(self, *, label: str = "") -> GPUCommandBuffer:
        """End the encoder and return its commands as a command buffer, at once. Raises
        InvalidStateError while a pass is open, for a finished encoder, a destroyed buffer or a lost
        device; OperationError when the driver fails."""
        return background.run_on_worker(self._finish, label)

    def _finish(self, label: str) -> GPUCommandBuffer:
        self._check("finish")
        self._finished = True
        recorded = Recorded()
        for entry in self._log:
            if isinstance(entry, GPUComputePass):
                recorded.add_pass(entry._log, entry._writes)
            else:
                recorded.add(entry)
        with self._device.translated("finish"):
            recording = self._device.device.driver.record(recorded.commands)
        return GPUCommandBuffer(self._device, recording, recorded, label or self._label)

    def __repr__(self) -> str:
        state = " finished" if self._finished else ""
        return f"<GPUCommandEncoder{shown(self._label)}{state}>"

    def _check(self, what: str) -> None:
        self._device.check(what)
        if self._finished:
            raise InvalidStateError(f"{what}: the encoder is finished")
        if self._log and isinstance(last := self._log[-1], GPUComputePass) and _is_open(last):
            raise InvalidStateError(f"{what}: a compute pass is open; end() it first")

    def _record(self, what: str, *steps: Step) -> None:
        append(self._log, steps, lambda: self._check(what))


@dataclass(eq=False, frozen=True)
class _Set:
    """The pipeline of one call of ``set_pipeline``."""

    pipeline: GPUComputePipeline | None


class GPUComputePass(PublicDir):
    """Dispatches, each with the pipeline, bind group and push constants set before it."""

    def __init__(
        self, encoder: GPUCommandEncoder, label: str, writes: PassWrites | None
    ) -> None:
        self._device = encoder._device
        self._encoder = encoder
        self._label = label
        self._writes = writes
        self._log: list[Step] = []
        self._ended = False
        # Each is replaced in one step.
        self._pipeline = _Set(None)
        self._group: GPUBindGroup | None = None
        self._push: tuple[_Set | None, bytes] = None, b""

    def set_pipeline(self, pipeline: GPUComputePipeline) -> None:
        """Set the pipeline of the dispatches that follow, and forget the push constants. Returns at
        once. Raises TypeError for anything but a GPUComputePipeline, ValueError for a pipeline of
        another device, InvalidStateError when the pass has ended."""
        self._check("set_pipeline")
        self._pipeline = _Set(own(pipeline, GPUComputePipeline, self._device, "set_pipeline"))

    def set_bind_group(self, index: int, bind_group: GPUBindGroup) -> None:
        """Set the buffers of the dispatches that follow; ``index`` must be 0. Returns at once.
        Raises TypeError for anything but a GPUBindGroup, ValueError for another index or device,
        InvalidStateError when the pass has ended."""
        self._check("set_bind_group")
        own(bind_group, GPUBindGroup, self._device, "set_bind_group")
        if index != 0:
            raise ValueError(f"set_bind_group: group {index!r}; there is group 0 only")
        self._group = bind_group

    def set_push_constants(self, data: Any) -> None:
        """Set the whole push-constant block: bytes, or a mapping name → value for a module made
        from a KernelSpec. Returns at once. Raises TypeError for anything else, ValueError for
        another length, InvalidStateError when no pipeline is set or the pass has ended."""
        self._check("set_push_constants")
        current = self._pipeline
        pipeline = _needed(current)
        spec = pipeline._module.spec
        if isinstance(data, Mapping) and spec is not None:
            data = spec.pack_params(data)
        try:
            data = bytes(memoryview(data).cast("B"))
        except TypeError:
            raise TypeError(
                f"set_push_constants: bytes are expected, not {type(data).__name__}"
            ) from None
        wanted = pipeline._native.request.push_size
        if len(data) != wanted:
            raise ValueError(f"set_push_constants: {len(data)} bytes, {pipeline!r} has {wanted}")
        self._push = current, data

    def dispatch_workgroups(self, x: int, y: int = 1, z: int = 1) -> None:
        """Run the pipeline over x·y·z workgroups. Recorded at once. Raises TypeError unless they
        are integers; ValueError for more workgroups than the device runs, for a missing or too
        large buffer, for overlapping ranges of which one is written, and when the shader's push
        constants are not set; InvalidStateError without a pipeline, for a destroyed buffer or when
        the pass has ended."""
        self._check("dispatch_workgroups")
        current, group, (pushed_for, push) = self._pipeline, self._group, self._push
        pipeline = _needed(current)
        request = pipeline._native.request
        if pushed_for is not current:
            push = b""
        if request.push_size and not push:
            raise ValueError(f"dispatch_workgroups: {pipeline!r} needs set_push_constants first")
        groups = tuple(integer(n, "dispatch_workgroups") for n in (x, y, z))
        most = self._device.device.profile.max_workgroup_count
        if not all(0 <= n <= m for n, m in zip(groups, most, strict=True)):
            raise ValueError(f"dispatch_workgroups: {groups}; 0 to {most} are possible")
        bindings, uses = self._bindings(pipeline, group)
        step = step_of(DispatchCommand(pipeline._native, bindings, push, groups), uses)
        append(self._log, [step], lambda: self._check("dispatch_workgroups"))

    def end(self) -> None:
        """End the pass, at once; the encoder takes other commands again. Raises InvalidStateError
        when the pass has already ended."""
        self._check("end")
        self._ended = True

    def __enter__(self) -> GPUComputePass:
        return self

    def __exit__(self, *_: object) -> None:
        if _is_open(self):
            self.end()

    def __repr__(self) -> str:
        state = "" if _is_open(self) else " ended"
        return f"<GPUComputePass{shown(self._label)}{state}>"

    def _check(self, what: str) -> None:
        if not _is_open(self):
            raise InvalidStateError(f"{what}: the compute pass has ended")
        self._device.check(what)

    def _bindings(
        self, pipeline: GPUComputePipeline, group: GPUBindGroup | None
    ) -> tuple[tuple[Any, ...], dict[GPUBuffer, tuple[bool, bool]]]:
        what = "dispatch_workgroups"
        bound = {} if group is None else group._bound
        access = pipeline._module._about.bindings
        if missing := [binding for binding in access if binding not in bound]:
            raise ValueError(f"{what}: nothing is bound at {missing} for {pipeline!r}")
        limit = self._device.device.profile.max_storage_buffer_range
        uses: dict[GPUBuffer, tuple[bool, bool]] = {}
        for binding, how in access.items():
            buffer, _, size = bound[binding]
            if size > limit:
                raise ValueError(f"{what}: binding {binding} has {size} bytes, at most {limit} "
                                 "can be bound")
            reads, writes = uses.get(buffer, (False, False))
            uses[buffer] = reads or "r" in how, writes or "w" in how
        _check_overlaps(bound, access)
        # The pipeline's layout covers gaps in the numbering too, although no shader reads them.
        first = next(iter(access), 0)
        count = pipeline._native.request.binding_count
        places = [bound[i if i in access else first] for i in range(count)]
        return tuple((alive(b, what).backing, at, size) for b, at, size in places), uses


def _is_open(work: GPUComputePass) -> bool:
    return not work._ended and work._encoder._log[-1] is work


def _needed(current: _Set) -> GPUComputePipeline:
    if current.pipeline is None:
        raise InvalidStateError("no pipeline is set")
    return current.pipeline


def _check_overlaps(
    bound: Mapping[int, tuple[GPUBuffer, int, int]], access: Mapping[int, str]
) -> None:
    used = [(*bound[i], i) for i in access]
    for k, (a, a_start, a_size, i) in enumerate(used):
        for b, b_start, b_size, j in used[:k]:
            if a is b and a_start < b_start + b_size and b_start < a_start + a_size and (
                "w" in access[i] or "w" in access[j]
            ):
                raise ValueError(
                    f"dispatch_workgroups: bindings {j} and {i} overlap in {a!r} and one is "
                    "written to"
                )


class GPUCommandBuffer(GPUObject, OneOfAKind):
    """Recorded commands for ``queue.submit``. Unlike WebGPU's it may be submitted again, which
    costs no new recording. It keeps the memory of its buffers."""

    def __init__(
        self, device: DeviceState, recording: Recording, recorded: Recorded, label: str
    ) -> None:
        super().__init__(device, label)
        self._recording = recording
        self._recorded = recorded

    def __repr__(self) -> str:
        return f"<GPUCommandBuffer{shown(self._label)} over {len(self._recorded.buffers)} buffers>"


def work_of(commands: GPUCommandBuffer, device: DeviceState) -> Submit:
    """A command buffer as work for a device's stream. ValueError when it is another device's,
    InvalidStateError when one of its buffers was destroyed."""
    own(commands, GPUCommandBuffer, device, "submit")
    recorded = commands._recorded
    for used in (*recorded.buffers, *recorded.query_sets):
        alive(used, "submit")
    return Submit(
        [commands._recording], reads=tuple(recorded.reads), writes=tuple(recorded.writes),
        keep=commands,
    )
