"""What a timeline needs of a device: memory, executables, and running batches of work."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..device_profile import DeviceProfile
from ..program import Constants, Program

if TYPE_CHECKING:
    from .work import Order, Work

_serials = itertools.count(1)


class Storage:
    """A tensor's memory. Python's references are its lifetime: tensors, queued work, work in
    flight and graphs that use it hold it, and the memory is given back after the last of them.

    ``error`` is what the last work on it failed with; reading it raises that.
    """

    __slots__ = ("__weakref__", "_recycle", "backing", "error", "serial", "size")

    # ``backing`` is None until an ``Allocate`` of the timeline has found the memory.
    def __init__(self, size: int, backing: Any, recycle: Callable[[tuple[int, Any]], None]) -> None:
        self.size = size
        self.backing = backing
        self.serial = next(_serials)
        self.error: Exception | None = None
        self._recycle = recycle

    def release(self) -> None:
        """Give the memory back before the last reference goes. No work to come may use it."""
        backing, self.backing = self.backing, None
        if backing is not None:
            self._recycle((self.serial, backing))

    def __del__(self) -> None:
        # Only an append to a deque: this may run anywhere, even inside the allocator.
        if self.backing is not None:
            self._recycle((self.serial, self.backing))


class Executable(Protocol):
    """A program on one device, ready to run once it is set up."""

    program: Program
    #: Seconds by stage.
    build_seconds: dict[str, float]
    #: Floating-point operations of one dispatch.
    flops: int

    def set_up(self, order: Order, *after: Work) -> None:
        """Queue, on ``order``, the work that has to be over before the first dispatch (constants
        uploaded and packed), and ``after`` behind it. To be called once; from then on the constants
        that the device holds are nowhere else in the library."""

    def setup_error(self) -> Exception | None:
        """What the set-up failed with, once it is over."""


@dataclass
class Batch:
    """Work that was started together: ``value`` marks its end on the device's timeline (None when
    it is over already), ``completions`` run then, in order and each with the work that it belongs
    to, ``works`` keeps its memory alive until then."""

    works: Sequence[Work]
    value: int | None = None
    completions: deque[tuple[Work | None, Callable[[], Any]]] = field(default_factory=deque)

    def complete(self) -> None:
        """Run the completions; what one of them raises fails its work alone."""
        while self.completions:
            # Popped, so that none of them is kept alive until the next batch.
            work, function = self.completions.popleft()
            try:
                function()
            except Exception as error:
                if work is not None:
                    work.fail(error)


class DeviceLostError(Exception):
    """The device is gone and everything on it; the message says why."""


class Device(Protocol):
    """The CPU or a Vulkan device, as the timeline and the context see it."""

    #: None for the CPU.
    profile: DeviceProfile | None
    name: str
    #: Set by the timeline: waits, within ``execute``, until the batches before are over.
    settle: Callable[[], None]

    @property
    def max_tensor_byte_length(self) -> int: ...

    def create_storage(self, size: int, *, exportable: bool = False) -> Storage:
        """Memory for ``size`` bytes, contents undefined. MemoryError when there is none,
        DeviceLostError, or the DOMException that says why not."""

    def promise_storage(self, size: int) -> Storage:
        """A storage whose memory an ``Allocate`` will find."""

    def import_storage(self, data: np.ndarray) -> Storage:
        """A storage over host memory, in place, which it keeps. NotSupportedError where the device
        can't; DeviceLostError."""

    def stage(self, data: np.ndarray) -> Any:
        """Transfer memory holding a copy of ``data``, or None when copying it is cheaper later."""

    def load(self, program: Program, constants: Constants) -> Executable:
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


def poisoned(inputs: Iterable[Storage]) -> Exception | None:
    """The error of the first input whose contents are the result of failed work."""
    return next((again(s.error) for s in inputs if s.error is not None), None)


def again(error: Exception) -> Exception:
    """The same error for one more to raise: raising one object in many places ties them together
    through its traceback."""
    fresh = type(error)(*error.args)
    fresh.__cause__ = error.__cause__
    return fresh
