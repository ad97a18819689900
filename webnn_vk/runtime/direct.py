"""Direct work: calls that start their work on the device themselves, and wait for it themselves,
because nothing is queued or running that they would have to wait for. No other thread wakes.

Between ``open`` and ``close``, which the holder of the scheduler lock calls, any thread may do so,
without a lock (``driver.direct`` says how). A message stays in the inbox until direct work is
closed; so a caller that finds the inbox empty comes after all calls that have returned. Each
function here either has its whole effect or none, whatever signal handlers do.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import numpy as np

from webnn_vk.driver import DeviceLost, DriverError
from webnn_vk.support.errors import InvalidStateError, OperationError

from .inbox import Inbox
from .schedule import SHORT_SECONDS, Schedule
from .storage import Storage
from .transfers import KEPT_BYTES, Transfer

#: For this many seconds at most, a thread polls for the end of work instead of sleeping: waking it
#: takes 20 to 50 µs, and other Python threads may wait for the interpreter meanwhile. Not where the
#: device computes on the host's cores.
POLL_SECONDS = 0.0002
#: Submits on the device at the same time: a write, a run and a read. With more of them, other
#: threads are at work, whose calls are better submitted together.
MAX_DIRECT = 3
_ATTEMPTS = 100
_UNUSED = 8
#: The result of a turn in which nothing was submitted: its value is the next one's.
_NO_SUBMIT = -1


class DirectRun:
    """A run of a graph, made for certain tensors, of which one caller may make use at a time."""

    __slots__ = ("key", "last", "submit")

    def __init__(self, key: tuple[int, ...], submit: Any) -> None:
        self.key, self.submit = key, submit
        #: The value of its last submission.
        self.last = 0


class DirectWork:
    """The direct work on one device.

    call: keeps the device open as long as the object that it returns lives. lose: announces the
    loss of the device. adopt: waits for the submission of that value like for a batch.
    """

    def __init__(
        self, device: Any, schedule: Schedule, inbox: Inbox[Any], call: Callable[[], object],
        lose: Callable[[str], Any], adopt: Callable[[int], Any],
    ) -> None:
        self._device, self._submits = device, device.direct
        self._schedule, self._inbox = schedule, inbox
        self._adopt, self._call, self._lose = adopt, call, lose
        self._polls = device.profile is not None and device.profile.device_type != "cpu"
        # -- of the lock's holder
        # The last submission, and the number of turns, before direct work, while that is open.
        self._opened: tuple[int, int] | None = None
        # How often in a row it was open, and unused.
        self._unused = self._skipped = 0
        # The next turn, when ``quiet`` was called last.
        self._seen: Any = None
        # -- of callers
        # The number of records of work before, and the number of turns that this counts from.
        self._counted: tuple[int, int] | None = None

    # -- for the holder of the scheduler lock ----------------------------------------------------
    def open(self) -> None:
        """Allow it if nothing is queued or running."""
        if self._submits is None or self._opened is not None:
            return
        if self._schedule.at_rest and self._inbox.empty():
            self._opened = self._submits.open()
            self._counted = self._schedule.queued, self._opened[1]

    def pays(self) -> bool:
        """Whether to open it at once: after many calls in a row that were others it would only take
        time, but for one in a few."""
        if self._submits is None or self._opened is not None or self._unused < _UNUSED:
            return True
        self._skipped += 1
        return self._skipped % _UNUSED == 0

    def close(self) -> None:
        """No more of it; what is running becomes a batch of the schedule."""
        if self._opened is None:
            return
        opened, self._opened = self._opened, None
        self._counted = None
        closed = self._submits.close()
        self._unused = 0 if closed[1] > opened[1] else self._unused + 1
        self._schedule.queued += closed[1] - opened[1]
        last = closed[0]
        if last > opened[0]:
            try:
                over = self._submits.completed() >= last
            except DriverError:
                over = False  # waiting for it finds that, too
            if not over:
                self._adopt(last)

    def quiet(self) -> bool:
        """Whether there was no direct work since it was called before."""
        turn = None if self._submits is None else self._submits.turn()
        seen, self._seen = self._seen, turn
        return turn is seen

    # -- for callers -----------------------------------------------------------------------------
    @property
    def possible(self) -> bool:
        """Whether direct work may be possible now."""
        return self._submits is not None and self._submits.turn() is not None

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or running now. InvalidStateError if the device is lost."""
        if not (self._inbox.empty() and self._schedule.at_rest):
            return False
        turn = None if self._submits is None else self._submits.turn()
        return turn is None or self._over(turn.value - 1)

    def _over(self, value: int) -> bool:
        """Whether the submission is over, as far as that can be told. InvalidStateError if the
        device is lost."""
        try:
            return bool(self._submits.completed() >= value)
        except DeviceLost as error:
            raise self._lost(error) from error
        except DriverError:
            return False  # waiting for it finds that, too

    def prepared(
        self, executable: Any, inputs: Mapping[str, Storage], outputs: Mapping[str, Storage]
    ) -> DirectRun | None:
        """A run on these storages (``DriverExecutable.take_direct``), if it can be direct: it has
        run before, and doesn't take long. The caller gives it back by ``keep_direct``."""
        if not self.possible:
            return None
        seconds = executable.cost.seconds
        if seconds is None or seconds >= SHORT_SECONDS:
            return None
        taken: DirectRun | None = executable.take_direct(inputs, outputs)
        return taken

    def _turn(self, touched: Collection[Storage], lent: Collection[weakref.ref[Storage]]) -> Any:
        """The turn to take for work on storages; None if other work is queued, if they are lent, or
        if what failed before is for the timeline to see."""
        turn = self._submits.turn()
        # After that: what changes them later keeps the turn from being taken.
        if turn is None or not self._inbox.empty():
            return None
        if any(storage.error is not None for storage in touched):
            return None
        return None if lent and any(weakref.ref(s) in lent for s in touched) else turn

    def submit(
        self, prepared: DirectRun | Transfer, touched: Collection[Storage] = (),
        lent: Collection[weakref.ref[Storage]] = (), insist: bool = False,
    ) -> int | None:
        """Submit work on storages, of which some may be lent; the value that marks its end. None if
        that can't be. InvalidStateError if the device is lost. ``insist``: wait for another thread
        that is submitting, for a while; without it the timeline submits the work of both."""
        call = self._call()
        try:
            for _ in range(_ATTEMPTS if insist else 1):
                turn = self._turn(touched, lent)
                if turn is None:
                    break
                value: int = turn.value
                done = self._submits.completed()
                if prepared.last > done or value - done > MAX_DIRECT:
                    break
                prepared.last = value
                if self._submits.submit(turn, prepared.submit):
                    return value
                time.sleep(0)
            return None
        except DeviceLost as error:
            del call
            raise self._lost(error) from error
        except DriverError:
            return None  # the timeline finds it, too

    def run(
        self, executable: Any, inputs: Mapping[str, Storage], outputs: Mapping[str, Storage],
        lent: Collection[weakref.ref[Storage]],
    ) -> bool:
        """Start a run of a graph; False if that can't be."""
        run = self.prepared(executable, inputs, outputs)
        if run is None:
            return False
        value = self.submit(run, (*inputs.values(), *outputs.values()), lent)
        executable.kept.keep_direct(run)
        return value is not None

    def write(
        self, storage: Storage, data: np.ndarray, lent: Collection[weakref.ref[Storage]]
    ) -> bool:
        """Replace the bytes of a storage; False if that can't be."""
        if not self._small(storage):
            return False
        backing = storage.backing
        if backing.mapped is not None and backing.coherent:
            target = backing.mapped[: storage.size]
            if self._copy(memoryview(data), target, storage, lent):
                return True
        transfer = self._transfer(storage, "upload")
        if transfer is None:
            return False
        value = None
        if self._over(transfer.last):
            transfer.staged.write(data)
            value = self.submit(transfer, (storage,), lent)
        self._device.transfers.keep((storage.serial, "upload"), transfer)
        return value is not None

    def _small(self, storage: Storage) -> bool:
        return 0 < storage.size <= KEPT_BYTES and storage.backing is not None and self.possible

    def read(
        self, storage: Storage, lent: Collection[weakref.ref[Storage]]
    ) -> tuple[int, Callable[[], np.ndarray]] | None:
        """The submission that reads the bytes of a storage, 0 if they are there already, and a
        function that returns them then. None if that can't be."""
        if not self._small(storage):
            return None
        backing = storage.backing
        if backing.mapped is not None and backing.coherent and backing.cached:
            data = np.empty(storage.size, np.uint8)
            source = backing.mapped[: storage.size]
            if self._copy(source, memoryview(data), storage, lent):
                return 0, lambda: data
        transfer = self._transfer(storage, "download")
        if transfer is None:
            return None
        key, size = (storage.serial, "download"), storage.size
        value = self.submit(transfer, (storage,), lent)
        if value is None:
            self._device.transfers.keep(key, transfer)
            return None

        found: dict[int, np.ndarray] = {}
        once = deque((transfer,))

        def collect() -> np.ndarray:
            # Of several threads the first one that has all bytes decides. Only then is the memory
            # free for another read, which may change what slower threads find there.
            data = found.setdefault(0, transfer.staged.read()[:size].copy())
            try:
                self._device.transfers.keep(key, once.pop())
            except IndexError:
                pass
            return data

        return value, collect

    def _transfer(self, storage: Storage, kind: str) -> Transfer | None:
        transfer = self._device.transfers.take_kept((storage.serial, kind))
        if transfer is None or not self._device.prepare_transfer(transfer):
            return None
        return transfer

    def _copy(
        self, source: memoryview, target: memoryview, storage: Storage,
        lent: Collection[weakref.ref[Storage]],
    ) -> bool:
        """Copies on the host, by one function of C, if nothing is running."""
        # What could fail in the call below.
        if source.nbytes != target.nbytes or not source.format == target.format == "B":
            return False
        call = self._call()
        turn = self._turn((storage,), lent)
        if turn is None or not self._over(turn.value - 1):
            return False
        copy = partial(target.__setitem__, slice(None), source)
        copied = turn.take((copy, partial(int, _NO_SUBMIT))) is not None
        del call
        return copied

    def fence(self) -> tuple[int, int] | None:
        """The value that marks the end of all work so far, and the number of its records; None if
        other work is queued or running."""
        if (counted := self._counted) is None:
            return None
        turn = self._submits.turn()
        if turn is None or not self._inbox.empty() or self._counted is not counted:
            return None
        records, turns = counted
        return turn.value - 1, records + turn.number - turns

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Wait for the end of a submission for at most that many seconds; whether it came.
        InvalidStateError if the device is lost, OperationError if waiting fails for another reason.
        The caller has a ``call``."""
        seconds = POLL_SECONDS if timeout is None else min(timeout, POLL_SECONDS)
        end = time.monotonic() + seconds
        while self._polls:
            if self._over(value):
                return True
            if time.monotonic() > end:
                break
        for attempt in range(_ATTEMPTS):
            try:
                over: bool = self._submits.wait(value, timeout)
                return over
            except DeviceLost as error:
                raise self._lost(error) from error
            except DriverError as error:
                failed = error
            time.sleep(0.0001 * attempt)  # memory is short
        raise OperationError(f"waiting for the device failed: {failed}")

    def _lost(self, error: DeviceLost) -> InvalidStateError:
        self._lose(str(error))
        return InvalidStateError(f"the context is lost: {error}")
