"""What a timeline needs of a device: memory, executables, and running batches of work."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.compiler.program import Constants, Program
from webnn_vk.driver.device_profile import DeviceProfile

from .observer import BatchObserver, Observer
from .storage import Storage
from .work import Executable, Work


@dataclass
class Batch:
    """Work that was started together: ``value`` marks its end on the device's timeline (None when
    it is over already), ``completions`` run then, in order and each with the work that it belongs
    to, ``works`` keeps its memory alive until then. ``failed``: some of it did not run; ``watch``:
    who looks on."""

    works: Sequence[Work]
    value: int | None = None
    failed: bool = False
    completions: deque[tuple[Work | None, Callable[[], Any]]] = field(default_factory=deque)
    watch: BatchObserver | None = None

    def complete(self) -> None:
        """Run the completions; what one of them raises fails its work alone. In the child of a
        process that one of them has forked, the rest is the parent's."""
        process = os.getpid()
        while self.completions and os.getpid() == process:
            # Popped, so that none of them is kept alive until the next batch.
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
    #: Whether an interrupt may leave ``create_storage`` anywhere.
    interruptible: bool
    #: Set by the timeline: waits, within ``execute``, until the batches before are over.
    wait_idle: Callable[[], None]
    #: Observes the work (used by the profiler); None: no observer.
    observer: Observer | None

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

    def find_shaders(self, program: Program) -> None:
        """Have a program's shaders at hand, compiled if need be. ShadersMissing when the compiler
        failed: a program of those that need none may still be had. KernelsRefused where it works
        and refuses some."""

    def try_out(self, program: Program) -> None:
        """Have the device show, at the first program that has such kernels, that it computes by
        them what it should: those that drivers are known to get wrong. Miscompiles."""

    def available(self, spec: KernelSpec) -> bool:
        """Whether a shader is there without a compiler."""

    def load(
        self,
        program: Program,
        constants: Constants,
        modules: Mapping[KernelSpec, bytes] | None = None,
    ) -> Executable:
        """Make everything a program needs (slow: shaders, pipelines, memory). ``modules``: the
        SPIR-V of all its kernels, where it is at hand. KernelsRefused where the driver can't make
        pipelines of some."""

    def execute(self, works: Sequence[Work]) -> Batch:
        """Start work, in order; DeviceLostError when the device is lost. What concerns one work
        alone goes to ``work.fail``."""

    def wait(self, batch: Batch) -> None:
        """Block until the batch is over; DeviceLostError when it never will be."""

    def trim(self) -> None:
        """Nothing was called for a while: free what is no longer used."""

    def memory_in_use(self) -> int:
        """Bytes of tensors, weights and intermediates."""

    def close(self) -> None:
        """Release everything; what is in flight ends first."""
