"""A driver that counts what a call costs, and whose memory the host may not see."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from tests.support.driver_proxy import DriverProxy
from webnn_vk.driver import CopyCommand, Driver, FillCommand


class Watched(DriverProxy):
    """Counts submitted transfers, submits and recordings. ``hidden``: the host sees transfer
    memory, and memory that was allocated for its access. ``uncached``: it doesn't cache memory
    other than for transfers."""

    def __init__(self, driver: Driver, hidden: bool = False, uncached: bool = False) -> None:
        super().__init__(driver)
        self.hidden = hidden or driver.profile.device_type == "discrete"
        self.uncached = uncached
        self.transfers: list[tuple[type, int]] = []
        self.submits = self.recorded = self.allocated = 0
        self._of: WeakKeyDictionary[Any, list[tuple[type, int]]] = WeakKeyDictionary()

    def allocate(self, size: int, **options: Any) -> Any:
        allocation = self.driver.allocate(size, **options)
        self.allocated += 1
        if self.hidden and not (options.get("host") or options.get("host_access")):
            allocation.mapped = None
        allocation.cached = not self.uncached or bool(options.get("host"))
        return allocation

    def record(self, commands: Any) -> Any:
        self.recorded += 1
        recording = self.driver.record(commands)
        # Only these values: a command would keep its memory.
        self._of[recording] = [
            (type(c), c.size) for c in commands if isinstance(c, (CopyCommand, FillCommand))
        ]
        return recording

    def submit(self, recordings: Any, **options: Any) -> int:
        self.submits += 1
        for recording in recordings:
            self.transfers += self._of[recording]
        return self.driver.submit(recordings, **options)
