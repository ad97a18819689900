"""Adapters: the Vulkan devices of this machine, and opening them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import background
from ..device_info import DeviceInfo
from ..driver import DriverError, DriverUnavailable
from ..errors import InvalidStateError, NotSupportedError
from ..opening import FoundDevice, choose_device, find_devices, open_device
from ..promise import MLPromise
from ..settings import Settings
from .device import GPUDevice

POWER_PREFERENCES = ("low-power", "high-performance")


class GPUAdapter:
    """A Vulkan device that can be opened, software ones included."""

    def __init__(self, physical: FoundDevice) -> None:
        self._physical = physical
        self._profile = physical.profile

    @property
    def info(self) -> DeviceInfo:
        """Name, type, driver, API version, limits and features."""
        return DeviceInfo.of(self._profile, self._physical.index, self._physical.unusable)

    @property
    def features(self) -> frozenset[str]:
        """Names of the features, as in ``context.device_info``."""
        return self._profile.features

    @property
    def limits(self) -> dict[str, int]:
        """WebGPU's limits that matter for compute, by their names in snake_case."""
        p = self._profile
        x, y, z = p.max_workgroup_size
        return {
            "max_bind_groups": 1,
            "max_buffer_size": p.max_tensor_byte_length,
            "max_storage_buffer_binding_size": p.max_storage_buffer_range,
            "max_storage_buffers_per_shader_stage": p.max_storage_buffers_per_stage,
            "min_storage_buffer_offset_alignment": p.min_storage_buffer_offset_alignment,
            "max_push_constant_size": p.max_push_constants_size,
            "max_compute_invocations_per_workgroup": p.max_workgroup_invocations,
            "max_compute_workgroup_storage_size": p.max_shared_memory,
            "max_compute_workgroup_size_x": x,
            "max_compute_workgroup_size_y": y,
            "max_compute_workgroup_size_z": z,
            "max_compute_workgroups_per_dimension": min(p.max_workgroup_count),
        }

    def request_device(self, *, settings: Settings | None = None) -> MLPromise[GPUDevice]:
        """Open the device. ``settings``: its compiler, cache and masked features; by default the
        environment's. Rejects with NotSupportedError when the device can't be used."""

        def opened() -> GPUDevice:
            chosen = Settings.given(settings)
            return GPUDevice(self, open_device(self._physical, chosen), chosen)

        return _promised(opened)

    def __repr__(self) -> str:
        return f"<GPUAdapter {self.info}>"


def enumerate_adapters() -> list[GPUAdapter]:
    """The usable Vulkan devices, in Vulkan's order; none where there is no Vulkan."""
    try:
        return [GPUAdapter(found) for found in _find_devices() if found.unusable is None]
    except DriverUnavailable:
        return []


def request_adapter(*, power_preference: str | None = None) -> MLPromise[GPUAdapter]:
    """The adapter that suits best: what ``WEBNN_VK_DEVICE`` names, else the best GPU, else a
    software device. ``power_preference``: "low-power" prefers an integrated one,
    "high-performance" a discrete one. Rejects with NotSupportedError when there is none."""
    if power_preference not in (None, *POWER_PREFERENCES):
        return MLPromise.rejected(
            TypeError(
                f"power_preference: {power_preference!r} is not one of "
                f"{', '.join(POWER_PREFERENCES)}"
            )
        )

    def chosen() -> GPUAdapter:
        wanted: Any = Settings.from_environment().device
        try:
            found = _find_devices()
            index = choose_device(
                found,
                power_preference=power_preference or "default",
                override=wanted if wanted and wanted.lower() != "cpu" else "vulkan",
            )
        except DriverError as error:
            raise NotSupportedError(f"no GPU adapter: {error}") from error
        assert index is not None  # "vulkan" names one or raises
        return GPUAdapter(found[index])

    return _promised(chosen)


def _promised(function: Callable[[], Any]) -> MLPromise[Any]:
    """What ``function`` returns or raises, from a thread of its own."""
    promise: MLPromise[Any] = MLPromise()

    def run() -> None:
        try:
            promise.resolve(function())
        except Exception as error:
            promise.reject(error)

    if not background.start(run, "gpu"):
        promise.reject(InvalidStateError("the interpreter is exiting"))
    return promise


def _find_devices() -> Sequence[FoundDevice]:
    return find_devices(validate=Settings.from_environment().validate)
