"""Errors of the Vulkan layer. They know nothing of WebNN; `runtime/` translates them."""

from __future__ import annotations


class VulkanError(Exception):
    """A Vulkan call failed. `result` is the VkResult's name, e.g. ``VK_ERROR_UNKNOWN``."""

    def __init__(self, message: str, result: str = "") -> None:
        super().__init__(message)
        self.result = result


class VulkanUnavailable(VulkanError):
    """There is no Vulkan to use: no loader library, no driver, or none that will do."""


class DeviceNotFound(VulkanUnavailable):
    """The device that was asked for (``WEBNN_VK_DEVICE``) is not there or can't be used."""


class LayerMissing(VulkanError):
    """The validation layer was asked for and can't be had. Not a reason to do without Vulkan."""


class DeviceLost(VulkanError):
    """The device is lost (VK_ERROR_DEVICE_LOST): no further work is possible on this driver."""


class OutOfHostMemory(VulkanError):
    """The host has no memory left for the driver."""


class OutOfDeviceMemory(VulkanError):
    """An allocation exceeds the device memory. Sizes in bytes.

    `requested`: what was asked for; `in_use`: held already; `limit`: the heap's size.
    """

    def __init__(self, message: str, result: str = "VK_ERROR_OUT_OF_DEVICE_MEMORY", *,
                 requested: int = 0, in_use: int = 0, limit: int = 0) -> None:
        super().__init__(message, result)
        self.requested = requested
        self.in_use = in_use
        self.limit = limit


class ExtensionMissing(VulkanError):
    """The device lacks an extension that the call needs."""


class DriverClosed(VulkanError):
    """The driver was closed."""


class ForkedProcess(VulkanError):
    """Vulkan was in use when this process was forked; a child can't use its parent's devices."""


class ValidationError(VulkanError):
    """The validation layer reported errors or warnings; `messages` are their texts."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__(f"{len(messages)} message(s) of the Vulkan validation layer:\n"
                         + "\n".join(messages))
        self.messages = messages
