"""The timeline's view of a device: memory, executables, and running batches of work."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Any, Protocol

import numpy as np

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.compiler.program import Constants, Planned, Program
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.resources import HostAccess
from webnn_vk.support.dataclass import dataclass

from .observer import BatchObserver, Observer
from .storage import Storage
from .work import Allocate, Executable, Work


@dataclass
class Batch:
    """Work that was started together. ``value`` marks its end on the device's timeline (None if it
    is already over). ``completions`` run then, in order, each with the work that it belongs to;
    ``works`` keeps its memory alive until then. ``failed``: some of it did not run.
    ``observer`` observes it."""

    works: Sequence[Work]
    value: int | None = None
    failed: bool = False
    completions: deque[tuple[Work | None, Callable[[], Any]]] = field(default_factory=deque)
    observer: BatchObserver | None = None

    def refuses(self, work: Work, error: Exception | None) -> bool:
        """Whether there is an error; the work fails with it, and does not run."""
        if error is not None:
            self.failed = True
            work.fail(error)
        return error is not None

    def complete(self) -> None:
        """Run the completions; an exception of one fails only its own work. If one of them forks
        the process, the parent runs the rest."""
        process = os.getpid()
        while self.completions and os.getpid() == process:
            # Popped, so that none is kept alive until the next batch.
            work, function = self.completions.popleft()
            try:
                function()
            except Exception as error:
                if work is not None:
                    work.fail(error)


class Device(Protocol):
    """The CPU or a Vulkan device, as the timeline and the context see it."""

    #: None for the CPU.
    profile: DeviceProfile | None
    name: str
    #: Whether an interrupt may leave ``create_storage`` at any point.
    interruptible: bool
    #: Set by the timeline: waits, within ``execute``, until the previous batches are over.
    wait_idle: Callable[[], None]
    #: Observes the work (used by the profiler); None: no observer.
    observer: Observer | None
    #: The driver's direct submits (``driver.facets``); None if there are none.
    direct: Any

    @property
    def max_tensor_byte_length(self) -> int: ...

    def create_storage(
        self, size: int, *, exportable: bool = False, host_access: HostAccess = "",
        in_place: bool = True,
    ) -> Storage:
        """Memory for ``size`` bytes, with undefined contents. MemoryError if there is none,
        DeviceLostError, or a DOMException with the reason. ``host_access``: what the host does
        before or after each run of a graph, in place or, where that is slower or ``in_place`` is
        False, in a twin."""

    def promise_storage(self, size: int) -> Storage:
        """A storage whose memory an ``Allocate`` will provide."""

    def import_storage(self, data: np.ndarray) -> Storage:
        """A storage over host memory, used in place and kept alive. NotSupportedError if the device
        can't; DeviceLostError."""

    def stage(self, data: np.ndarray) -> Sequence[Any]:
        """Pieces of transfer memory that hold a copy of ``data``, in order; none when copying it is
        cheaper later, or memory is short."""

    def keep_shaders(self, modules: Mapping[KernelSpec, bytes]) -> None:
        """Keep the SPIR-V of kernels, of a saved graph, for its compilations."""

    def find_shaders(self, program: Program) -> None:
        """Make a program's shaders available, compiling them if needed. ShadersMissing if the
        compiler failed: a program without those shaders may still be possible. KernelsRefused if
        the compiler works and refuses some."""

    def try_out(self, program: Program) -> None:
        """Run self-tests for kernels that some drivers compute wrongly, before the first program
        with such kernels. Miscompiles."""

    def available(self, spec: KernelSpec) -> bool:
        """Whether a shader is available without a compiler."""

    def planning(self) -> AbstractContextManager[Planned | None]:
        """A block in which a graph is compiled and loaded, with a function that begins to make each
        pipeline that is planned; None where there are none."""

    def load(
        self,
        program: Program,
        constants: Constants,
        modules: Mapping[KernelSpec, bytes] | None = None,
        like: Executable | None = None,
    ) -> Executable:
        """Create everything a program needs (slow: shaders, pipelines, memory). ``modules``: the
        SPIR-V of all its kernels, if available. ``like``: an executable of the same graph for other
        sizes, whose memory for intermediates serves this one too. KernelsRefused if the driver
        can't make pipelines of some."""

    def execute(self, works: Sequence[Work]) -> Batch:
        """Start work, in order; DeviceLostError if the device is lost. Errors of a single work go
        to ``work.fail``."""

    def is_over(self, batch: Batch) -> bool:
        """Whether the batch is over, or an error keeps this from being known, which ``wait``
        raises; at once."""

    def wait(self, batch: Batch) -> None:
        """Block until the batch is over; DeviceLostError if it never will be."""

    def trim(self) -> None:
        """Called after a time without calls: free unused memory."""

    def memory_in_use(self) -> int:
        """Bytes of tensors, weights and intermediates."""

    def close(self) -> None:
        """Release everything; work in flight ends first."""


def new_storage(
    device: Any, size: int, exportable: bool = False, **options: Any
) -> tuple[Storage, tuple[Allocate, ...]]:
    """Memory of ``size`` bytes on a Device, allocated now or, after destroyed memory is freed, by
    the returned work. ``options`` as for ``Device.create_storage``."""
    try:
        return device.create_storage(size, exportable=exportable, **options), ()
    except MemoryError:
        storage = device.promise_storage(size)
        return storage, (Allocate(storage, exportable),)
