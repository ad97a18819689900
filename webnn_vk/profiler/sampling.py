"""Chooses the runs whose kernels are timed: all, one in every N, or as many as cost little."""

from __future__ import annotations

import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Any

from webnn_vk.driver import BarrierCommand, Command, DriverError, FillCommand, TimestampCommand
from webnn_vk.support.dataclass import dataclass

#: The first runs of each graph are always timed, so that short profiles are complete.
FIRST = 5
#: The limit of the cost of timing further runs, relative to the device's time without it. A profile
#: has other costs too, so this is less than the 5 % that are promised.
SHARE = 0.04
#: The smallest share of a measured time that is left when timestamps are subtracted.
LEAST = 0.2
#: On a device in software the probe's result is multiplied by this: for lavapipe it measures 20 to
#: 70 µs of processor time, but each timestamp made a run 75 to 93 µs longer.
RESERVE = 4.0
#: Numbers of timestamps, and of pairs of submissions, in the probe of a timestamp's cost.
_STAMPS, _PAIRS = 16, 9
_BYTES = 1024


@dataclass
class _Kind:
    """Statistics of one kind of work: how often it ran, and how long it took when it was timed."""

    runs: int = 0
    timed: int = 0
    seconds: float = 0.0

    @property
    def plain(self) -> float:
        """The estimated seconds of all its runs without timestamps."""
        return self.runs * self.seconds / self.timed if self.timed else 0.0


class Sampler:
    """Chooses runs to be timed. ``every``: one in every N; None: the first runs, and then as many
    as keep the cost below ``SHARE``. ``stamp_seconds``: the cost of a timestamp. Thread-safe."""

    def __init__(self, every: int | None, stamp_seconds: float = 0.0) -> None:
        self.every, self.stamp_seconds = every, stamp_seconds
        self._kinds: defaultdict[Hashable, _Kind] = defaultdict(_Kind)
        self._spent = 0.0
        self._lock = threading.Lock()

    def chooses(self, kind: Hashable, stamps: int) -> bool:
        """Whether to time the next run of this kind, with ``stamps`` timestamps."""
        with self._lock:
            known = self._kinds[kind]
            known.runs += 1
            cost = stamps * self.stamp_seconds
            if self.every is not None:
                chosen = (known.runs - 1) % self.every == 0
            else:
                chosen = known.runs <= FIRST or self._spent + cost <= SHARE * self._plain()
            if chosen:
                self._spent += cost
            return chosen

    def took(self, kind: Hashable, seconds: float, stamps: int) -> None:
        """Record the time of a chosen run on the device, its timestamps included."""
        with self._lock:
            known = self._kinds[kind]
            known.timed += 1
            # The cost of a timestamp is not known exactly, so some time always remains.
            plain = seconds - stamps * self.stamp_seconds
            known.seconds += max(plain, LEAST * seconds)

    def spent(self, seconds: float, stamps: int = 0) -> None:
        """Record the host's time for timing, and timestamps outside of runs."""
        with self._lock:
            self._spent += seconds + stamps * self.stamp_seconds

    def overhead(self, seconds: float) -> float:
        """The cost of timing in ``seconds``, as a share of the time without it."""
        with self._lock:
            return self._spent / max(seconds - self._spent, LEAST * seconds) if seconds > 0 else 0.0

    def _plain(self) -> float:
        return sum(kind.plain for kind in self._kinds.values())


def stamp_seconds(device: Any) -> float:
    """The cost of a timestamp between two commands on a `DriverDevice`, measured in some
    milliseconds; 0 where it writes none. Nothing else should run on the device. For a device in
    software it is processor time, in which other processes don't count.
    """
    if device.driver.timestamps is None:
        return 0.0
    try:
        if device.profile.is_software:
            return RESERVE * _measured(device.driver, time.process_time)
        return _measured(device.driver, time.perf_counter)
    except DriverError:
        return 0.0


def _measured(driver: Any, clock: Callable[[], float]) -> float:
    memory = driver.allocate(_BYTES, label="probe")
    fills = [FillCommand(memory, 0, _BYTES) for _ in range(_STAMPS)]
    plain: list[Command] = []
    stamped: list[Command] = []
    for number, fill in enumerate(fills):
        plain += [fill, BarrierCommand()]
        stamped += [fill, TimestampCommand(number), BarrierCommand()]
    recordings: list[Any] = []
    taken: tuple[list[float], list[float]] = ([], [])
    try:
        recordings += [driver.record(plain), driver.record(stamped)]
        for _ in range(1 + _PAIRS):
            # Alternating, so that other load on the machine affects both.
            for seconds, recording in zip(taken, recordings, strict=True):
                seconds.append(_seconds(driver, recording, clock))
    finally:
        for recording in recordings:
            recording.free()
        memory.free()
    # The fastest quarter, after a first one that warms up.
    without, with_stamps = (statistics.quantiles(seconds[1:])[0] for seconds in taken)
    return max(with_stamps - without, 0.0) / _STAMPS


def _seconds(driver: Any, recording: Any, clock: Callable[[], float]) -> float:
    start = clock()
    driver.wait(driver.submit([recording]))
    return clock() - start
