"""Contexts by the name of a device, and lists of devices, for the tools and the tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import webnn_vk
from webnn_vk.driver.device_info import DeviceInfo
from webnn_vk.support import environment
from webnn_vk.support.settings import Settings

from . import ToolError


def vulkan_problem() -> str | None:
    """Why this machine has no usable Vulkan device (software included); None if it has one."""
    from webnn_vk.driver import DriverUnavailable
    from webnn_vk.runtime.device_selection import find_devices

    try:
        devices = find_devices()
    except DriverUnavailable as error:
        return str(error)
    if not all(device.unusable for device in devices):
        return None
    reasons = (f"{device.profile.name}: {device.unusable}" for device in devices)
    return "; ".join(reasons) or "no Vulkan device found"


def device_title(context: webnn_vk.MLContext) -> str:
    """The device of a context; for the CPU device also why there is no Vulkan device."""
    problem = None if context.device_info.is_vulkan else vulkan_problem()
    return f"{context.device_info}" + f"; no Vulkan device: {problem}" * bool(problem)


def open_context(device: str | None = None, **changes: Any) -> Any:
    """An `MLContext` on the device with this index or part of a name, on "vulkan" (any, GPUs before
    software) or on "cpu"; by default on the device that `create_context()` takes. ``changes``:
    settings that override the environment's. `ToolError` where there is no such device.
    """
    try:
        settings = Settings.from_environment()
        if device:
            changes["device"] = device
        if changes:
            settings = replace(settings, **changes)
        return webnn_vk.ml.create_context(settings=settings).result()
    except (webnn_vk.DOMException, TypeError, ValueError) as error:
        message = str(error)
        if device:
            message = message.replace(settings.asked_device, f"--device {device}")
        raise ToolError(message) from None


def default_device() -> dict[str, Any]:
    """The device that `create_context()` takes: "index" (None for the CPU device), "name" and
    "reason". Raises the same error as `create_context()`. The device is opened, since only that
    shows whether it works."""
    from webnn_vk.runtime.device_selection import open_best

    opened = open_best(Settings.from_environment())
    choice = opened.choice
    if choice.found is None or opened.device is None:
        return {"index": None, "name": "CPU", "reason": choice.reason}
    opened.device.close()
    reason = "; ".join([choice.reason, *opened.passed_over])
    return {"index": choice.found.index, "name": choice.found.profile.name, "reason": reason}


def listing() -> list[dict[str, Any]]:
    """The devices as plain data. One is marked as the default, unless `create_context()` fails.
    Each is opened briefly; "unusable" says why that failed."""
    reasons = _why_not_opened()
    infos = [
        replace(info, unusable=info.unusable or reasons.get(info.index))
        for info in webnn_vk.devices()
    ]
    return [
        {**described(info), "is_gpu": info.is_vulkan and info.type != "cpu", "text": str(info)}
        for info in infos
    ]


def described(info: DeviceInfo) -> dict[str, Any]:
    """A device as plain data, without its features and limits."""
    names = ("index", "name", "type", "driver", "api_version", "uuid", "pci", "unusable",
             "default")
    return {name: getattr(info, name) for name in names}


def _why_not_opened() -> dict[int | None, str | None]:
    from webnn_vk.driver import DriverError
    from webnn_vk.runtime.device_selection import find_devices, why_not_opened

    try:
        driver = environment.text("WEBNN_VK_DRIVER") or "vulkan"
        found = find_devices(driver=driver)
    except (DriverError, ValueError):
        return {}  # devices() says why
    reasons = why_not_opened(found, driver)
    return {device.index: why for device, why in zip(found, reasons, strict=True)}


def table() -> str:
    """The devices as lines of index and description, with a star before the default."""
    lines = []
    for device in listing():
        index = "cpu" if device["index"] is None else device["index"]
        lines.append(f"{'*' if device['default'] else ' '} {index:>3}  {device['text']}")
    try:
        reason = f"* the default: {default_device()['reason']}"
    except (webnn_vk.DOMException, TypeError, ValueError) as error:
        reason = f"no default: {error}"
    lines.append(reason)
    problem = vulkan_problem()
    if problem and problem not in reason:
        lines.append(f"no Vulkan device: {problem}")
    return "\n".join(lines)
