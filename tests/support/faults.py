"""A driver that fails on command, for tests of the layers above."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.support.driver_proxy import DriverProxy
from webnn_vk.driver import DeviceLost, Driver, OutOfDeviceMemory
from webnn_vk.driver.vulkan.errors import VulkanError


class FaultyDriver(DriverProxy):
    """Passes all calls on until told to fail. Counts the injected faults by kind.

    fail_allocation(n), fail_submit(n): the n-th call from now on (1: the next) fails, and with
    `times` the calls after it, once by default. lose(): the device is lost; submitted work still
    ends, as it may on real devices. lose_at(n): at the n-th call from now on.
    """

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver)
        self.injected = {"allocation": 0, "submit": 0, "lost": 0}
        self._lock = threading.Lock()
        self.calls = {"allocation": 0, "submit": 0, "lost": 0}
        # By kind, the numbers of the calls that fail.
        self._failing = {kind: range(0) for kind in self.calls}
        self._reason: str | None = None

    def fail_allocation(self, nth: int = 1, times: int = 1) -> None:
        """The nth allocation from now raises OutOfDeviceMemory."""
        self._fail("allocation", nth, times)

    def fail_submit(self, nth: int = 1, times: int = 1) -> None:
        """The nth submit from now raises VulkanError and submits nothing."""
        self._fail("submit", nth, times)

    def lose_at(self, nth: int = 1) -> None:
        """The nth call that needs the device loses it."""
        self._fail("lost", nth, 1)

    def _fail(self, kind: str, nth: int, times: int) -> None:
        with self._lock:
            self._failing[kind] = range(self.calls[kind] + nth, self.calls[kind] + nth + times)

    def lose(self, reason: str = "VK_ERROR_DEVICE_LOST (injected)") -> None:
        """Every call that needs the device raises DeviceLost from now on."""
        self.injected["lost"] += 1
        self._reason = reason

    def lost(self) -> str | None:
        return self._reason or self.driver.lost()

    def allocate(self, size: int, **options: Any) -> Any:
        self._check("allocation", lambda: OutOfDeviceMemory(
            f"injected: no memory for {size} bytes", requested=size))
        return self.driver.allocate(size, **options)

    def submit(self, *arguments: Any, **options: Any) -> int:
        self._check("submit", lambda: VulkanError("injected: vkQueueSubmit",
                                                  "VK_ERROR_OUT_OF_HOST_MEMORY"))
        return self.driver.submit(*arguments, **options)

    def wait(self, value: int, timeout: float | None = None) -> bool:
        self._check_lost()
        done = self.driver.wait(value, timeout)
        self._check_lost()  # lost meanwhile
        return done

    def completed(self) -> int:
        self._check_lost()
        return self.driver.completed()

    def record(self, *arguments: Any) -> Any:
        self._check_lost()
        return self.driver.record(*arguments)

    def pipelines(self, *arguments: Any) -> Any:
        self._check_lost()
        return self.driver.pipelines(*arguments)

    def _check_lost(self) -> None:
        if self._counts("lost") and not self._reason:
            self.lose()
        if self._reason:
            raise DeviceLost(self._reason, "VK_ERROR_DEVICE_LOST")

    def _check(self, kind: str, error: Callable[[], Exception]) -> None:
        self._check_lost()
        if self._counts(kind):
            self.injected[kind] += 1
            raise error()

    def _counts(self, kind: str) -> bool:
        with self._lock:
            self.calls[kind] += 1
            return self.calls[kind] in self._failing[kind]
