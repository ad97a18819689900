"""Which work goes to the device next: several strict orders of work, the lanes, on one device.

Plain data without threads or locks; ``timeline`` holds the lock. Work goes to the device in the
order of the calls, whichever lane they came from. Work that needs the host for a while (CPU steps
of a graph, a wait for another timeline) stops its own lane only: what that lane has queued behind
it is held back, other lanes go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from .storage import Storage
from .work import Allocate, Await, Lend, Read, Return, RunGraph, Submit, Work, Write, refused

#: Batches on the device at the same time.
MAX_IN_FLIGHT = 4
MAX_BATCH_WORKS = 256


@dataclass(eq=False)
class LaneState:
    """Where one lane stands. Records are numbered through all lanes, in the order of the calls."""

    #: All records before this one are over, those excepted that other lanes have held back.
    reached: int = 0
    #: The record of the lane that the host works on.
    on_host: int | None = None
    #: The first record of the lane that is held back.
    held_from: int | None = None
    #: The first record of the lane that was dropped at the end of the timeline.
    dropped_from: int | None = None
    #: Memories that someone else has to himself (``Lend``), by their serial numbers.
    lent: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Follow:
    """What a lane queues behind this comes after all that ``lane`` has queued before."""

    lane: LaneState

    def fail(self, error: Exception) -> None:
        pass  # orders only: what comes behind it fails by itself


@dataclass(eq=False)
class PlannedBatch:
    """Work to be started together, in order."""

    works: list[Work]
    #: The number of its first record.
    first: int
    #: The lane that stands still until the host has done its part; None: the device does it all.
    lane: LaneState | None = None


@dataclass
class Schedule:
    """``max_flops``: estimated floating-point operations of a batch, so that a driver's watchdog
    does not take it for a hang (``pace``). ``lanes``: how many there have been."""

    max_flops: int
    lanes: int = 0
    #: Records queued so far.
    queued: int = 0
    _queue: deque[tuple[int, LaneState, Work | Follow]] = field(default_factory=deque)
    # What lanes that stand still have queued; older than the queue.
    _held: deque[tuple[int, LaneState, Work | Follow]] = field(default_factory=deque)
    # Lanes that stand still: with work on the host, or following such a one.
    _still: set[LaneState] = field(default_factory=set)
    # Batches started and not over.
    _running: list[PlannedBatch] = field(default_factory=list)

    def append(self, lane: LaneState, works: Iterable[Work | Follow]) -> None:
        """Queue work on a lane."""
        queue, number = self._queue, self.queued
        for work in works:
            if isinstance(work, Lend):
                lane.lent.add(work.storage.serial)
            elif isinstance(work, Return):
                lane.lent.discard(work.storage.serial)
            else:
                if lane.lent and any(s.serial in lane.lent for s in _touched(work)):
                    work = refused(work, lane.lent)
                queue.append((number, lane, work))
                number += 1
        self.queued = number

    def next(self) -> PlannedBatch | None:
        """The next batch to start, None while there is none or the device has enough."""
        if sum(batch.lane is None for batch in self._running) >= MAX_IN_FLIGHT:
            return None
        works: list[Work] = []
        first, flops, queue = 0, 0, self._queue
        while queue and len(works) < MAX_BATCH_WORKS:
            number, lane, work = queue[0]
            if isinstance(work, Follow) and work.lane in self._still:
                self._still.add(lane)
            if self._still and lane in self._still:
                self._held.append(queue.popleft())
                lane.held_from = number if lane.held_from is None else lane.held_from
                continue
            if isinstance(work, Follow):
                queue.popleft()
                continue
            if isinstance(work, Allocate) and self._running_on_device():
                break  # what was destroyed before has to be given back first
            flops += work.executable.flops if isinstance(work, RunGraph) else 0
            on_host = self.lanes > 1 and _needs_host(work)
            if works and (on_host or flops > self.max_flops or _begins_a_batch(work)):
                break
            queue.popleft()
            first = first if works else number
            works.append(work)
            if on_host:
                lane.on_host = number
                self._still.add(lane)
                return self._begin(PlannedBatch(works, first, lane))
        return self._begin(PlannedBatch(works, first)) if works else None

    def _begin(self, batch: PlannedBatch) -> PlannedBatch:
        self._running.append(batch)
        return batch

    def _running_on_device(self) -> bool:
        return any(batch.lane is None for batch in self._running)

    def host_done(self, batch: PlannedBatch) -> None:
        """The host has done its part of a batch: its lane goes on."""
        lane, batch.lane = batch.lane, None
        if lane is not None:
            lane.on_host = None
            for _, held, _ in self._held:
                held.held_from = None
            # In their places again; lanes that stand still for another reason are held back anew.
            self._queue.extendleft(reversed(self._held))
            self._held.clear()
            self._still = {other for other in self._still if other.on_host is not None}

    def over(self, batch: PlannedBatch) -> None:
        """A batch is over."""
        if batch in self._running:  # else it was abandoned
            self._running.remove(batch)

    def abandon(self) -> None:
        """Nothing is known of what was started, nor waited for any more."""
        self._running.clear()

    def completed(self, lane: LaneState) -> int:
        """All records before this one are over, those excepted that other lanes have held back."""
        numbers = [batch.first for batch in self._running if batch.lane in (None, lane)]
        if self._queue:
            numbers.append(self._queue[0][0])
        numbers += [n for n in (lane.held_from, lane.dropped_from) if n is not None]
        lane.reached = max(lane.reached, min(numbers, default=self.queued))
        return lane.reached

    def drop(self) -> list[Work | Follow]:
        """Take all that was not started out."""
        for number, lane, _ in (*self._held, *self._queue):
            lane.held_from = None
            if lane.dropped_from is None:
                lane.dropped_from = number
        dropped = [work for _, _, work in (*self._held, *self._queue)]
        self._held.clear()
        self._queue.clear()
        return dropped

    @property
    def at_rest(self) -> bool:
        """Nothing waits and nothing runs."""
        return not (self._queue or self._held or self._running)


def _touched(work: Work | Follow) -> Iterable[Storage]:
    match work:
        case Write(storage) | Read(storage):
            return (storage,)
        case RunGraph(_, inputs, outputs):
            return (*inputs.values(), *outputs.values())
        case Submit(by_holder=False):
            return (*work.reads, *work.writes)
    return ()


def _needs_host(work: Work) -> bool:
    if isinstance(work, RunGraph):
        return work.executable.on_host
    return isinstance(work, Await)


def _begins_a_batch(work: Work) -> bool:
    """Whether what was queued before must not be in the same batch. That of waits for another side:
    it may need that done, and a caller its results."""
    if isinstance(work, Submit):
        return bool(work.wait)
    return isinstance(work, (Allocate, Await))
