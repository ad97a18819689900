"""``GPUQueue``: the work of a GPUDevice's timeline."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from webnn_vk.compiler.types.buffers import check_byte_order
from webnn_vk.runtime.mapping import staged_write
from webnn_vk.runtime.stream import Fence
from webnn_vk.runtime.work import Read, Run
from webnn_vk.support.mixins import OneOfAKind, PublicDir
from webnn_vk.support.promise import MLPromise

from .buffer import GPUBuffer, part_of
from .device_state import DeviceState
from .encoder import GPUCommandBuffer, work_of
from .flags import GPUBufferUsage
from .objects import alive, check_kind, integer


class GPUQueue(PublicDir, OneOfAKind):
    """The one queue of a device: everything runs in the order of the calls, together with the work
    of the contexts on the device. Calls return at once."""

    def __init__(self, device: DeviceState) -> None:
        self._device = device

    def submit(self, command_buffers: Iterable[GPUCommandBuffer]) -> Fence:
        """Run command buffers. Returns at once, with a fence after them: ``done``,
        ``wait(timeout)``.

        Raises TypeError for anything but command buffers, ValueError for buffers of another device,
        InvalidStateError for destroyed buffers and query sets and when the device is lost. If they
        read memory that failed work should have written, they don't run, and reading their outputs
        raises that work's error.
        """
        device = self._device
        given = list(command_buffers)
        for item in given:
            check_kind(item, GPUCommandBuffer, "submit")
        device.check("submit")
        device.stream.enqueue(*[work_of(item, device) for item in given])
        return device.stream.fence()

    def write_buffer(
        self,
        buffer: GPUBuffer,
        buffer_offset: int,
        data: Any,
        data_offset: int = 0,
        size: int | None = None,
    ) -> None:
        """Replace bytes of a buffer (usage COPY_DST), starting at ``buffer_offset``. ``data`` is
        any contiguous object with the buffer protocol and is copied before the call returns;
        ``data_offset`` and ``size`` select some of its bytes. The call waits only when the staging
        memory is full. Raises TypeError for other data or buffers; ValueError for an invalid range,
        a buffer of another device or one without the usage; InvalidStateError for a destroyed
        buffer or a lost device."""
        what = "write_buffer"
        view = byte_view(data, what)
        start = integer(data_offset, f"{what}: data_offset")
        length = len(view) - start if size is None else integer(size, f"{what}: the size")
        if start < 0 or length < 0 or start + length > len(view):
            raise ValueError(f"{what}: {length} bytes of {len(view)}, from {start} on")
        if length:
            usage = GPUBufferUsage.COPY_DST
            _, offset, _ = part_of(buffer, buffer_offset, length, self._device, usage, what)
            write_bytes(self._device, buffer, offset, view[start : start + length], what)

    def read_buffer(
        self, buffer: GPUBuffer, buffer_offset: int = 0, size: int | None = None
    ) -> MLPromise[np.ndarray]:
        """Bytes of a buffer (usage COPY_SRC) after all earlier work: a ``uint8`` array, which
        ``.view(dtype)`` shows as another type. Raises as ``write_buffer`` does (TypeError,
        ValueError, InvalidStateError); rejects with the error of the work that should have written
        the bytes."""
        device = self._device
        what, usage = "read_buffer", GPUBufferUsage.COPY_SRC
        promise: MLPromise[np.ndarray] = MLPromise("a uint8 array")
        device.check(what)
        storage, offset, size = part_of(buffer, buffer_offset, size, device, usage, what)
        device.stream.enqueue(Read(storage, promise.resolve, promise.reject, (offset, size)))
        return promise

    def __repr__(self) -> str:
        return f"<GPUQueue of {self._device!r}>"

    def on_submitted_work_done(self) -> MLPromise[None]:
        """Resolves when all work submitted so far is done. Raises InvalidStateError when the device
        is lost; rejects with it when the device is lost before that."""
        promise: MLPromise[None] = MLPromise("None, once work is done")
        self._device.check("on_submitted_work_done")
        self._device.stream.enqueue(Run(partial(promise.resolve, None), promise.reject))
        return promise


def write_bytes(
    device: DeviceState, buffer: GPUBuffer, offset: int, view: np.ndarray, what: str
) -> None:
    """Replace bytes of a buffer from ``offset`` on, in order with other work; ``view`` is copied
    before this returns."""
    device.check(what)
    part = offset, len(view)
    write = staged_write(device.timeline, alive(buffer, what), view, what, part)
    device.check(what)
    alive(buffer, what)
    device.stream.enqueue(write)


def byte_view(data: Any, what: str) -> np.ndarray:
    """Contiguous data as a flat uint8 array; TypeError for anything else."""
    try:
        array = np.asarray(data if isinstance(data, np.ndarray) else memoryview(data))
    except (TypeError, ValueError):
        array = np.array(None)
    if array.dtype.hasobject:
        raise TypeError(f"{what}: a buffer of numbers is expected, not {type(data).__name__}")
    check_byte_order(array, what)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
