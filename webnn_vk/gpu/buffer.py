"""``GPUBuffer``: memory of a ``GPUDevice``, or a tensor's memory lent to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webnn_vk.runtime.storage import Storage
from webnn_vk.support import background
from webnn_vk.support.errors import sanitize
from webnn_vk.support.mixins import OneOfAKind, html_table

from .device_state import DeviceState
from .flags import GPUBufferUsage
from .objects import Destroyable, alive, check_kind, clear, integer, own, shown


class GPUBuffer(Destroyable, OneOfAKind):
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
        super().__init__(device, label, storage)
        self._returned = returned
        self._size = storage.size
        self._usage = usage

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self._size

    @property
    def usage(self) -> GPUBufferUsage:
        """Its GPUBufferUsage."""
        return self._usage

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

    def __repr__(self) -> str:
        state = "" if self._contents else " destroyed"
        return f"<GPUBuffer{shown(self._label)} {self._size} bytes{state}>"

    def _repr_html_(self) -> str:
        rows = [("label", sanitize(self._label)), ("bytes", self._size),
                ("usage", " | ".join(flag.name or "" for flag in self._usage)),
                ("", "" if self._contents else "destroyed")]
        return html_table([row for row in rows if row[1]], caption="GPUBuffer")


def part_of(
    buffer: Any,
    offset: Any,
    size: Any,
    device: DeviceState,
    needed: GPUBufferUsage,
    what: str,
) -> tuple[Storage, int, int]:
    """A buffer's memory, with ``offset`` and ``size`` (None: to the end) in bytes. Raises
    TypeError, ValueError or InvalidStateError when this part can't be used so."""
    check_kind(buffer, GPUBuffer, what)
    offset = integer(offset, f"{what}: the offset")
    size = buffer.size - offset if size is None else integer(size, f"{what}: the size")
    if offset < 0 or size <= 0 or offset + size > buffer.size:
        raise ValueError(f"{what}: {size} bytes from {offset} on are not inside of {buffer!r}")
    return usable(buffer, device, needed, what), offset, size


def usable(buffer: Any, device: DeviceState, needed: GPUBufferUsage, what: str) -> Storage:
    """A buffer's memory. Raises TypeError, ValueError or InvalidStateError when this use is not
    allowed."""
    if needed not in own(buffer, GPUBuffer, device, what).usage:
        raise ValueError(f"{what}: {buffer!r} was not created with usage {needed.name}")
    storage: Storage = alive(buffer, what)
    return storage
