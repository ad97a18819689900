"""Finds, selects and opens the devices of this machine. The only module that names driver
implementations; all others use the interface of ``driver``."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.store import ShaderStore
from webnn_vk.driver import Driver
from webnn_vk.driver.device_profile import DeviceProfile, devices_named
from webnn_vk.driver.errors import DriverError, DriverUnavailable
from webnn_vk.support import forks
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import NotSupportedError
from webnn_vk.support.settings import Settings

from .driver_device import DriverDevice
from .engine_selection import find_engine

_NONE: Mapping[int, str] = MappingProxyType({})
#: The compiler's modules, in the order of their imports. A context's first graph needs them, and
#: they take as long as the probe of unknown drivers, during which this process is idle.
_COMPILER = ("ops", "ir.emit", "passes", "kernels", "program.shaped_program")
#: Devices whose last opening failed, by number, with the reason.
_not_opened: dict[int, str] = {}


class FoundDevice(Protocol):
    """A device of this machine. ``index``: its number in the driver's order; ``unusable``: why it
    can't be used, or None."""

    @property
    def index(self) -> int: ...

    @property
    def profile(self) -> DeviceProfile: ...

    @property
    def unusable(self) -> str | None: ...


def _import(name: str) -> None:
    with forks.undisturbed():
        importlib.import_module(f"webnn_vk.compiler.{name}")


_IMPORTS = [partial(_import, name) for name in _COMPILER]


def find_devices(
    *, validate: bool = False, driver: str = "vulkan",
    meanwhile: Iterable[Callable[[], object]] = (),
) -> Sequence[FoundDevice]:
    """The Vulkan devices, in Vulkan's order, and entries for drivers that can't be queried.
    ``validate``: with the validation layer. ``driver``: for "null" the devices that it pretends to
    have (``WEBNN_VK_NULL_DEVICES``), instead of the machine's. ``meanwhile``: functions that are
    called, one after the other, while a process probes the drivers.

    Raises DriverUnavailable without a loader, driver or binding, another DriverError if the
    validation layer is missing or this is a forked child.
    """
    if driver == "null" and (devices := _null_devices()):
        return devices
    # Loaded when needed: `import webnn_vk` must not need a Vulkan loader. Forks of other threads
    # wait: in the child a half-loaded module would stay so.
    with forks.undisturbed():
        from webnn_vk.driver.vulkan import driver
        from webnn_vk.driver.vulkan.devices import list_devices
        from webnn_vk.driver.vulkan.errors import DriversBroken
        from webnn_vk.driver.vulkan.instance import instance

    if validate:
        try:
            instance(validate=True, meanwhile=meanwhile)
        except DriversBroken:
            pass  # the list says so
    return list_devices(meanwhile)


def probe_drivers() -> None:
    """Forget the remembered state of the machine's drivers, and find out (in child processes) which
    of them crash, hang or fail. Useless once a context on a Vulkan device exists."""
    from webnn_vk.driver.vulkan.driver_search import Drivers

    Drivers(probe_again=True)


def start_up_seconds(settings: Settings) -> dict[str, float]:
    """Measure what a process does before its first graph on the Vulkan device that the settings
    select: "probe" (a child process asks all drivers, which later processes don't repeat),
    "instance" (with the list of devices), "device". In a process that has an instance already,
    "instance" is next to nothing. NotSupportedError if they select no Vulkan device, or one that
    can't be opened; TypeError for an unknown feature to mask."""
    marks = [time.perf_counter()]
    if str(settings.device or "").lower() != "cpu":
        probe_drivers()
    marks.append(time.perf_counter())
    choice = select_device(settings)
    marks.append(time.perf_counter())
    if choice.found is None:
        raise NotSupportedError(choice.reason)
    open_device(choice.found, settings).close()
    marks.append(time.perf_counter())
    steps = zip(("probe", "instance", "device"), marks, marks[1:], strict=False)
    return {name: end - start for name, start, end in steps}


def known_quirks(profile: DeviceProfile) -> dict[str, str]:
    """The known bugs and peculiarities of the device's driver, by name."""
    from webnn_vk.driver.vulkan.quirks import QUIRKS, quirks_of

    names = quirks_of(profile)
    return {quirk.name: quirk.reason for quirk in QUIRKS if quirk.name in names}


def choose_device(found: Sequence[FoundDevice], **wishes: Any) -> int | None:
    """The index in ``found`` of the device to use, None for the CPU device. ``wishes`` are the
    options of ``vulkan.devices.choose_device``. DriverUnavailable if a named device can't be used.
    """
    from webnn_vk.driver.vulkan import devices

    return devices.choose_device(
        [device.profile for device in found],
        **{"unusable": [device.unusable for device in found], **wishes},
    )


@dataclass(frozen=True)
class Choice:
    """The device of a context, None for the CPU device, with the reason in words. ``unasked``: the
    CPU device was selected without being requested."""

    found: FoundDevice | None
    reason: str
    unasked: bool = False


def select_device(
    settings: Settings,
    *,
    power_preference: str = "default",
    accelerated: bool = True,
    failed: Mapping[int, str] = _NONE,
) -> Choice:
    """The device for ``ml.create_context``. ``failed``: devices by number that were tried, with the
    reasons why they can't be used. NotSupportedError for a named device that can't be used."""
    wanted = str(settings.device or "")
    if wanted.lower() == "cpu":
        return Choice(None, "the CPU device was asked for")
    if not wanted and not accelerated and power_preference == "default":
        return Choice(None, "accelerated=False asks for the CPU device")
    if settings.driver == "null":
        return Choice(_null_device(settings), "the null driver was asked for")
    try:
        found = find_devices(validate=settings.validate, meanwhile=_IMPORTS)
        reasons = [d.unusable or failed.get(d.index) for d in found]
        index = choose_device(
            found,
            power_preference=power_preference,
            accelerated=accelerated,
            override=settings.device,
            asked=settings.asked_device,
            unusable=reasons,
        )
    except DriverUnavailable as error:
        if wanted:
            raise NotSupportedError(str(error)) from None
        return Choice(None, f"no Vulkan device ({error}); the CPU device is used", unasked=True)
    except DriverError as error:
        raise NotSupportedError(str(error)) from error
    if index is not None:
        return Choice(found[index], f"{wanted!r} was asked for" if wanted else "the best GPU")
    names = ", ".join(
        f"{d.profile.name}: {why or 'software'}" for d, why in zip(found, reasons, strict=True)
    )
    software = any(why is None for why in reasons)
    return Choice(
        None,
        f"no GPU ({names or 'no Vulkan device'}); the CPU device is used"
        + ". WEBNN_VK_DEVICE=vulkan takes a software Vulkan device" * software,
        unasked=True,
    )


@dataclass(frozen=True)
class NullDevice:
    """A device of the null driver; it is none of the machine's devices. ``pretended``: one of
    several, with this profile."""

    index: int = -1
    unusable: str | None = None
    pretended: DeviceProfile | None = None

    @property
    def profile(self) -> DeviceProfile:
        """The profile of the null driver."""
        from webnn_vk.driver.null.profile import NULL_PROFILE

        return self.pretended or NULL_PROFILE


def _null_devices() -> list[NullDevice]:
    from webnn_vk.driver.null.profile import pretended

    return [NullDevice(index, None, profile) for index, profile in enumerate(pretended())]


def _null_device(settings: Settings) -> NullDevice:
    """The device of the null driver: of several that it pretends to have, the one that is named."""
    found = _null_devices()
    wanted = str(settings.device or "")
    if not found or wanted.lower() in ("", "vulkan"):
        return found[0] if found else NullDevice()
    try:
        matches = devices_named(wanted, [device.profile for device in found])
    except ValueError as error:
        raise NotSupportedError(f"{settings.asked_device}: {error}") from None
    if not matches:
        raise NotSupportedError(
            f"{settings.asked_device} matches none of the {len(found)} devices that the null "
            "driver pretends to have"
        )
    return found[matches[0]]


@dataclass(frozen=True)
class Opened:
    """The result of ``open_best``: ``device`` is None for the CPU device. ``passed_over``: better
    devices that could not be opened, with the reasons."""

    choice: Choice
    device: DriverDevice | None
    passed_over: tuple[str, ...]


def open_best(
    settings: Settings, *, power_preference: str = "default", accelerated: bool = True
) -> Opened:
    """Open the device that ``select_device`` selects. If it can't be opened, open the next best,
    finally the CPU device. NotSupportedError with the reason if the device was named, or a driver
    other than Vulkan."""
    if settings.driver == "kompute":
        _need_kompute()
    failed: dict[int, str] = {}
    passed: list[str] = []
    while True:
        choice = select_device(
            settings, power_preference=power_preference, accelerated=accelerated, failed=failed
        )
        if choice.found is None:
            return Opened(choice, None, tuple(passed))
        try:
            return Opened(choice, open_device(choice.found, settings), tuple(passed))
        except DeviceNotOpened as error:
            if settings.driver != "vulkan":
                raise
            failed[choice.found.index] = error.reason
            passed.append(f"{choice.found.profile.name} is passed over: {error.reason}")


class DeviceNotOpened(NotSupportedError):
    """A device can't be opened; ``reason`` doesn't contain its name."""

    name = "NotSupportedError"  # type: ignore[assignment]

    def __init__(self, device: str, reason: str) -> None:
        super().__init__(f"{device}: {reason}")
        self.reason = reason


def last_failure(found: FoundDevice) -> str | None:
    """Why the device can't be used as far as this process knows: it is unusable, or the last
    attempt to open it failed (the next may succeed)."""
    return found.unusable or _not_opened.get(found.index)


def why_not_opened(found: Sequence[FoundDevice], driver: str = "vulkan") -> list[str | None]:
    """Opens each device with the driver and closes it again: why that failed, or None."""
    reasons = []
    for device in found:
        reason = device.unusable
        if reason is None:
            try:
                open_device(device, Settings(driver=driver)).close()
            except DeviceNotOpened as error:
                reason = error.reason
        reasons.append(reason)
    return reasons


def open_device(found: Any, settings: Settings) -> DriverDevice:
    """The device with the features that ``settings`` allow, and its shaders. TypeError for an
    unknown feature to mask, NotSupportedError if the device can't be opened."""
    with forks.undisturbed():
        compiler = find_compiler(settings.glslang)
        shaders = (
            ShaderStore(compiler=compiler)
            if settings.cache is None
            else ShaderStore(settings.cache_folder, compiler=compiler)
        )
        engine = find_engine(settings.cpu_engine)
    try:
        driver = _open_driver(found, settings)
    except ValueError as error:
        raise TypeError(f"mask: {error}") from None
    except DriverError as error:
        _not_opened[found.index] = str(error)
        raise DeviceNotOpened(found.profile.name, str(error)) from error
    try:
        _not_opened.pop(found.index, None)
        return DriverDevice(driver, shaders, engine)
    except BaseException:
        driver.close()
        raise


def _open_driver(found: Any, settings: Settings) -> Driver:
    profile = found.profile.masked(settings.mask)
    if settings.driver == "null":
        from webnn_vk.driver.null.driver import NullDriver

        return NullDriver(profile, **_said(settings))
    if settings.driver == "kompute":
        with forks.undisturbed():
            from webnn_vk.driver.kompute.driver import open_driver as open_kompute
            from webnn_vk.driver.vulkan.driver_search import Drivers

            # As in the list: without drivers that crash or hang.
            with Drivers().asking():
                return open_kompute(profile, found.index)
    with forks.undisturbed():
        from webnn_vk.driver.vulkan.driver import open_driver
    return open_driver(found, profile=profile)


def _said(settings: Settings) -> dict[str, Any]:
    """Where the null driver writes its record of submissions: a file in the folder for texts."""
    if settings.dump is None:
        return {}
    folder = Path(settings.dump)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"submissions-{os.getpid()}.txt"

    def say(line: str) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    return {"say": say}


def _need_kompute() -> None:
    """NotSupportedError, with advice, if Kompute's module can't be loaded."""
    with forks.undisturbed():
        from webnn_vk.driver.kompute.binding import load

    try:
        load()
    except DriverUnavailable as error:
        raise NotSupportedError(str(error)) from error
