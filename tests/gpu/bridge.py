"""A stand-in for VK_KHR_external_semaphore_fd, which lavapipe lacks.

Each of two drivers makes a semaphore of its own; a thread carries every value that one reaches over
to the other. What is tested with it are the waits and signals of submissions, not the exchange of
file descriptors.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from webnn_vk.vulkan.driver import Driver, DriverProxy

_POLL = 0.0005


class BridgedDriver(DriverProxy):
    """A driver whose exported semaphores other BridgedDrivers can import."""

    _exported: dict[int, Any] = {}

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver)
        #: Values carried over so far.
        self.carried = 0

    def semaphore(self, *, exportable: bool = False) -> Any:
        return self.driver.semaphore()

    def export_semaphore(self, semaphore: Any) -> int:
        fd = os.open(os.devnull, os.O_RDONLY)
        self._exported[fd] = semaphore
        return fd

    def import_semaphore(self, fd: int) -> Any:
        os.close(fd)
        ours, theirs = self.driver.semaphore(), self._exported.pop(fd)
        threading.Thread(target=self._carry, args=(ours, theirs), daemon=True).start()
        return ours

    def _carry(self, *pair: Any) -> None:
        value = 0
        try:
            while True:
                for a, b in (pair, pair[::-1]):
                    if a.wait(value + 1, _POLL):
                        value += 1
                        if b.value() < value:
                            b.signal(value)
                        self.carried += 1
        except Exception:
            return  # one of the two devices is closed
