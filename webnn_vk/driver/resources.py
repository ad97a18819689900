"""Resources that a driver creates: allocations, pipelines, recordings, semaphores."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.host_copy import copy_bytes
from webnn_vk.support.integers import round_up

from .device_profile import DeviceProfile

#: Bytes of a texel, by format; what is bound is a multiple of it.
TEXEL_BYTES = {
    f"{channels}32{letter}": 4 * len(channels)
    for channels in ("r", "rgba") for letter in ("f", "i", "ui")
}
#: What the host does in place with memory that kernels use; "": nothing.
HostAccess = Literal["", "write", "read"]
#: Memory is allocated in multiples of this many bytes.
ALIGNMENT = 256


def room_for(size: int, profile: DeviceProfile) -> int:
    """Bytes to allocate for ``size`` bytes: a multiple of `ALIGNMENT`. On a driver that compiles
    kernels by the sizes of views it is no multiple of 64 KiB, and a texel view covers all of it
    (``runtime/executable.py``), since the driver treats views of such sizes alike.
    """
    size = round_up(size, ALIGNMENT)
    return size + ALIGNMENT if profile.compiles_by_size and not size & 0xFF00 else size


@dataclass(frozen=True)
class PipelineRequest:
    """A compute pipeline to be made of a SPIR-V module.

    binding_count: buffers at bindings 0, 1, … of set 0. push_size: bytes of push constants.
    constants: (id, 4 bytes) per specialisation constant. subgroup_size: required size, 0: any.
    full_subgroups: no invocation of one may be missing, where the device has "subgroup_full"; the
    workgroup's x size is then a multiple of the size.
    texels: (binding, format) of those that are uniform texel buffers, the others being storage
    buffers; for devices with the feature "texel_buffers". `TEXEL_BYTES` has the formats.
    """

    spirv: bytes
    binding_count: int
    push_size: int = 0
    constants: tuple[tuple[int, bytes], ...] = ()
    name: str = ""
    subgroup_size: int = 0
    entry_point: str = "main"
    texels: tuple[tuple[int, str], ...] = ()
    full_subgroups: bool = False


class Pipeline(Protocol):
    """A compiled pipeline, made from `request`."""

    request: PipelineRequest


class Allocation:
    """`size` bytes of device memory. Released by `free` or by garbage collection, once no recording
    uses it.

    `mapped` is a writable memoryview when the host can see the memory, else None; it must not be
    used after `free`. `cached`: whether the host caches it, so that it reads it as fast as other
    memory. `coherent`: whether `flush` and `invalidate` do nothing. `offset`: bytes before it in
    the buffer that is bound.
    """

    __slots__ = ("__weakref__", "_held", "label", "mapped", "size")
    offset: int = 0
    cached: bool = True
    coherent: bool = True

    def __init__(self, held: Any, size: int, mapped: memoryview | None, label: str) -> None:
        self._held, self.size, self.mapped, self.label = held, size, mapped, label

    def __repr__(self) -> str:
        return f"<Allocation {self.label!r} {self.size} bytes{' freed' * self.freed}>"

    @property
    def freed(self) -> bool:
        """Whether `free` was called."""
        return self._held is None

    @property
    def held(self) -> Any:
        """The object that keeps the memory alive; ValueError after `free`."""
        held = self._held
        if held is None:
            raise ValueError(f"{self!r} was freed")
        return held

    def flush(self) -> None:
        """Makes the host's writes through `mapped` visible to the device: they are, if the memory
        is coherent."""

    def invalidate(self) -> None:
        """Makes the device's writes visible in `mapped`: they are, if the memory is coherent."""

    def write(self, data: np.ndarray, offset: int = 0) -> None:
        """Copies flat bytes into `mapped`, for the device to see."""
        copy_bytes(np.frombuffer(self.mapped, np.uint8)[offset : offset + data.nbytes], data)
        self.flush()

    def read(self) -> np.ndarray:
        """The bytes of `mapped`, as the device left them."""
        self.invalidate()
        return np.frombuffer(self.mapped, np.uint8)

    def free(self) -> None:
        """Releases the memory. Calling it again does nothing. Safe in any thread."""
        self._held = None
        self.mapped = None


class Recording(Protocol):
    """Recorded commands that can be submitted any number of times, also while still pending.

    Owns its descriptors and keeps its allocations and pipelines alive. Released by `free` (which
    waits for nothing: the driver keeps what is in flight) or when collected.
    """

    def free(self) -> None:
        """Releases it once its last submission is done. Calling it again does nothing."""


class Queries(Protocol):
    """`count` slots for times, which any recording may write and resolve. Released by garbage
    collection, once no recording uses them."""

    count: int


class Semaphore(Protocol):
    """A timeline semaphore that both host and device can wait for and signal."""

    def value(self) -> int:
        """The current value."""

    def signal(self, value: int) -> None:
        """Sets a value greater than the current one, from the host."""

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Waits until the value is reached; False after `timeout` seconds."""

    def close(self) -> None:
        """Releases it once no submission uses it any more."""


@dataclass(frozen=True)
class MemoryUse:
    """Device and staging memory of one driver, in bytes and numbers."""

    #: bytes in living allocations (each rounded up to the alignment)
    allocated: int
    #: bytes of the blocks that hold them
    reserved: int
    allocations: int
    blocks: int
    #: bytes of `reserved` that are imported memory, used in place
    imported: int = 0


@dataclass(frozen=True)
class ExternalMemory:
    """Device memory as an opaque file descriptor, which its holder owns until it is imported.

    offset, size: the allocation's bytes in it. block_size, memory_type, uuid: what an importing
    Vulkan device has to match (an import into CUDA needs block_size).
    """

    fd: int
    offset: int
    size: int
    block_size: int
    memory_type: int
    uuid: str
