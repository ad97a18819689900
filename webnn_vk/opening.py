"""The devices of this machine: found, chosen, opened. The one place that names a driver
implementation; everything else sees the interface of ``driver``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.store import ShaderStore

from .device_profile import DeviceProfile
from .driver.errors import DriverError, DriverUnavailable
from .errors import NotSupportedError
from .runtime import DriverDevice, find_engine
from .settings import Settings


class FoundDevice(Protocol):
    """A device of this machine. ``index``: its number in the driver's order; ``unusable``: why it
    can't be used, or None."""

    @property
    def index(self) -> int: ...

    @property
    def profile(self) -> DeviceProfile: ...

    @property
    def unusable(self) -> str | None: ...


def find_devices(*, validate: bool = False) -> Sequence[FoundDevice]:
    """The Vulkan devices, in Vulkan's order. ``validate``: with the validation layer.

    Raises DriverUnavailable where there is no loader, driver or binding, another DriverError when
    the validation layer can't be had.
    """
    # Loaded when needed: `import webnn_vk` must not need a Vulkan loader.
    from .vulkan.devices import list_devices
    from .vulkan.instance import instance

    if validate:
        instance(validate=True)
    return list_devices()


def choose_device(found: Sequence[FoundDevice], **wishes: Any) -> int | None:
    """The index in ``found`` of the device to use, None for the CPU device; ``wishes`` are the
    options of ``vulkan.devices.choose``. DriverUnavailable when a device was named that can't be
    used."""
    from .vulkan.devices import choose

    return choose(
        [device.profile for device in found],
        unusable=[device.unusable for device in found],
        **wishes,
    )


@dataclass(frozen=True)
class Choice:
    """The device of a context, None for the CPU device; why, in words. ``unasked``: the CPU device
    is taken though nobody asked for it."""

    found: FoundDevice | None
    reason: str
    unasked: bool = False


def choose(
    settings: Settings, *, power_preference: str = "default", accelerated: bool = True
) -> Choice:
    """What ``ml.create_context`` takes. NotSupportedError for a named device that can't be used."""
    wanted = str(settings.device or "")
    if wanted.lower() == "cpu":
        return Choice(None, "the CPU device was asked for")
    if not wanted and not accelerated and power_preference == "default":
        return Choice(None, "accelerated=False asks for the CPU device")
    try:
        found = find_devices(validate=settings.validate)
        index = choose_device(
            found,
            power_preference=power_preference,
            accelerated=accelerated,
            override=settings.device,
            asked=settings.asked_device,
        )
    except DriverUnavailable as error:
        if wanted:
            raise NotSupportedError(str(error)) from None
        return Choice(None, f"no Vulkan device ({error}); the CPU device is used", unasked=True)
    except DriverError as error:
        raise NotSupportedError(str(error)) from error
    if index is not None:
        return Choice(found[index], f"{wanted!r} was asked for" if wanted else "the best GPU")
    names = ", ".join(f"{d.profile.name}: {d.unusable or 'software'}" for d in found)
    software = any(d.unusable is None for d in found)
    return Choice(
        None,
        f"no GPU ({names or 'no Vulkan device'}); the CPU device is used"
        + ". WEBNN_VK_DEVICE=vulkan takes a software Vulkan device" * software,
        unasked=True,
    )


def open_device(found: Any, settings: Settings) -> DriverDevice:
    """The device with the features that ``settings`` leave, and its shaders. TypeError for an
    unknown feature to mask, NotSupportedError when the device can't be opened."""
    from .vulkan.driver import open_driver

    try:
        driver = open_driver(found, profile=found.profile.masked(settings.mask))
    except ValueError as error:
        raise TypeError(f"mask: {error}") from None
    except DriverError as error:
        raise NotSupportedError(f"{found.profile.name}: {error}") from error
    compiler = find_compiler(settings.glslang)
    shaders = (
        ShaderStore(compiler=compiler)
        if settings.cache is None
        else ShaderStore(None if settings.cache == "off" else settings.cache, compiler=compiler)
    )
    return DriverDevice(driver, shaders, find_engine(settings.cpu_engine))
