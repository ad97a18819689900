"""Limits the work that a device is given at a time, by measured durations if they are known.

Estimates alone are wrong by a factor of ten and more (operators that are slow on a device, another
process on the same cores). So every graph is measured, and only one dispatch of a graph that never
ran is on the device at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, NamedTuple

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass

#: Seconds that one submit may take; half of them on a device that draws the desktop, too. Watchdogs
#: reset a device after 2 s (Windows) to 10 s (amdgpu). Other work on the device waits for a submit
#: to end.
BATCH_SECONDS = 0.2

#: Seconds of work that may wait on the device behind the running submit. It can't be taken back: an
#: exit waits for it.
AHEAD_SECONDS = 0.5

#: Minimum estimate, in seconds, for a graph that was never measured: operations other than
#: floating-point ones take time too.
UNKNOWN_SECONDS = 0.01

#: Floating-point operations per second by type of device: the rate of our products on a slow device
#: of each type, estimated low, since the limit is there for slow devices.
RATES = {
    "cpu": 20e9,  # llvmpipe on two cores: 15 to 30 GFLOP/s in float32 products
    "integrated": 200e9,  # a fifth of the 1 TFLOP/s that such GPUs of 2018 on have on paper
    "discrete": 2e12,  # a fifth of the 10 TFLOP/s of a card of the middle class
    "virtual": 200e9,  # a share of another machine's GPU
    "other": 100e9,  # accelerators and phones that don't report a type
}


#: Bytes per second that a slow device of each type reads and writes.
BANDWIDTHS = {
    "cpu": 5e9, "integrated": 10e9, "discrete": 100e9, "virtual": 10e9, "other": 5e9,
}

#: The seconds that a dispatch takes at least, with its barrier, on a slow device.
_DISPATCH_SECONDS = 2e-5


#: Waits shorter than this (in seconds) count as no wait.
_AT_ONCE = 1e-4


def rate_of(profile: DeviceProfile | None) -> float:
    """The estimated rate of a device; None is the CPU device, which has no watchdog but the speed
    of a software one."""
    return RATES["cpu" if profile is None else profile.device_type]


def limit_of(profile: DeviceProfile | None) -> float:
    """The seconds that one submit may take on a device."""
    alone = profile is None or profile.device_type in ("cpu", "discrete")
    return BATCH_SECONDS if alone else BATCH_SECONDS / 2


def seconds_of(flops: float, size: float, profile: DeviceProfile) -> float:
    """The estimated seconds of a dispatch that reads and writes ``size`` bytes."""
    moving = size / BANDWIDTHS[profile.device_type]
    return _DISPATCH_SECONDS + max(flops / rate_of(profile), moving)


class Duration(NamedTuple):
    """A measured time: ``seconds``, or an upper bound if ``at_most``."""

    seconds: float
    at_most: bool = False


@dataclass(eq=False, slots=True)
class Cost:
    """The cost of one dispatch of a graph: estimated ``flops``, ``seconds`` once measured."""

    flops: float = 0
    seconds: float | None = None


@dataclass
class Throttle:
    """The estimated speed of a device. ``rate``: the initial estimate, in floating-point operations
    per second. ``limit``: the seconds that one submit may take."""

    rate: float
    limit: float = BATCH_SECONDS
    #: Whether any work was measured.
    measured: bool = False
    # Estimated operations and measured seconds of recent work.
    _flops: float = field(init=False)
    _seconds: float = UNKNOWN_SECONDS

    def __post_init__(self) -> None:
        self._flops = self.rate * self._seconds

    def seconds(self, cost: Cost) -> float:
        """The estimated seconds of one dispatch."""
        if cost.seconds is not None:
            return cost.seconds
        return UNKNOWN_SECONDS + cost.flops * self._seconds / self._flops

    def total(self, costs: Mapping[Cost, int]) -> float:
        """The estimated seconds of the given number of dispatches of each."""
        return sum(count * self.seconds(cost) for cost, count in costs.items())

    def learn(self, costs: Mapping[Cost, int], duration: Duration) -> None:
        """Record the measured duration of the given number of dispatches of each."""
        if not costs:
            return
        seconds, at_most = duration
        factor = seconds / max(self.total(costs), 1e-9)
        for cost in costs:
            wanted = max(self.seconds(cost), 1e-9) * factor
            if cost.seconds is None:
                cost.seconds = wanted
            elif wanted < cost.seconds or not at_most:
                # By half: another process may have used the device, or the cores.
                cost.seconds += (wanted - cost.seconds) / 2
        self.measured = True
        if not at_most:
            flops = sum(count * cost.flops for cost, count in costs.items())
            # At least one operation a second: work without operations says little about other work.
            self._flops = max(0.9 * self._flops + flops, 1.0)
            self._seconds = 0.9 * self._seconds + seconds


class Span:
    """Times of a batch: it begins when it is made."""

    __slots__ = ("_begun", "_ended", "duration")

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._ended: float | None = None
        #: Its duration on the device, once it is over.
        self.duration = Duration(0.0)

    def end(self) -> None:
        """It is over, and nothing was on the device before it."""
        self._ended = time.monotonic()
        self.duration = Duration(self._ended - self._begun)

    def wait(self, wait: Callable[[], Any], last: Span | None) -> None:
        """Call ``wait``, which returns when it is over; ``last`` is the batch before, which had the
        device until its end."""
        if self._ended is not None:
            return wait()
        before = time.monotonic()
        wait()
        self._ended = time.monotonic()
        begun = self._begun if last is None or last._ended is None else max(
            self._begun, last._ended
        )
        # It ended before its end was observed: callbacks had kept the thread.
        self.duration = Duration(self._ended - begun, self._ended - before < _AT_ONCE)


def throttle_of(profile: DeviceProfile | None) -> Throttle:
    """The throttle of a device on which nothing has run yet; None is the CPU device."""
    return Throttle(rate_of(profile), limit_of(profile))
