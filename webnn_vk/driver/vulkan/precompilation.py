"""Compiles pipelines ahead of their first use where a driver would do so on its queue's thread.

Such a driver (llvmpipe) compiles one pipeline after the other. But each of its devices has a queue
with a thread of its own, and what one device has compiled lies in the driver's cache on disk, where
the others find it. So one more device for each core helps, and is closed afterwards.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from webnn_vk.driver.commands import BarrierCommand, Command, DispatchCommand
from webnn_vk.driver.errors import DriverError
from webnn_vk.driver.resources import TEXEL_BYTES, room_for
from webnn_vk.support.parallel_map import spread
from webnn_vk.support.processor import cores

#: A pipeline that takes longer, in seconds, is not in the driver's cache (from there: 1 ms).
CACHED_SECONDS = 0.01
_MAX_DEVICES = 4
#: Errors of a further device, for lack of memory mostly: the first one compiles everything then.
_LACKING = (DriverError, MemoryError)


class Precompilation:
    """Compiles pipelines of one device. ``another`` opens a second one like it; None: no other
    device may help."""

    def __init__(self, another: Callable[[], Any] | None) -> None:
        self._another = another

    def run(self, driver: Any, pipelines: Sequence[Any]) -> int:
        """Compiles the driver's pipelines, at least one. Returns the timeline value of its last
        submit, which may not be over."""
        # The largest first, so that all devices end at about the same time.
        left = deque(sorted(pipelines, key=lambda made: len(made.request.spirv), reverse=True))
        # Read once: another thread may find meanwhile that the driver's cache is off.
        while (another := self._another) is not None:
            value = _submit(driver, [left.popleft()])
            if not left:
                return value
            if not driver.wait(value, CACHED_SECONDS):
                return self._share(driver, value, left, another)
        return _submit(driver, left)

    def _share(
        self, driver: Any, value: int, left: deque[Any], another: Callable[[], Any]
    ) -> int:
        """The rest, once the driver's submit of that ``value`` is over, with other devices."""
        devices = min(cores(), _MAX_DEVICES, 1 + len(left))
        # What other devices have compiled, with the seconds that it took, and what they could not.
        compiled: list[tuple[Any, float]] = []
        failed: list[Any] = []

        def here() -> None:
            try:
                driver.wait(value)
                for pipeline in _taken(left):
                    driver.wait(_submit(driver, [pipeline]))
            except BaseException:
                left.clear()
                raise

        def there() -> None:
            try:
                helper = another()
            except _LACKING:
                return
            try:
                for pipeline in _taken(left):
                    begun = time.monotonic()
                    try:
                        helper.wait(_submit(helper, helper.pipelines([pipeline.request])))
                    except _LACKING:
                        return failed.append(pipeline)
                    compiled.append((pipeline, time.monotonic() - begun))
            finally:
                helper.close()

        spread(lambda work: work(), [here, *[there] * (devices - 1)], devices)
        rest = [pipeline for pipeline, _ in compiled] + failed
        if len(compiled) > 1:
            # The first has been on disk for long, the last may not be yet.
            limit = max(CACHED_SECONDS, compiled[0][1] / 4)
            before, done = driver.submitted(), driver.completed()
            value = _submit(driver, [rest.pop(0)])
            # Behind other work, of another build for example, its time would say nothing.
            if not driver.wait(value, limit) and done == before == value - 1:
                self._another = None  # the driver's cache is off
        return _submit(driver, rest) if rest else driver.submitted()


def _taken(left: deque[Any]) -> Iterator[Any]:
    """Takes one after the other, as other threads do too."""
    while True:
        try:
            yield left.popleft()
        except IndexError:
            return


def _submit(driver: Any, pipelines: Iterable[Any]) -> int:
    """A submit of an empty dispatch of each."""
    # The most that any kind of binding takes; texel views are like later dispatches'.
    size = room_for(max(TEXEL_BYTES.values()), driver.profile)
    scratch = driver.allocate(size, label="precompile")
    commands: list[Command] = []
    for pipeline in pipelines:
        request = pipeline.request
        # The barriers are for synchronisation validation, which ignores that nothing runs.
        commands += [BarrierCommand(),
                     DispatchCommand(pipeline, ((scratch, 0, size),) * request.binding_count,
                                     bytes(request.push_size), (0, 0, 0))]
    return driver.submit([driver.record(commands)])
