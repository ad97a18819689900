"""Opening a context by the name of a device, for the tools and the tests."""

from __future__ import annotations

import os
from typing import Any

import webnn_vk

from ..vulkan.devices import list_devices
from ..vulkan.errors import VulkanUnavailable
from . import ToolError


def has_vulkan() -> bool:
    """Whether a usable Vulkan device, software ones included, is here."""
    try:
        return any(not device.unusable for device in list_devices())
    except VulkanUnavailable:
        return False


def open_context(device: str | None = None) -> Any:
    """An `MLContext` on the device of that index or name part, on "vulkan" (any, a GPU before
    software) or on "cpu"; by default what `WEBNN_VK_DEVICE` says, else "vulkan" where there is
    one, else "cpu". `ToolError` when there is no such device.
    """
    device = device or os.environ.get("WEBNN_VK_DEVICE") or ("vulkan" if has_vulkan() else "cpu")
    try:
        return webnn_vk.ml.create_context(device=device).result()
    except (webnn_vk.DOMException, VulkanUnavailable) as error:
        raise ToolError(str(error)) from None


def is_vulkan(context: Any) -> bool:
    """Whether the context's device is a Vulkan device."""
    return context.device_info.type != "cpu"
