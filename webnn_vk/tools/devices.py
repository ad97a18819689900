"""Opening a context by the name of a device, for the tools and the tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import webnn_vk
from webnn_vk.settings import Settings

from . import ToolError


def vulkan_problem() -> str | None:
    """Why there is no usable Vulkan device (software ones included) here; None when there is."""
    from webnn_vk.driver import DriverUnavailable
    from webnn_vk.opening import find_devices

    try:
        devices = find_devices()
    except DriverUnavailable as error:
        return str(error)
    if not all(device.unusable for device in devices):
        return None
    reasons = (f"{device.profile.name}: {device.unusable}" for device in devices)
    return "; ".join(reasons) or "no Vulkan device found"


def open_context(device: str | None = None) -> Any:
    """An `MLContext` on the device of that index or name part, on "vulkan" (any, a GPU before
    software) or on "cpu"; by default what `WEBNN_VK_DEVICE` says, else "vulkan" where there is
    one, else "cpu". `ToolError` when there is no such device.
    """
    try:
        settings = Settings.from_environment()
        if device:
            settings = replace(settings, device=device)
        elif settings.device is None:
            settings = replace(settings, device="cpu" if vulkan_problem() else "vulkan")
        return webnn_vk.ml.create_context(settings=settings).result()
    except (webnn_vk.DOMException, TypeError, ValueError) as error:
        message = str(error)
        if device:
            message = message.replace(settings.asked_device, f"--device {device}")
        raise ToolError(message) from None


def table() -> str:
    """The devices as lines of index and description."""
    lines = []
    for info in webnn_vk.devices():
        lines.append(f"{'cpu' if info.index is None else info.index:>3}  {info}")
    problem = vulkan_problem()
    return "\n".join([*lines, *([f"no Vulkan device: {problem}"] if problem else [])])
