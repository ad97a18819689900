"""``GPUAdapter``: a Vulkan device of this machine. ``GPUDevice``: an opened device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from webnn_vk.driver import DriverError, DriverUnavailable
from webnn_vk.driver.device_info import DeviceInfo
from webnn_vk.runtime.device_selection import FoundDevice, choose_device, find_devices, open_device
from webnn_vk.runtime.driver_device import DriverDevice
from webnn_vk.runtime.tensor_state import Owner, TensorBase, owned
from webnn_vk.runtime.work import Write
from webnn_vk.support import background
from webnn_vk.support.errors import InvalidStateError, NotSupportedError
from webnn_vk.support.mixins import OneOfAKind, PublicDir, html_table
from webnn_vk.support.promise import MLPromise, settle_in_background
from webnn_vk.support.settings import Settings

from .buffer import GPUBuffer
from .device_state import DeviceState, GPUDeviceBase, GPUDeviceLostInfo
from .encoder import GPUBindGroup, GPUCommandEncoder
from .flags import SUPPORTED_USAGE, GPUBufferUsage
from .objects import integer, named
from .query import GPUQuerySet, missing, webgpu_features
from .queue import GPUQueue, byte_view, write_bytes
from .semaphore import GPUSemaphore
from .shader import GPUComputePipeline, GPUShaderModule

POWER_PREFERENCES = ("low-power", "high-performance")


class GPUAdapter(PublicDir):
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
        """Names of the features, as in ``context.device_info``, and WebGPU's "timestamp-query"
        where the device has timestamps."""
        return webgpu_features(self._profile)

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
            if chosen.driver != "vulkan":
                raise NotSupportedError(
                    f"a GPUDevice needs the driver vulkan; {chosen.called('driver')} is "
                    f"{chosen.driver!r}, whose buffers can't be shared"
                )
            return GPUDevice(self, open_device(self._physical, chosen), chosen)

        return settle_in_background(MLPromise("a GPUDevice"), opened, "gpu")

    def __repr__(self) -> str:
        return f"<GPUAdapter {self.info}>"

    def _repr_html_(self) -> str:
        return self.info._repr_html_()


class GPUDevice(PublicDir, OneOfAKind, GPUDeviceBase):
    """An opened device, made by ``adapter.request_device()``. ``ml.create_context(gpu_device)``
    makes a context on it.

    The device and its contexts share one order of work: each call sees the results of all calls
    before it, without waits by the host. (CPU steps of a context's graph delay only that context
    and what it hands over.) Every method may be called from any thread.
    """

    def __init__(self, adapter: GPUAdapter, device: DriverDevice, settings: Settings) -> None:
        self._adapter = adapter
        self._state = DeviceState(device, settings)
        self._queue = GPUQueue(self._state)

    @property
    def adapter(self) -> GPUAdapter:
        """The adapter it was made from."""
        return self._adapter

    @property
    def queue(self) -> GPUQueue:
        """Its one GPUQueue."""
        return self._queue

    @property
    def limits(self) -> dict[str, int]:
        """Name → number."""
        return self._adapter.limits

    @property
    def features(self) -> frozenset[str]:
        """Names of the features in use, including WebGPU's "timestamp-query" where
        ``create_query_set`` works."""
        if missing(self._state) is not None:
            return self._state.device.profile.features
        return webgpu_features(self._state.device.profile)

    @property
    def lost(self) -> MLPromise[GPUDeviceLostInfo]:
        """Resolves once, when the device is lost or destroyed."""
        return self._state.lost

    # -- creation ------------------------------------------------------------------------------
    def create_buffer(self, *, size: int, usage: int, label: str = "") -> GPUBuffer:
        """A zeroed buffer of ``size`` bytes. ``usage``: any combination of STORAGE, COPY_SRC,
        COPY_DST and QUERY_RESOLVE. Returns at once. Raises TypeError or ValueError for an invalid
        size or usage, OperationError when the device is out of memory, InvalidStateError when it is
        lost."""
        what = named("create_buffer", label)
        size, usage = integer(size, f"{what}: size"), integer(usage, f"{what}: usage")
        limit = self._state.device.max_tensor_byte_length
        if not 1 <= size <= limit:
            raise ValueError(f"{what}: size {size}; a buffer has 1 to {limit} bytes")
        if not usage or usage & ~int(SUPPORTED_USAGE):
            raise ValueError(
                f"{what}: usage {GPUBufferUsage(usage)!r}; STORAGE, COPY_SRC, COPY_DST and "
                "QUERY_RESOLVE are supported (queue.write_buffer and read_buffer take the place of "
                "mapping)"
            )
        self._state.check(what)

        def create() -> GPUBuffer:
            with self._state.translated(what):
                storage = self._state.device.create_storage(size)
            self._state.stream.enqueue(Write(storage, None))
            return GPUBuffer(self._state, storage, GPUBufferUsage(usage), label)

        return background.run_on_worker(create)

    def create_buffer_with_data(self, *, data: Any, usage: int, label: str = "") -> GPUBuffer:
        """A buffer with a copy of ``data``, any contiguous object with the buffer protocol. The
        call waits only when the staging memory is full. Raises TypeError for other data, otherwise
        as ``create_buffer``."""
        what = named("create_buffer_with_data", label)
        view = byte_view(data, what)
        buffer = self.create_buffer(size=len(view), usage=usage, label=label)
        write_bytes(self._state, buffer, 0, view, what)
        return buffer

    def create_shader_module(self, *, code: Any, label: str = "") -> GPUShaderModule:
        """A compute shader from GLSL (str), SPIR-V (bytes) or a ``codegen.KernelSpec``. Blocks
        while GLSL is compiled.

        All storage buffers are in set 0. SPIR-V is trusted like any native code: accesses outside
        of a buffer are undefined. Raises ValueError with the compiler's log for GLSL that doesn't
        compile, TypeError for other code, NotSupportedError without a compiler, InvalidStateError
        when the device is lost.
        """
        self._state.check("create_shader_module")
        return background.run_on_worker(GPUShaderModule, self._state, code, label)

    def create_compute_pipeline(
        self,
        *,
        module: GPUShaderModule,
        entry_point: str = "main",
        constants: Mapping[Any, Any] | None = None,
        label: str = "",
    ) -> GPUComputePipeline:
        """A shader ready to run. ``constants``: specialisation constant id → number (for a
        KernelSpec's module also name → number). Blocks while the driver compiles. Raises TypeError
        or ValueError for an invalid module, entry point, constant or workgroup, OperationError when
        the driver fails, InvalidStateError when the device is lost."""
        self._state.check("create_compute_pipeline")
        return background.run_on_worker(
            GPUComputePipeline, self._state, module, entry_point, constants or {}, label
        )

    def create_bind_group(self, *, entries: Any, label: str = "") -> GPUBindGroup:
        """The buffers of a dispatch. ``entries``: buffers (or GPUBufferBindings, or mappings with
        buffer, offset and size, in bytes) in the order of their bindings, or mappings with binding
        and resource. The buffers need usage STORAGE. Returns at once. Raises TypeError or
        ValueError for invalid entries, InvalidStateError for a destroyed buffer or a lost
        device."""
        self._state.check("create_bind_group")
        return GPUBindGroup(self._state, entries, label)

    def create_command_encoder(self, *, label: str = "") -> GPUCommandEncoder:
        """An encoder that records commands for ``queue.submit``. Returns at once. Raises
        InvalidStateError when the device is lost."""
        self._state.check(named("create_command_encoder", label))
        return GPUCommandEncoder(self._state, label)

    def create_query_set(self, *, type: str, count: int, label: str = "") -> GPUQuerySet:
        """``count`` slots (1 to 4096) for times; ``type`` is "timestamp". Returns at once. Raises
        TypeError or ValueError for other arguments, NotSupportedError with the reason where the
        device lacks the feature "timestamp-query", InvalidStateError when the device is lost."""
        return background.run_on_worker(GPUQuerySet, self._state, type, count, label)

    def create_exportable_semaphore(self) -> GPUSemaphore:
        """A semaphore that orders the device's work with CUDA, another device or another process.
        Returns at once. Raises InvalidStateError when the device is lost, NotSupportedError when it
        has no VK_KHR_external_semaphore_fd for timeline semaphores."""
        what = "create_exportable_semaphore"
        self._state.check(what)
        return background.run_on_worker(GPUSemaphore, self._state.stream, what)

    def import_external_buffer(self, tensor: TensorBase) -> MLPromise[GPUBuffer]:
        """The buffer of an MLTensor that is exportable to this device: ``context.export_to_gpu``
        from the device's side. Rejects with the same errors: TypeError, InvalidStateError."""
        caller = Owner()
        try:
            self._state.check("import_external_buffer")
            state = owned(tensor, None, "import_external_buffer")
            if state.external is not None and state.external.gpu_device is not self:
                raise TypeError(f"import_external_buffer: {tensor!r} is for another GPUDevice")
            export = state.export(caller)
            promise: MLPromise[GPUBuffer] = MLPromise.resolved(export.buffer)
            export.seen = True
            return promise
        except BaseException as error:
            caller.gone = True
            if isinstance(error, (TypeError, InvalidStateError)):
                return MLPromise.rejected(error)
            raise

    # -- end -----------------------------------------------------------------------------------
    def destroy(self) -> None:
        """End this object's use of the device, at once. Submitted work completes, exported buffers
        return to their tensors, and contexts on the device stay usable. A second call does nothing.
        Raises InvalidStateError in a forked child."""
        self._state.destroy()

    def __enter__(self) -> GPUDevice:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._state.timeline.forked:
            self.destroy()

    def __repr__(self) -> str:
        return repr(self._state)

    def _repr_html_(self) -> str:
        rows = [("adapter", self._adapter.info), ("lost", "yes" if self.lost.done() else "no"),
                ("features", ", ".join(sorted(self.features))), *self.limits.items()]
        return html_table(rows, caption="GPUDevice")


def enumerate_adapters() -> list[GPUAdapter]:
    """The usable Vulkan devices, in Vulkan's order; an empty list without Vulkan. Waits for the
    driver. Raises ValueError for invalid settings in the environment."""
    try:
        found = background.run_on_worker(_find_devices)
        return [GPUAdapter(device) for device in found if device.unusable is None]
    except DriverUnavailable:
        return []


def request_adapter(*, power_preference: str | None = None) -> MLPromise[GPUAdapter]:
    """The best adapter: the device that ``WEBNN_VK_DEVICE`` names, else the best GPU, else a
    software device. ``power_preference``: "low-power" prefers an integrated GPU, "high-performance"
    a discrete one. Rejects with NotSupportedError when there is none."""
    if power_preference not in (None, *POWER_PREFERENCES):
        return MLPromise.rejected(
            TypeError(
                f"power_preference: {power_preference!r} is not one of "
                f"{', '.join(POWER_PREFERENCES)}"
            )
        )

    def chosen() -> GPUAdapter:
        settings = Settings.from_environment()
        wanted: Any = settings.device
        try:
            devices = _find_devices()
            index = choose_device(
                devices,
                power_preference=power_preference or "default",
                override=wanted if wanted and wanted.lower() != "cpu" else "vulkan",
                asked=settings.asked_device if wanted and wanted.lower() != "cpu" else "",
            )
        except DriverError as error:
            raise NotSupportedError(f"no GPU adapter: {error}") from error
        assert index is not None  # with "vulkan", choose_device returns one or raises
        return GPUAdapter(devices[index])

    return settle_in_background(MLPromise("a GPUAdapter"), chosen, "gpu")


def _find_devices() -> Sequence[FoundDevice]:
    return find_devices(validate=Settings.from_environment().validate)
