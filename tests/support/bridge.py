"""Stand-in for VK_KHR_external_semaphore_fd, which lavapipe lacks.

Each of two drivers has its own semaphore; a thread copies every value that one reaches to the
other. This tests the waits and signals of submissions, not the exchange of file descriptors.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from tests.support.driver_proxy import DriverProxy
from webnn_vk.driver import Driver

_POLL = 0.0005


class BridgedDriver(DriverProxy):
    """A driver whose exported semaphores other BridgedDrivers can import."""

    _exported: dict[int, tuple[BridgedDriver, Any]] = {}

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver)
        self._bridges: list[_Bridge] = []
        #: the last value of each semaphore that submissions signal
        self._promised: dict[Any, int] = {}

    @property
    def carried(self) -> int:
        """Number of values copied so far."""
        return sum(bridge.value for bridge in self._bridges)

    def semaphore(self, *, exportable: bool = False) -> Any:
        return self.driver.sharing.semaphore()

    def export_semaphore(self, semaphore: Any) -> int:
        fd = os.open(os.devnull, os.O_RDONLY)
        self._exported[fd] = self, semaphore
        return fd

    def import_semaphore(self, fd: int) -> Any:
        os.close(fd)
        other, theirs = self._exported.pop(fd)
        bridge = _Bridge(self.driver.sharing.semaphore(), theirs)
        for driver in (self, other):
            driver._bridges.append(bridge)
        return bridge.pair[0]

    def submit(self, *arguments: Any, **options: Any) -> int:
        value = self.driver.submit(*arguments, **options)
        self._promised.update(options.get("signal", ()))
        return value

    def close(self) -> None:
        # A real semaphore's value outlives the device that signalled it. The signals of a
        # submission are not simultaneous: the end of the submission doesn't imply that the
        # semaphore has its value.
        if self.driver.lost() is None:
            self.driver.wait(self.driver.submitted())
            for semaphore, value in self._promised.items():
                semaphore.wait(value)
        for bridge in self._bridges:
            bridge.end()
        self.driver.close()


class _Bridge:
    def __init__(self, *pair: Any) -> None:
        self.pair = pair
        self.value = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            if not self._carry():
                time.sleep(_POLL)
        while self._carry():
            pass

    def _carry(self) -> bool:
        for a, b in (self.pair, self.pair[::-1]):
            # Polled, not waited for: older validation layers report a false timeout when a wait
            # asks for a value that no submission signals (3 after 1).
            value = a.value()
            if value > self.value:
                self.value = value
                if b.value() < value:
                    b.signal(value)
                return True
        return False
