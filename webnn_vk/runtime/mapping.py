"""A tensor's bytes as host memory: in place if the host can access them, otherwise a staged copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from webnn_vk.driver import CopyCommand, DeviceLost, DriverError
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.errors import InvalidStateError, OperationError

from .storage import Storage, again
from .stream import Stream
from .timeline import Timeline
from .work import Submit, Write


class HostMapping:
    """The bytes of ``storage`` for the host; valid as long as this object lives and the device is
    open.

    Call ``fetch`` before reading and ``store`` after writing; in between nothing else may use the
    storage. Only a staged mapping copies: once in each of them, on the device's queue.
    """

    def __init__(self, device: Any, storage: Storage) -> None:
        """Raises OperationError if staging memory is needed and there is none."""
        self._storage = storage
        self._fetch: Any = None
        self._store: Any = None
        #: Whether this is the storage's own memory.
        self.in_place = is_host_visible(storage)
        if isinstance(storage.backing, np.ndarray):
            self._allocation: Any = None
            self._memory = memoryview(storage.backing)
            return
        self._allocation = storage.backing
        if not self.in_place:
            try:
                self._stage(device)
            except DeviceLost as error:
                raise InvalidStateError(f"the context is lost: {error}") from error
            except DriverError as error:
                raise OperationError(str(error)) from error
        self._memory = self._allocation.mapped[: storage.size]

    def _stage(self, device: Any) -> None:
        driver, size, backing = device.driver, self._storage.size, self._storage.backing
        self._allocation = staged = device.find(size, host=True, label="view")
        if not size:
            return
        # Both are recorded now: a view may end in a destructor, where nothing may fail.
        self._fetch = driver.record([CopyCommand(backing, 0, staged, 0, size)])
        self._store = driver.record([CopyCommand(staged, 0, backing, 0, size)])

    def memory(self, *, writable: bool) -> memoryview:
        """The storage's bytes, without padding."""
        return self._memory if writable else self._memory.toreadonly()

    def fetch(self, stream: Stream) -> None:
        """Wait until all work queued so far is over and its results are in ``memory``. Raises the
        error of the work that should have written them, InvalidStateError after a loss."""
        errors: list[Exception] = []
        if self._fetch is not None:
            reads = [self._storage]
            stream.enqueue(
                Submit(
                    [self._fetch], keep=self, failed=errors.append, reads=reads, by_holder=True
                )
            )
        stream.fence().wait()
        error = self._storage.error or (errors[0] if errors else None)
        if error is not None:
            raise again(error)
        if self._allocation is not None:
            self._allocation.invalidate()

    def store(self, stream: Stream) -> None:
        """Make the contents of ``memory`` visible to work queued from now on. Doesn't wait."""
        if self._allocation is not None:
            self._allocation.flush()
        if self._store is not None:
            stream.enqueue(
                Submit([self._store], writes=[self._storage], keep=self, by_holder=True)
            )


def staged_write(
    timeline: Timeline, storage: Storage, data: np.ndarray, what: str,
    part: tuple[int, int] | None = None,
) -> Write:
    """The work that writes a copy of ``data``, made now, to a storage or a ``part`` of it. Raises
    as ``Staging.reserve``, which waits while too much data is queued; ``what`` names the call."""

    def stage() -> Sequence[Any]:
        with timeline.building():
            return timeline.device.stage(data)

    held, staged = timeline.staging.reserve_and(data.nbytes, what, stage)
    return Write(storage, None if staged else data.copy(), staged or (), part, held=held)


def fill(storage: Storage, data: np.ndarray) -> bool:
    """Copy bytes into a storage that no work uses yet, for a run of a graph. Returns False, without
    effect, if the host can't access its memory."""
    backing = storage.backing
    if isinstance(backing, np.ndarray):
        backing[: data.nbytes] = data
    elif storage.twin is not None:
        storage.twin.write(data)
    elif backing is None or backing.mapped is None:
        return False
    else:
        backing.write(data)
    return True


def can_fill(storage: Storage) -> bool:
    """Whether ``fill`` has an effect."""
    return storage.twin is not None or is_host_visible(storage)


def can_copy(storage: Storage) -> bool:
    """Whether ``copied`` reads memory that the host caches."""
    place: Any = storage.twin or storage.backing
    return not isinstance(place, np.ndarray) and place.mapped is not None and place.cached


def copied(storage: Storage) -> np.ndarray:
    """A copy of the bytes that a run of a graph has left, for ``can_copy``."""
    place: Any = storage.twin or storage.backing
    data: np.ndarray = place.read()[: storage.size].copy()
    return data


def is_host_memory(storage: Storage, profile: DeviceProfile | None) -> bool:
    """Whether the device uses the host's own memory (``profile`` None: the CPU device), so that
    host and device copy equally fast."""
    return is_host_visible(storage) and (profile is None or profile.device_type != "discrete")


def is_host_visible(storage: Storage) -> bool:
    """Whether the host can use a storage's memory in place."""
    backing = storage.backing
    return isinstance(backing, np.ndarray) or backing.mapped is not None

