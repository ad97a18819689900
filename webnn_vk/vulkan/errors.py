"""Errors that only Vulkan has; those that every driver may raise are in `driver.errors`."""

from __future__ import annotations

from webnn_vk.driver.errors import DriverError, DriverUnavailable


class VulkanError(DriverError):
    """A Vulkan call failed. `result` is the VkResult's name, e.g. ``VK_ERROR_UNKNOWN``."""


class VulkanUnavailable(DriverUnavailable):
    """There is no Vulkan to use: no loader library, no driver, or none that will do."""


class DeviceNotFound(VulkanUnavailable):
    """The device that was asked for (``Settings.device``) is not there or can't be used."""


class LayerMissing(VulkanError):
    """The validation layer was asked for and can't be had. Not a reason to do without Vulkan."""


class ValidationError(VulkanError):
    """The validation layer reported errors or warnings; `messages` are their texts."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__(f"{len(messages)} message(s) of the Vulkan validation layer:\n"
                         + "\n".join(messages))
        self.messages = messages
