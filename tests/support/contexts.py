"""Contexts made as `ml.create_context` makes them, over a driver of the test's choice."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from webnn_vk import MLContext, Settings
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.store import ShaderStore
from webnn_vk.device_info import DeviceInfo
from webnn_vk.runtime import DriverDevice, Timeline
from webnn_vk.vulkan.devices import choose, list_devices
from webnn_vk.vulkan.driver import open_driver


def open_over(wrap: Callable[[Any], Any], **settings: Any) -> tuple[MLContext, Any]:
    """A context on a Vulkan device, lavapipe included, over ``wrap(driver)``, which is returned
    too. ``settings`` are those of `Settings`, by default the environment's."""
    chosen = replace(Settings.from_environment(), **settings)
    found = list_devices()
    index = choose([d.profile for d in found], override="vulkan",
                   unusable=[d.unusable for d in found])
    profile = found[index].profile.masked(chosen.mask)
    driver = wrap(open_driver(found[index], profile=profile))
    compiler = find_compiler(chosen.glslang)
    where = () if chosen.cache is None else (chosen.cache,)
    shaders = ShaderStore(*where, compiler=compiler)
    context = MLContext(Timeline(DriverDevice(driver, shaders)), DeviceInfo.of(profile, index),
                        chosen, has_compiler=shaders.has_compiler, available=shaders.available)
    return context, driver


def settled_bytes(context: MLContext) -> int:
    """Bytes of device memory in use once everything queued is over."""
    context.fence().wait(60)
    for thread in threading.enumerate():
        if thread.name == "webnn_vk-build" and thread.is_alive():
            thread.join(60)  # a failed one still holds what it had
    gc.collect()  # errors hold the frames that they went through
    return context._state.device.memory_in_use()
