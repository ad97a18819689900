"""`KomputeDriver`: a Vulkan device opened by Kompute, behind `driver.interface.Driver`."""

from __future__ import annotations

import atexit
import ctypes
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

from webnn_vk.driver import loading
from webnn_vk.driver.checks import check_command, check_submitted
from webnn_vk.driver.commands import Command, DispatchCommand
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.dumping import dump_spirv
from webnn_vk.driver.errors import DeviceLost, DriverClosed, FeatureMissing, ForkedProcess
from webnn_vk.driver.kompute.binding import load, open_manager
from webnn_vk.driver.kompute.memory import KomputeAllocation, Memory
from webnn_vk.driver.kompute.pipelines import KomputePipeline, Pipelines
from webnn_vk.driver.kompute.profile import kompute_profile
from webnn_vk.driver.kompute.recording import KomputeRecording, Mover, parts
from webnn_vk.driver.kompute.worker import Worker
from webnn_vk.driver.resources import HostAccess, MemoryUse, PipelineRequest
from webnn_vk.support import forks

# Seconds that `close` waits for work in flight before it abandons the device.
_CLOSE_TIMEOUT = 10.0

#: Why there are no facets, for messages.
ABSENT = {
    "sharing": "Kompute gives no access to the handles of its memory, and has no semaphores",
    "timestamps": "Kompute times whole operations and can't write a timestamp at a command",
}

_open: weakref.WeakSet[KomputeDriver] = weakref.WeakSet()


def open_driver(profile: DeviceProfile, index: int) -> KomputeDriver:
    """Opens the Vulkan device of that profile, number `index`, through Kompute. Raises
    DriverUnavailable where `kp` or the device is unavailable."""
    kp = load()
    forks.prepare_to_leave()
    with loading.alone:
        manager = open_manager(kp, profile.name, index)
    return KomputeDriver(kp, manager, kompute_profile(profile))


class KomputeDriver:
    """See `driver.interface.Driver` for the methods.

    A worker thread runs submissions, one part after the other: Kompute's calls hold the GIL and
    wait. Kompute doesn't report a lost device.
    """

    sharing = None
    timestamps = None
    direct = None
    absent = ABSENT

    def __init__(self, kp: Any, manager: Any, profile: DeviceProfile) -> None:
        self.profile = profile
        self._kp, self._manager = kp, manager
        self._memory = Memory(kp, manager, profile)
        self._pipelines = Pipelines(manager, profile)
        self._mover = Mover(kp, manager)
        self._recordings: weakref.WeakSet[KomputeRecording] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._worker = Worker(profile.name)
        self._closed = self._forked = False
        _open.add(self)

    # -- making -------------------------------------------------------------------------------
    def allocate(self, size: int, *, host: bool = False, exportable: bool = False,
                 host_access: HostAccess = "", label: str = "") -> KomputeAllocation:
        self._ready()
        if exportable:
            raise FeatureMissing(f"{self.profile.name} exports no memory: {ABSENT['sharing']}")
        self._pipelines.sweep()
        with self._lock:
            self._ready()
            return self._memory.allocate(size, host=host, label=label)

    def pipelines(self, requests: Sequence[PipelineRequest]) -> list[KomputePipeline]:
        self._ready()
        made = [self._pipelines.get(request) for request in requests]
        for request in requests:
            dump_spirv(request.spirv)
        return made

    def precompile(self, pipelines: Sequence[KomputePipeline]) -> int:
        self._ready()
        return self._worker.submitted  # Kompute compiles when a dispatch is recorded

    def record(self, commands: Sequence[Command]) -> KomputeRecording:
        self._ready()
        for command in commands:
            check_command(command, self.profile)
            self._check_bound(command)
        with self._lock:
            self._ready()
            made = tuple(parts(commands, self._kp, self._manager, self._pipelines, self._mover))
            recording = KomputeRecording(made)
            self._recordings.add(recording)
            return recording

    def _check_bound(self, command: Command) -> None:
        if not isinstance(command, DispatchCommand):
            return
        for index, (allocation, _, _) in enumerate(command.bindings):
            if isinstance(allocation, KomputeAllocation) and allocation.held.buffer.tensor is None:
                raise ValueError(f"dispatch of {command.pipeline.request.name!r}, binding {index}: "
                                 f"{allocation!r} is the host's, for transfers alone")

    # -- work ---------------------------------------------------------------------------------
    def submit(self, recordings: Sequence[KomputeRecording], *,
               wait: Sequence[tuple[Any, int]] = (),
               signal: Sequence[tuple[Any, int]] = ()) -> int:
        self._ready()
        if wait or signal:
            raise FeatureMissing(f"{self.profile.name} has no semaphores: {ABSENT['sharing']}")
        held = [recording.parts for recording in recordings]
        if any(some is None for some in held):
            raise ValueError("a recording to submit was freed")
        with self._lock:
            self._ready()
            return self._worker.submit(part for some in held for part in some or ())

    def wait(self, value: int, timeout: float | None = None) -> bool:
        check_submitted(value, self._worker.submitted)
        self._ready()
        return self._worker.wait(value, timeout)

    def completed(self) -> int:
        self._ready()
        time.sleep(0)  # a caller that polls holds the GIL, which the worker needs
        return self._worker.done

    def submitted(self) -> int:
        return self._worker.submitted

    # -- state --------------------------------------------------------------------------------
    def memory_in_use(self) -> MemoryUse:
        self._check_fork()
        if not self._closed:
            self._pipelines.sweep()
        return self._memory.use()

    def reclaim(self, *, pipelines: bool = True) -> None:
        """Releases algorithms that no recording uses."""
        if not (self._closed or self._forked):
            self._pipelines.sweep(everything=pipelines)

    def lost(self) -> str | None:
        return self._worker.failure

    def close(self) -> None:
        """Waits for the work in flight, at most 10 s, and releases everything. If it does not
        end, the device is left alone."""
        if self._forked:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        _open.discard(self)
        if not self._worker.stop(_CLOSE_TIMEOUT):
            _keep_for_ever([self._manager, *self._natives()])
            return
        self._worker.clear()
        for recording in list(self._recordings):
            recording.free()
        self._pipelines.sweep(everything=True)
        self._memory.close()
        # Destroys the remaining sequences, algorithms and tensors, then the device.
        with loading.alone:
            self._manager.destroy()
        del self._mover, self._pipelines, self._manager

    def __del__(self) -> None:
        if hasattr(self, "_forked"):
            loading.from_destructor(self.close)

    def leave_to_parent(self) -> None:
        """In a forked child: no object of Kompute is touched any more, not even to destroy it."""
        self._forked = True
        if not self._closed:
            _keep_for_ever([self._manager, *self._natives()])

    def _natives(self) -> list[Any]:
        recorded = [part for r in list(self._recordings) for part in r.parts or ()]
        return [*recorded, *self._memory.held(), *self._pipelines.held(), *self._worker.queued()]

    def _check_fork(self) -> None:
        if self._forked:
            raise ForkedProcess(
                "this process was forked from one that used a device through Kompute, which does "
                f"not survive a fork: {forks.SPAWN}, or open it in the children only")

    def _ready(self) -> None:
        self._check_fork()
        if self._closed:
            raise DriverClosed(f"the driver of {self.profile.name} was closed")
        if self._worker.failure is not None:
            raise DeviceLost(self._worker.failure)


def _keep_for_ever(things: Sequence[Any]) -> None:
    """Takes references that are never released, so that no destructor runs."""
    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _after_fork(clean: bool) -> None:
    drivers = list(_open)
    for driver in drivers:
        driver.leave_to_parent()
    if drivers:
        forks.leave_out_exit_handlers()


@atexit.register
def _close_all() -> None:
    # kp calls into Python while it shuts down, so it has to end before Python does.
    for driver in list(_open):
        driver.close()


forks.register(_after_fork)
