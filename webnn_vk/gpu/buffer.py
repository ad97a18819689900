"""``GPUBuffer``: memory of a ``GPUDevice``, or a tensor's memory lent to it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from webnn_vk.runtime import Storage
from webnn_vk.support import background
from webnn_vk.support.errors import InvalidStateError, sanitize
from webnn_vk.support.mixins import OneOfAKind, PublicDir, html_table

from .device_state import DeviceState
from .flags import GPUBufferUsage
from .label import shown


class GPUBuffer(PublicDir, OneOfAKind):
    """Made by ``device.create_buffer``, ``context.export_to_gpu`` or
    ``device.import_external_buffer``. ``size`` is in bytes. The memory is freed once the buffer is
    destroyed or collected and no work uses it."""

    def __init__(
        self,
        device: DeviceState,
        storage: Storage,
        usage: GPUBufferUsage,
        label: str = "",
        returned: Callable[[GPUBuffer], None] | None = None,
    ) -> None:
        self._device = device
        # A list, because ``pop`` removes the storage in one atomic step.
        self._memory = [storage]
        self._returned = returned
        self._size = storage.size
        self._usage = usage
        self._label = label

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self._size

    @property
    def usage(self) -> GPUBufferUsage:
        """Its GPUBufferUsage."""
        return self._usage

    @property
    def label(self) -> str:
        """The name given to it."""
        return self._label

    def destroy(self) -> None:
        """Release the buffer, at once. A tensor gets its memory back, with the contents. Submitted
        work completes. A second call does nothing. Raises InvalidStateError in a forked child."""
        self._device.timeline.check_fork()
        returned = self._returned
        if returned is None:
            clear(self)
        else:
            background.run_on_worker(returned, self)
            self._returned = None  # it refers to the memory too

    def __enter__(self) -> GPUBuffer:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._device.timeline.forked:
            self.destroy()

    def __repr__(self) -> str:
        state = "" if self._memory else " destroyed"
        return f"<GPUBuffer{shown(self._label)} {self._size} bytes{state}>"

    def _repr_html_(self) -> str:
        rows = [("label", sanitize(self._label)), ("bytes", self._size),
                ("usage", " | ".join(flag.name or "" for flag in self._usage)),
                ("", "" if self._memory else "destroyed")]
        return html_table([row for row in rows if row[1]], caption="GPUBuffer")


def clear(buffer: GPUBuffer) -> bool:
    """Release a buffer's memory. Returns whether it had any."""
    try:
        buffer._memory.pop()
    except IndexError:
        return False
    return True


def usable(buffer: GPUBuffer, device: DeviceState, needed: GPUBufferUsage, what: str) -> Storage:
    """A buffer's memory. Raises ValueError or InvalidStateError when this use is not allowed."""
    if buffer._device is not device:
        raise ValueError(f"{what}: {buffer!r} belongs to another GPUDevice")
    if needed not in buffer.usage:
        raise ValueError(f"{what}: {buffer!r} was not created with usage {needed.name}")
    return alive(buffer, what)


def alive(buffer: GPUBuffer, what: str) -> Storage:
    """A buffer's memory. Raises InvalidStateError when the buffer was destroyed."""
    try:
        return buffer._memory[0]
    except IndexError:
        raise InvalidStateError(f"{what}: {buffer!r} was destroyed") from None


def integer(value: Any, what: str) -> int:
    """``value`` as an int. Raises TypeError for anything that is not an integer."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{what}: an integer is expected, not {value!r}")
    return operator.index(value)


def check_range(
    buffer: GPUBuffer, offset: int, size: int | None, what: str
) -> tuple[int, int]:
    """``offset`` and ``size`` (None: to the end) in bytes; ValueError unless inside the buffer."""
    if not isinstance(buffer, GPUBuffer):
        raise TypeError(f"{what}: a GPUBuffer is expected, not {type(buffer).__name__}")
    offset = integer(offset, f"{what}: the offset")
    size = buffer.size - offset if size is None else integer(size, f"{what}: the size")
    if offset < 0 or size <= 0 or offset + size > buffer.size:
        raise ValueError(f"{what}: {size} bytes from {offset} on are not inside of {buffer!r}")
    return offset, size
