"""Opening a Vulkan device with the settings of a user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.store import ShaderStore

from ..errors import NotSupportedError
from ..settings import Settings
from .driver_device import DriverDevice

if TYPE_CHECKING:
    from ..vulkan.snapshot import PhysicalDevice


def open_gpu(physical: PhysicalDevice, settings: Settings) -> DriverDevice:
    """The device with the features that ``settings`` leave, and its shaders. TypeError for an
    unknown feature to mask, NotSupportedError when the device can't be opened."""
    from ..vulkan.device import open_driver
    from ..vulkan.errors import VulkanError

    try:
        profile = physical.profile.masked(settings.mask)
        driver = open_driver(physical, profile=profile)
    except ValueError as error:
        raise TypeError(f"mask: {error}") from None
    except VulkanError as error:
        raise NotSupportedError(f"{physical.profile.name}: {error}") from error
    compiler = find_compiler(settings.glslang)
    shaders = (
        ShaderStore(compiler=compiler)
        if settings.cache is None
        else ShaderStore(None if settings.cache == "off" else settings.cache, compiler=compiler)
    )
    return DriverDevice(driver, shaders)
