"""Contexts for tests: on a device by its name, on a device with other limits, and over a driver
that the test chooses.

Contexts take the environment's settings (validation, cache), like the whole run.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from webnn_vk import MLContext, Settings, ml
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.store import ShaderStore
from webnn_vk.driver.device_info import DeviceInfo
from webnn_vk.runtime.timeline import QUIET_SECONDS

#: Seconds after which what is waited for counts as hanging.
PATIENCE = 120


def open_context(device: str | int = "vulkan", *, limits: Mapping[str, Any] | None = None,
                 **settings: Any) -> MLContext:
    """A context on "cpu", on "vulkan" (a GPU before software) or on the device with that index or
    part of a name. Destroy it, or use it in a `with` statement.

    ``limits`` replaces fields of the device's profile. ``settings`` are fields of `Settings`, in
    place of the environment's.
    """
    chosen = replace(Settings.from_environment(), device=device, **settings)
    if limits is None:
        return ml.create_context(settings=chosen).result(PATIENCE)
    from webnn_vk.api.navigator import _context_over
    from webnn_vk.runtime.device_selection import find_devices, open_device

    find_devices(validate=chosen.validate)
    physical, _ = _physical(str(device))
    physical = replace(physical, profile=physical.profile.replace(**limits))
    return _context_over(open_device(physical, chosen), physical.index, chosen, True)


def open_over(wrap: Callable[[Any], Any], **settings: Any) -> tuple[MLContext, Any]:
    """A context on a Vulkan device, lavapipe included, made as `ml.create_context` makes it but
    over ``wrap(driver)``, which is returned too. ``settings`` as for `open_context`."""
    from webnn_vk.driver.vulkan.driver import open_driver
    from webnn_vk.runtime.driver_device import DriverDevice
    from webnn_vk.runtime.timeline import Timeline

    chosen = replace(Settings.from_environment(), **settings)
    physical, index = _physical("vulkan")
    profile = physical.profile.masked(chosen.mask)
    driver = wrap(open_driver(physical, profile=profile))
    compiler = find_compiler(chosen.glslang)
    where = () if chosen.cache is None else (chosen.cache,)
    shaders = ShaderStore(*where, compiler=compiler)
    timeline = Timeline(DriverDevice(driver, shaders))
    return MLContext(timeline, DeviceInfo.of(profile, index), chosen), driver


def _physical(device: str) -> tuple[Any, int]:
    """The Vulkan device on which a context on ``device`` would be opened, and its index."""
    from webnn_vk.driver.vulkan.devices import choose_device, list_devices

    listed = list_devices()
    index = choose_device([d.profile for d in listed], override=device,
                   unusable=[d.unusable for d in listed])
    assert index is not None
    return listed[index], index


def _working() -> bool:
    """Whether a build is running (a failed one still holds its memory), or an array is being freed.
    """
    names = {thread.name for thread in threading.enumerate()}
    return not names.isdisjoint({"webnn_vk-build", "webnn_vk-end"})


def settled_bytes(context: MLContext) -> int:
    """Bytes of device memory in use once everything queued has finished."""
    context.fence().wait(PATIENCE)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and _working():
        time.sleep(0.001)
    gc.collect()  # errors keep the frames that they passed through alive
    held = -1
    while time.monotonic() < end:
        # A worker that was just given a job isn't busy yet: so the state is checked twice.
        time.sleep(0.02)
        before, held = held, context._state.device.memory_in_use()
        if held == before and not _working():
            break
    return held


def returns_to(context: MLContext, before: int) -> bool:
    """Whether the bytes of device memory in use fall to ``before`` or below, within a time that
    the busiest machine allows. What only the next run of a graph would use goes when nothing is
    called, which may have happened before ``before``."""
    end = time.monotonic() + PATIENCE
    while settled_bytes(context) > before:
        if time.monotonic() > end:
            return False
        quiet = time.monotonic() + 2 * QUIET_SECONDS
        while context._state.device.memory_in_use() > before and time.monotonic() < quiet:
            time.sleep(0.01)
    return True
