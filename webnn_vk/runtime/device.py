"""What a timeline needs of a device: memory, executables, and running batches of work."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..profile import DeviceProfile
from ..program import Program

if TYPE_CHECKING:
    from .work import Work

_serials = itertools.count(1)


class Storage:
    """A tensor's memory. Python's references are its lifetime: tensors, queued work, work in
    flight and graphs that use it hold it, and the memory is given back after the last of them.

    ``error`` is what the last work on it failed with; reading it raises that.
    """

    __slots__ = ("__weakref__", "_recycle", "backing", "error", "serial", "size")

    def __init__(self, size: int, backing: Any, recycle: Callable[[tuple[int, Any]], None]) -> None:
        self.size = size
        self.backing = backing
        self.serial = next(_serials)
        self.error: Exception | None = None
        self._recycle = recycle

    def __del__(self) -> None:
        # Only an append to a deque: this may run anywhere, even inside the allocator.
        self._recycle((self.serial, self.backing))


class Executable(Protocol):
    """A program ready to run on one device."""

    program: Program
    #: Work that has to run before the first dispatch (uploads of constants).
    uploads: list[Work]
    #: Seconds by stage.
    build_seconds: dict[str, float]
    #: Floating-point operations of one dispatch.
    flops: int


@dataclass
class Batch:
    """Work that was started together: ``value`` marks its end on the device's timeline (None when
    it is over already), ``completions`` run then, ``works`` keeps its memory alive until then."""

    works: Sequence[Work]
    value: int | None = None
    completions: list[Callable[[], Any]] = field(default_factory=list)


class DeviceLostError(Exception):
    """The device is gone and everything on it; the message says why."""


class Device(Protocol):
    """The CPU or a Vulkan device, as the timeline and the context see it."""

    #: None for the CPU.
    profile: DeviceProfile | None
    name: str

    @property
    def max_tensor_byte_length(self) -> int: ...

    def create_storage(self, size: int) -> Storage:
        """Memory for ``size`` bytes, contents undefined; MemoryError when there is none."""

    def stage(self, data: np.ndarray) -> Any:
        """Transfer memory holding a copy of ``data``, or None when copying it is cheaper later."""

    def load(self, program: Program) -> Executable:
        """Make everything a program needs (slow: shaders, pipelines, memory)."""

    def execute(self, works: Sequence[Work]) -> Batch:
        """Start work, in order; DeviceLostError when the device is lost. What concerns one work
        alone goes to ``work.fail``."""

    def wait(self, batch: Batch) -> None:
        """Block until the batch is over; DeviceLostError when it never will be."""

    def memory_in_use(self) -> int:
        """Bytes of tensors, weights and intermediates."""

    def close(self) -> None:
        """Release everything; what is in flight ends first."""


def poisoned(inputs: Mapping[str, Storage]) -> Exception | None:
    """The error of the first input whose contents are the result of failed work."""
    return next((s.error for s in inputs.values() if s.error is not None), None)
