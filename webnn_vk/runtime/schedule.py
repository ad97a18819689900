"""The choice of the work that goes to the device next: several strict orders of work, the streams.

Plain data without threads or locks; ``timeline`` holds the lock. Work goes to the device in the
order of the calls, whichever stream it was queued on. Work that needs the host for a while (CPU
steps of a graph, a wait for another timeline) blocks only its own stream: later work of that stream
is held back, other streams go on.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import field

from webnn_vk.support.dataclass import dataclass

from .storage import Storage
from .throttle import AHEAD_SECONDS, Cost, Duration, Throttle
from .work import Allocate, Await, Lend, Read, Return, RunGraph, Submit, Work, Write, refused

#: Batches on the device at the same time.
MAX_IN_FLIGHT = 4
MAX_BATCH_WORKS = 256
#: Batches of fewer seconds count as short: waking another thread takes 20 to 50 µs.
SHORT_SECONDS = 0.01


@dataclass(eq=False)
class StreamState:
    """The state of one stream. Records are numbered across streams, in the order of the calls."""

    #: All records before this one are over, except records that other streams have held back.
    reached: int = 0
    #: The record of the stream that the host is working on.
    on_host: int | None = None
    #: The first record of the stream that is held back.
    held_from: int | None = None
    #: The first record of the stream that was dropped at the end of the timeline.
    dropped_from: int | None = None
    #: Memories leased to another holder (``Lend``), with their holders.
    lent: set[weakref.ref[Storage]] = field(default_factory=set)


@dataclass(slots=True)
class Follow:
    """Orders later work of a stream after all that ``stream`` has queued before."""

    stream: StreamState

    def fail(self, error: Exception) -> None:
        pass  # orders only: the work behind it fails by itself


@dataclass(eq=False)
class PlannedBatch:
    """Work to be started together, in order."""

    works: list[Work]
    #: The number of its first record.
    first: int
    #: The stream that is blocked until the host has done its part; None: the device does
    #: everything.
    stream: StreamState | None = None
    #: Its graphs, with the number of dispatches of each.
    costs: dict[Cost, int] = field(default_factory=dict)
    #: Whether its duration measures its graphs: nothing in it waits for another side.
    timed: bool = True
    #: Whether it is short and ends with a read or a fence, there is no other work, and the device
    #: does everything: a caller probably waits for its end.
    expected: bool = False
    #: Whether it is expected and ends with a read, and callers wait for all its results.
    alone: bool = False


@dataclass
class Schedule:
    """``throttle`` bounds a batch, so that a driver's watchdog does not take it for a hang, and the
    work that waits on the device, so that closing need not wait for it. ``streams``: the number of
    streams made so far."""

    throttle: Throttle
    streams: int = 0
    #: Records queued so far.
    queued: int = 0
    _queue: deque[tuple[int, StreamState, Work | Follow]] = field(default_factory=deque)
    # Work of blocked streams, older than the queue.
    _held: deque[tuple[int, StreamState, Work | Follow]] = field(default_factory=deque)
    # Blocked streams: with work on the host, or following such a stream.
    _still: set[StreamState] = field(default_factory=set)
    # Batches that were started and are not over.
    _running: list[PlannedBatch] = field(default_factory=list)
    # The average duration of the user's own command buffers.
    _submit_cost: Cost = field(default_factory=Cost)

    def append(self, stream: StreamState, works: Iterable[Work | Follow]) -> None:
        """Queue work on a stream."""
        queue, number = self._queue, self.queued
        for work in works:
            if isinstance(work, Lend):
                stream.lent.add(weakref.ref(work.storage, stream.lent.discard))
            elif isinstance(work, Return):
                stream.lent.discard(weakref.ref(work.storage))
            else:
                if stream.lent and any(weakref.ref(s) in stream.lent for s in _touched(work)):
                    work = refused(work, stream.lent)
                queue.append((number, stream, work))
                number += 1
        self.queued = number

    def next(self, fenced: bool = False) -> PlannedBatch | None:
        """The next batch to start; None if there is none or the device has enough work.
        ``fenced``: a fence is behind the work."""
        room = self._room()
        if room is None:
            return None
        batch, seconds, queue = PlannedBatch([], 0), 0.0, self._queue
        works, costs = batch.works, batch.costs
        while queue and len(works) < MAX_BATCH_WORKS:
            number, stream, work = queue[0]
            if isinstance(work, Follow) and work.stream in self._still:
                self._still.add(stream)
            if self._still and stream in self._still:
                self._held.append(queue.popleft())
                stream.held_from = number if stream.held_from is None else stream.held_from
                continue
            if isinstance(work, Follow):
                queue.popleft()
                continue
            if isinstance(work, Allocate) and self._running_on_device():
                break  # destroyed memory has to be freed first
            on_host = self.streams > 1 and _needs_host(work)
            if works and (on_host or _begins_a_batch(work)):
                break
            if seconds >= SHORT_SECONDS and type(works[-1]) is Read and type(work) is not Read:
                break  # results don't wait for the end of longer work behind them
            cost = self._cost(work)
            if cost is not None and not on_host:
                seconds += self.throttle.seconds(cost)
                if seconds > (min(room, self.throttle.limit) if costs else room):
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
                stream.on_host = number
                self._still.add(stream)
                batch.stream = stream
                break
        if not works:
            return None
        alone = not (self._running or queue or self._held or batch.stream)
        short, reads = alone and seconds < SHORT_SECONDS, type(works[-1]) is Read
        batch.expected = short and (reads or fenced)
        batch.alone = short and reads and _awaited(works)
        self._running.append(batch)
        return batch

    def adopted(self) -> PlannedBatch:
        """A batch on the device that was not planned here: the last records so far."""
        batch = PlannedBatch([], self.queued - 1, timed=False)
        self._running.append(batch)
        return batch

    def _room(self) -> float | None:
        """Seconds of work that the device may be given now; None: no batch at all."""
        running = [batch for batch in self._running if batch.stream is None]
        if not running:
            return math.inf
        if len(running) >= MAX_IN_FLIGHT:
            return None
        return AHEAD_SECONDS - sum(self.throttle.total(batch.costs) for batch in running[1:])

    def _unmeasured(self, cost: Cost, costs: dict[Cost, int]) -> bool:
        """Whether work that was never measured has to wait: for a dispatch of the same graph to
        end, or on a new device for any dispatch."""
        given = [costs, *(batch.costs for batch in self._running if batch.stream is None)]
        if self.throttle.measured:
            return any(cost in found for found in given)
        return any(other.seconds is None for found in given for other in found)

    def _cost(self, work: Work) -> Cost | None:
        """The record of the work's durations, for work that takes time."""
        if isinstance(work, RunGraph):
            return work.executable.cost
        if isinstance(work, Submit) and not work.wait:
            return self._submit_cost
        return None

    def _running_on_device(self) -> bool:
        return any(batch.stream is None for batch in self._running)

    def host_done(self, batch: PlannedBatch) -> None:
        """The host has done its part of a batch: its stream goes on."""
        stream, batch.stream = batch.stream, None
        if stream is not None:
            stream.on_host = None
            for _, held, _ in self._held:
                held.held_from = None
            # Back in their places; streams blocked for another reason stay held back.
            self._queue.extendleft(reversed(self._held))
            self._held.clear()
            self._still = {other for other in self._still if other.on_host is not None}

    def over(self, batch: PlannedBatch, duration: Duration | None = None) -> None:
        """A batch is over, with its duration on the device, if known."""
        if batch in self._running:  # else it was abandoned
            self._running.remove(batch)
        if duration is not None and batch.timed:
            self.throttle.learn(batch.costs, duration)

    def abandon(self) -> None:
        """Nothing is known of the started work, and it isn't waited for any more."""
        self._running.clear()

    def completed(self, stream: StreamState) -> int:
        """All records before this one are over, except those held back on other streams."""
        numbers = [batch.first for batch in self._running if batch.stream in (None, stream)]
        if self._queue:
            numbers.append(self._queue[0][0])
        numbers += [n for n in (stream.held_from, stream.dropped_from) if n is not None]
        stream.reached = max(stream.reached, min(numbers, default=self.queued))
        return stream.reached

    def drop(self) -> list[Work | Follow]:
        """Take all work that was not started out of the queue."""
        for number, stream, _ in (*self._held, *self._queue):
            stream.held_from = None
            if stream.dropped_from is None:
                stream.dropped_from = number
        dropped = [work for _, _, work in (*self._held, *self._queue)]
        self._held.clear()
        self._queue.clear()
        return dropped

    @property
    def at_rest(self) -> bool:
        """Whether nothing waits and nothing runs."""
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


def _awaited(works: Sequence[Work]) -> bool:
    """Whether these are only runs of graphs, and reads whose callers wait for the results."""
    return all(work.last if type(work) is Read else type(work) is RunGraph for work in works)


def _begins_a_batch(work: Work) -> bool:
    """Whether the work has to be in a later batch than the work before it: a wait for another side
    may need that done, and a caller its results."""
    return isinstance(work, Allocate) or _waits(work)
