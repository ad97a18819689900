"""Which work goes to the device next: several strict orders of work, the lanes, on one device.

Plain data without threads or locks; ``timeline`` holds the lock. Work goes to the device in the
order of the calls, whichever lane they came from. Work that needs the host for a while (CPU steps
of a graph, a wait for another timeline) stops its own lane only: what that lane has queued behind
it is held back, other lanes go on.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from .storage import Storage
from .throttle import AHEAD_SECONDS, BATCH_SECONDS, Cost, Pace, Taken
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
    #: Memories that someone else has to himself (``Lend``); they go with them.
    lent: set[weakref.ref[Storage]] = field(default_factory=set)


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
    #: What it holds, by the number of dispatches of each.
    costs: dict[Cost, int] = field(default_factory=dict)
    #: Whether its time says what that takes: nothing in it waits for another side.
    timed: bool = True


@dataclass
class Schedule:
    """``pace``: bounds a batch, so that a driver's watchdog does not take it for a hang, and what
    waits on the device, so that an end need not wait for it. ``lanes``: how many there have
    been."""

    pace: Pace
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
    # What one of the user's own command buffers takes, on average.
    _submit_cost: Cost = field(default_factory=Cost)

    def append(self, lane: LaneState, works: Iterable[Work | Follow]) -> None:
        """Queue work on a lane."""
        queue, number = self._queue, self.queued
        for work in works:
            if isinstance(work, Lend):
                lane.lent.add(weakref.ref(work.storage, lane.lent.discard))
            elif isinstance(work, Return):
                lane.lent.discard(weakref.ref(work.storage))
            else:
                if lane.lent and any(weakref.ref(s) in lane.lent for s in _touched(work)):
                    work = refused(work, lane.lent)
                queue.append((number, lane, work))
                number += 1
        self.queued = number

    def next(self) -> PlannedBatch | None:
        """The next batch to start, None while there is none or the device has enough."""
        room = self._room()
        if room is None:
            return None
        batch, seconds, queue = PlannedBatch([], 0), 0.0, self._queue
        works, costs = batch.works, batch.costs
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
            on_host = self.lanes > 1 and _needs_host(work)
            if works and (on_host or _begins_a_batch(work)):
                break
            cost = self._cost(work)
            if cost is not None and not on_host:
                seconds += self.pace.seconds(cost)
                if seconds > (min(room, BATCH_SECONDS) if costs else room):
                    break
                if cost.seconds is None and self._unmeasured(cost, costs):
                    break
            queue.popleft()
            batch.first = batch.first if works else number
            works.append(work)
            if cost is not None:
                costs[cost] = costs.get(cost, 0) + 1
            elif _waits(work):
                batch.timed = False
            if on_host:
                lane.on_host = number
                self._still.add(lane)
                batch.lane = lane
                break
        if not works:
            return None
        self._running.append(batch)
        return batch

    def _room(self) -> float | None:
        """Seconds of work that the device may be given now; None: no batch at all."""
        running = [batch for batch in self._running if batch.lane is None]
        if not running:
            return math.inf
        if len(running) >= MAX_IN_FLIGHT:
            return None
        return AHEAD_SECONDS - sum(self.pace.total(batch.costs) for batch in running[1:])

    def _unmeasured(self, cost: Cost, costs: dict[Cost, int]) -> bool:
        """Whether work that nobody has measured has to wait: for a dispatch of the same to end, on
        a new device for that of any."""
        given = [costs, *(batch.costs for batch in self._running if batch.lane is None)]
        if self.pace.measured:
            return any(cost in found for found in given)
        return any(other.seconds is None for found in given for other in found)

    def _cost(self, work: Work) -> Cost | None:
        """Where what is known of work's time is kept, for work that takes some."""
        if isinstance(work, RunGraph):
            return work.executable.cost
        if isinstance(work, Submit) and not work.wait:
            return self._submit_cost
        return None

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

    def over(self, batch: PlannedBatch, taken: Taken | None = None) -> None:
        """A batch is over; what it took the device, where that is known."""
        if batch in self._running:  # else it was abandoned
            self._running.remove(batch)
        if taken is not None and batch.timed:
            self.pace.learn(batch.costs, taken)

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


def _waits(work: Work) -> bool:
    return isinstance(work, Await) or (isinstance(work, Submit) and bool(work.wait))


def _begins_a_batch(work: Work) -> bool:
    """Whether what was queued before must not be in the same batch. That of waits for another side:
    it may need that done, and a caller its results."""
    return isinstance(work, Allocate) or _waits(work)
