"""The memory of a driver's device, and the driver's errors as errors of the layers above."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import KeyedRef

import numpy as np

from webnn_vk.codegen.store import ShaderStore
from webnn_vk.driver import (
    CopyCommand,
    DeviceLost,
    Driver,
    DriverClosed,
    DriverError,
    ForkedProcess,
    OutOfDeviceMemory,
    OutOfHostMemory,
    sharing_of,
)
from webnn_vk.driver.resources import HostAccess, room_for
from webnn_vk.support import background
from webnn_vk.support.errors import InvalidStateError, NotSupportedError, UnknownError
from webnn_vk.support.heap import trim_heap
from webnn_vk.support.integers import padded

from . import reclaim
from .engine import NUMPY, HostEngine
from .observer import Observer
from .packed import PackedForms
from .storage import DeviceLostError, Storage
from .transfers import Transfer, Transfers

#: Up to this many bytes are accessed over the bus, by the host in the device's memory or by kernels
#: in the host's, where one of them only writes. Copying more of them on the device is faster.
IN_PLACE_BYTES = 1 << 16
#: Up to this many bytes have a twin, and recordings that copy from or to it. With more, the host's
#: copies take longer than finding memory for transfers and recording.
TWIN_BYTES = 1 << 22


@contextmanager
def translated() -> Iterator[None]:
    """Translates the driver's errors to the errors of ``device.Device``."""
    try:
        yield
    except (OutOfDeviceMemory, OutOfHostMemory) as error:
        raise MemoryError(str(error)) from error
    except DeviceLost as error:
        raise DeviceLostError(str(error)) from error
    except (DriverClosed, ForkedProcess) as error:
        raise InvalidStateError(str(error)) from error
    except DriverError as error:
        raise UnknownError(f"{type(error).__name__}: {error}") from error


class DriverMemory:
    """Tensors, transfers and intermediates of one driver."""

    interruptible = False

    def __init__(
        self, driver: Driver, shaders: ShaderStore, engine: HostEngine = NUMPY
    ) -> None:
        self.driver = driver
        self.engine = engine
        self.shaders = shaders
        self.profile = driver.profile
        self.name = driver.profile.name
        self.wait_idle: Callable[[], None] = lambda: None
        self.observer: Observer | None = None
        self.direct = driver.direct
        self.packed = PackedForms()
        # Weak: a destroyed graph is freed, whatever tensors it ran on.
        self._executables: set[weakref.ref[Any]] = set()
        # References to the living storages, with their serial numbers, and to those that are gone:
        # put there by one call into C, which no signal handler can interrupt as it could a
        # destructor.
        self._live: set[KeyedRef[int, Storage]] = set()
        self._deferred: deque[KeyedRef[int, Storage]] = deque()
        self.transfers = Transfers()
        #: Guards every executable's recordings.
        self.lock = threading.Lock()
        # Whether work was done, or a tensor was freed, since the last trim.
        self._used = False
        reclaim.register(self)

    @property
    def max_tensor_byte_length(self) -> int:
        return self.profile.max_tensor_byte_length

    # -- memory --------------------------------------------------------------------------------
    def create_storage(
        self, size: int, *, exportable: bool = False, host_access: HostAccess = "",
        in_place: bool = True,
    ) -> Storage:
        """``exportable``: for another opened device or API (``runtime.external``)."""
        with translated():
            access = host_access if in_place and size <= IN_PLACE_BYTES else ""
            backing = self.allocate(size, exportable, access)
            storage = self.adopt(size, backing)
            if host_access and 0 < size <= TWIN_BYTES and not (
                backing.mapped is not None and (host_access == "write" or backing.cached)
            ):
                storage.twin = self.find(size, host=True, label="staging")
            return storage

    def adopt(self, size: int, backing: Any) -> Storage:
        """A storage over an allocation of the driver."""
        storage = Storage(size, backing)
        self._live.add(KeyedRef(storage, self._deferred.append, storage.serial))
        return storage

    def promise_storage(self, size: int) -> Storage:
        return self.adopt(size, None)

    def import_storage(self, data: np.ndarray) -> Storage:
        self.free_deferred()
        try:
            backing = sharing_of(self.driver).import_host_memory(data, label="shared tensor")
        except DeviceLost as error:
            raise DeviceLostError(str(error)) from error
        except DriverError as error:
            raise NotSupportedError(
                f"{self.name} can't use this host memory (a private mapping, np.memmap(mode='c'), "
                f"suits more drivers than a read-only one): {error}"
            ) from error
        return self.adopt(data.nbytes, backing)

    def allocate(
        self, size: int, exportable: bool = False, host_access: HostAccess = ""
    ) -> Any:
        """The driver's allocation for a tensor of ``size`` bytes; its errors are the driver's."""
        self.free_deferred()
        room = room_for(padded(size), self.profile)
        if room > min(self.profile.max_memory_allocation_size, self.profile.max_buffer_size):
            room = padded(size)
        return self.find(room, exportable=exportable, host_access=host_access, label="tensor")

    def find(self, size: int, **options: Any) -> Any:
        """The driver's ``allocate``; if memory is short it is retried after all devices of the
        process have freed unused memory."""
        return reclaim.retry_on_oom(lambda: self.driver.allocate(size, **options))

    def add(self, executable: Any) -> None:
        """Tell a DriverExecutable of freed tensors, for as long as it lives."""
        self._executables.add(weakref.ref(executable, self._executables.discard))

    def free_deferred(self) -> None:
        """Free data of storages without references; their memory is freed with their last
        recording."""
        executables = None
        self._used = self._used or bool(self._deferred)
        while self._deferred:
            try:
                gone = self._deferred.popleft()
            except IndexError:
                return
            self._live.discard(gone)
            self.transfers.forget(gone.key)
            if executables is None:
                executables = self._alive()
            with self.lock:
                for executable in executables:
                    executable.kept.forget(gone.key)

    def _alive(self) -> list[Any]:
        alive = [reference() for reference in self._executables.copy()]
        return [executable for executable in alive if executable is not None]

    def prepare_transfer(self, transfer: Transfer) -> bool:
        """Make its submit, if there is none; whether there is one."""
        if transfer.submit is None:
            try:
                transfer.submit = background.run_on_worker(
                    self.direct.prepare, [transfer.recording]
                )
            except DriverError:
                return False  # the timeline finds it, too
        return True

    def trim(self) -> None:
        """See ``device.Device``."""
        for executable in self._alive():
            executable.trim()
        self.transfers.clear()
        self.free_deferred()
        self.driver.reclaim(pipelines=False)
        if self._used:
            self._used = False
            trim_heap()

    def reclaim(self) -> None:
        """Free unused memory and caches. Never raises."""
        for executable in self._alive():
            executable.trim()
        self.transfers.clear()
        try:
            self.free_deferred()
            self.driver.reclaim()
        except DriverError:
            pass  # lost or closed: everything is freed

    def memory_in_use(self) -> int:
        self.free_deferred()
        return self.driver.memory_in_use().allocated

    def wait_value(self, value: int) -> None:
        """Block until the driver's submission of that value is done; DeviceLostError."""
        with translated():
            self.driver.wait(value)


def from_twins(inputs: Mapping[str, Storage]) -> list[CopyCommand]:
    """The copies from the twins of inputs, before a run."""
    return [
        CopyCommand(s.twin, 0, s.backing, 0, s.size)
        for s in inputs.values() if s.twin is not None
    ]


def to_twins(outputs: Mapping[str, Storage]) -> list[CopyCommand]:
    """The copies to the twins of outputs, after a run."""
    return [
        CopyCommand(s.backing, 0, s.twin, 0, s.size)
        for s in outputs.values() if s.twin is not None
    ]
