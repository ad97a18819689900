"""Errors of Vulkan only; errors that every driver may raise are in `driver.errors`."""

from __future__ import annotations

from collections.abc import Mapping

from webnn_vk.driver.errors import DriverError, DriverUnavailable


class VulkanError(DriverError):
    """A Vulkan call failed. `result` is the VkResult's name, e.g. ``VK_ERROR_UNKNOWN``."""


class VulkanUnavailable(DriverUnavailable):
    """Vulkan is unavailable: no loader library, no driver, or no suitable one."""


class DriversBroken(VulkanUnavailable):
    """Every driver crashes, hangs or fails when it is queried for devices; `broken`: manifest
    → reason."""

    def __init__(self, message: str, broken: Mapping[str, str]) -> None:
        reasons = [message] if message else []
        reasons += [f"{name}: {reason}" for name, reason in broken.items()]
        super().__init__(f"no usable Vulkan driver: {'; '.join(reasons)}")
        self.broken = dict(broken)


class DeviceNotFound(VulkanUnavailable):
    """The requested device (``Settings.device``) does not exist or can't be used."""


class LayerMissing(VulkanError):
    """The validation layer was requested and is unavailable. No reason to run without Vulkan."""


class ValidationError(VulkanError):
    """The validation layer reported errors or warnings; `messages` are their texts."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__(f"{len(messages)} message(s) of the Vulkan validation layer:\n"
                         + "\n".join(messages))
        self.messages = messages
