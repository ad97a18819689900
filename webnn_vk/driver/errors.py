"""Errors of drivers. They know nothing of WebNN; `runtime/` translates them."""

from __future__ import annotations


class DriverError(Exception):
    """A driver's call failed. `result` names the result of the API below, e.g.
    ``VK_ERROR_UNKNOWN``; "" if there is none."""

    def __init__(self, message: str, result: str = "") -> None:
        super().__init__(message)
        self.result = result


class DriverUnavailable(DriverError):
    """There is no device to open: no library, no driver, or no suitable device."""


class DeviceLost(DriverError):
    """The device is lost (VK_ERROR_DEVICE_LOST): no further work is possible on this driver."""


class OutOfHostMemory(DriverError):
    """The host has no memory left for the driver."""


class OutOfDeviceMemory(DriverError):
    """An allocation exceeds the device memory. Sizes in bytes.

    `requested`: the size requested; `in_use`: allocated already; `limit`: the heap's size.
    """

    def __init__(self, message: str, result: str = "VK_ERROR_OUT_OF_DEVICE_MEMORY", *,
                 requested: int = 0, in_use: int = 0, limit: int = 0) -> None:
        super().__init__(message, result)
        self.requested = requested
        self.in_use = in_use
        self.limit = limit


class FeatureMissing(DriverError):
    """The device or its driver lacks what the call needs; the message names it."""


class DriverClosed(DriverError):
    """The driver was closed."""


class ForkedProcess(DriverError):
    """The driver was in use when this process was forked; a child can't use its parent's
    devices."""
