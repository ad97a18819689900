"""``webnn_vk.ml``: creating contexts (§8.2) and listing devices.

The module is named after ``navigator.ml``; a module called ``ml`` would hide the instance.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Literal, get_args

from webnn_vk.compiler.types.data_types import shown, to_bool
from webnn_vk.driver import DriverError, DriverUnavailable
from webnn_vk.driver.device_info import DeviceInfo
from webnn_vk.driver.device_profile import check_feature
from webnn_vk.gpu.device_state import device_state
from webnn_vk.runtime.cpu import CpuDevice
from webnn_vk.runtime.device_selection import (
    FoundDevice,
    find_devices,
    last_failure,
    open_best,
    open_device,
    select_device,
)
from webnn_vk.runtime.driver_device import DriverDevice
from webnn_vk.runtime.engine_selection import find_engine
from webnn_vk.runtime.timeline import Timeline
from webnn_vk.support import background, environment
from webnn_vk.support.errors import DOMException, NotSupportedError, shortage_error
from webnn_vk.support.experimental import require_experimental
from webnn_vk.support.promise import MLPromise, settle_in_background
from webnn_vk.support.settings import DRIVERS, MLDriver, Settings
from webnn_vk.support.warnings import call_site
from webnn_vk.support.warnings import say_once as _say_once

from .compute_policy import COMPUTE_POLICIES, MLComputePolicy
from .context import MLContext
from .interop import wgpu

MLPowerPreference = Literal["default", "high-performance", "low-power"]
POWER_PREFERENCES = get_args(MLPowerPreference)


class ML:
    """The counterpart of ``navigator.ml``; its one instance is ``webnn_vk.ml``."""

    def create_context(
        self,
        gpu_device: Any = None,
        *,
        power_preference: MLPowerPreference = "default",
        accelerated: bool = True,
        driver: MLDriver | None = None,
        settings: Settings | None = None,
        experimental: Sequence[str] | None = None,
        compute_policy: MLComputePolicy | None = None,
    ) -> MLPromise[MLContext]:
        """A context on ``gpu_device``, or on the best device (§8.2.2).

        A context on a ``webnn_vk.gpu.GPUDevice`` shares the device's order of work; the options for
        choosing a device are ignored. For a ``wgpu.GPUDevice`` the context is on the same hardware,
        with a separate timeline.

        By default the best GPU is chosen. ``power_preference`` "low-power" prefers an integrated
        GPU, "high-performance" a discrete one; both take precedence over ``accelerated``.
        ``accelerated=False`` chooses the CPU device. A software Vulkan device is chosen only when
        ``settings.device`` (or ``WEBNN_VK_DEVICE``) names it. ``driver`` replaces the settings'
        driver, see ``Settings``. ``experimental`` names drafts of the Working Group that the
        context implements (extension): "dynamic-shapes", "subgraph", "low-precision",
        "compute-policy". Without a name its features are refused. ``compute_policy`` (experimental)
        replaces ``power_preference`` and has one value more, "fallback": the CPU device, whatever
        ``accelerated`` says.

        Rejects with TypeError for invalid options, ValueError for invalid settings (an unknown
        operator to force, pass to skip or feature to mask, or an environment variable that can't be
        read), NotSupportedError when the requested device can't be used, OperationError when
        threads, memory or files run out. After a failure nothing of the context remains, and the
        call may be repeated.
        """
        for name, given, known in (
            ("power_preference", power_preference, POWER_PREFERENCES),
            ("driver", "vulkan" if driver is None else driver, DRIVERS),
            (
                "compute_policy", "default" if compute_policy is None else compute_policy,
                COMPUTE_POLICIES,
            ),
        ):
            if type(given) is not str or given not in known:
                return MLPromise.rejected(
                    TypeError(f"{name}: {shown(given)} is not one of {', '.join(known)}")
                )
        place = _place_of_call(inspect.currentframe())

        def create() -> MLContext:
            call_site.set(place)
            chosen = Settings.given(settings, driver=driver, experimental=experimental)
            _check(chosen)
            if compute_policy is not None:
                what = "create_context: compute_policy"
                require_experimental(chosen.experimental, "compute-policy", what)
                if power_preference != "default":
                    raise TypeError(f"{what} replaces power_preference; one of both is expected")
            if gpu_device is not None:
                return _context_on(gpu_device, chosen)
            wanted = to_bool(accelerated, "create_context: accelerated")
            if compute_policy == "fallback":
                return _create(chosen, "default", False)
            return _create(chosen, compute_policy or power_preference, wanted)

        return settle_in_background(
            MLPromise("an MLContext"), create, "create",
            lambda error: shortage_error(error, "create_context"),
        )


ml = ML()


def devices() -> list[DeviceInfo]:
    """The Vulkan devices and the CPU device (extension). The device that ``create_context()``
    chooses is marked; none is if that would fail. ``unusable`` says why a device can't be used. A
    driver that crashes, hangs or fails during the query is listed in place of its devices. Waits
    for the drivers. Never raises: if the Vulkan devices can't be listed, a warning says why."""
    return background.run_on_worker(_devices, _place_of_call(inspect.currentframe()))


def _devices(place: tuple[str, int]) -> list[DeviceInfo]:
    call_site.set(place)
    found: Sequence[FoundDevice] = ()
    try:
        found = find_devices(driver=environment.text("WEBNN_VK_DRIVER") or "vulkan")
    except DriverUnavailable:
        pass  # no Vulkan on this machine: the CPU device is what there is
    except (DriverError, ValueError) as error:
        _say_once(f"the Vulkan devices can't be listed: {error}")
    default = _default_index()
    listed = [
        DeviceInfo.of(d.profile, d.index, last_failure(d), d.index == default) for d in found
    ]
    try:
        engine = find_engine(Settings.from_environment().cpu_engine)
    except (ValueError, NotSupportedError) as error:
        _say_once(f"the CPU device is listed with NumPy: {error}")
        engine = find_engine("numpy")
    return [*listed, _cpu_info(CpuDevice(engine), default is None)]


def _place_of_call(frame: FrameType | None) -> tuple[str, int]:
    """File and line from which the function of a frame was called."""
    caller = frame.f_back if frame is not None else None
    return (caller.f_code.co_filename, caller.f_lineno) if caller is not None else ("webnn_vk", 0)


def _default_index() -> int | None:
    """The index of the Vulkan device that ``create_context()`` chooses; None for the CPU device, −1
    if it would fail."""
    try:
        found = select_device(Settings.from_environment()).found
    except (DOMException, TypeError, ValueError):
        return -1
    return None if found is None else found.index


def _is_default(index: int | None) -> bool:
    return _default_index() == index


def _check(settings: Settings) -> None:
    """Check the settings' names of passes, operators and features, and their folders, before a
    device is selected."""

    def check_mask(names: Collection[str]) -> None:
        for name in names:
            try:
                check_feature(name)
            except ValueError as error:
                raise TypeError(f"mask: {error}") from None

    def check_skipped(names: Collection[str]) -> None:
        if names:
            from webnn_vk.compiler.program import check_skip

            check_skip(names)

    def check_operators(names: Collection[str]) -> None:
        if names:
            from webnn_vk.compiler.program import check_forced

            check_forced(names)

    for name, check in (
        ("skip_passes", check_skipped), ("force_cpu", check_operators), ("mask", check_mask)
    ):
        try:
            check(getattr(settings, name))
        except (ValueError, TypeError) as error:
            message = str(error).replace(f"{name}: ", f"{settings.called(name)}: ", 1)
            raise type(error)(message) from None
    for name in ("cache", "dump"):
        folder = getattr(settings, name)
        if isinstance(folder, Path) and folder.exists() and not folder.is_dir():
            raise ValueError(f"{settings.called(name)}: {str(folder)!r} is not a folder")


def _create(settings: Settings, power_preference: str, accelerated: bool) -> MLContext:
    opened = open_best(settings, power_preference=power_preference, accelerated=accelerated)
    # One line is enough: the reason for the CPU device names the devices passed over.
    for line in [opened.choice.reason] if opened.choice.unasked else opened.passed_over:
        _say_once(line)
    if settings.driver == "null" and opened.device is not None:
        _say_once("the null driver computes nothing: outputs hold what their memory held before")
    if opened.device is None or opened.choice.found is None:
        device = CpuDevice(find_engine(settings.cpu_engine))
        info = _cpu_info(device, partial(_is_default, None))
        return _context(Timeline(device), info, settings, accelerated=accelerated)
    return _context_over(opened.device, opened.choice.found.index, settings, accelerated)


def _context_over(
    device: DriverDevice, index: int, settings: Settings, accelerated: bool, **options: Any
) -> MLContext:
    number = index if index >= 0 else None  # the null device isn't one of the machine's devices
    info = DeviceInfo.of(device.profile, number, chosen=partial(_is_default, index))
    return _context(Timeline(device), info, settings, accelerated=accelerated, **options)


def _context_on(gpu_device: Any, settings: Settings) -> MLContext:
    if wgpu.is_device(gpu_device):
        return _wgpu_context(gpu_device, settings)
    gpu = device_state(gpu_device, "create_context", "; options are given by keyword")
    index = gpu_device.adapter.info.index
    info = DeviceInfo.of(gpu.device.profile, index, chosen=partial(_is_default, index))
    return _context(gpu.timeline, info, settings, gpu_device=gpu_device)


def _wgpu_context(gpu_device: Any, settings: Settings) -> MLContext:
    """On the same hardware, opened once more: wgpu-native doesn't share a device."""
    wgpu.check_device(gpu_device, "create_context")
    try:
        found = find_devices(validate=settings.validate)
    except DriverError as error:
        raise NotSupportedError(str(error)) from error
    usable = [device for device in found if device.unusable is None]
    same = usable[wgpu.matching(gpu_device, [device.profile for device in usable])]
    device = open_device(same, settings)
    return _context_over(device, same.index, settings, accelerated=True, gpu_device=gpu_device)


def _context(
    timeline: Timeline, info: DeviceInfo, settings: Settings, **options: Any
) -> MLContext:
    device = timeline.device
    try:
        if isinstance(device, DriverDevice) and not device.shaders.has_compiler:
            _say_once(_without_compiler(info.name, device.shaders.has_pack))
        return MLContext(timeline, info, settings, **options)
    except BaseException:
        timeline.close_unused()
        raise


def _without_compiler(device: str, has_pack: bool) -> str:
    """The warning that says where graphs run without a compiler."""
    if has_pack:
        return (
            f"no GLSL compiler; {device} runs the precompiled shaders, without fusion, and the CPU "
            "runs the operators without one"
        )
    return (
        "no GLSL compiler, and no precompiled shaders in this installation: all operators run on "
        f"the CPU, not on {device}, except those whose shaders are in the cache (Debian, Ubuntu: "
        "apt install glslang-tools; or pip install vkdispatch-vulkan-native)"
    )


def _cpu_info(device: CpuDevice, chosen: bool | Callable[[], bool]) -> DeviceInfo:
    limits = {"max_tensor_byte_length": device.max_tensor_byte_length}
    return DeviceInfo(device.name, "numpy", limits=limits, chosen=chosen)
