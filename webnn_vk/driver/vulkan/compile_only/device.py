"""A device of a driver of Mesa without a GPU: it compiles pipelines for a chip and runs nothing.

A shim makes any driver open it (`codegen.isa.chips`). RADV before Mesa 26 also opens one ("Null
hardware") when `RADV_FORCE_FAMILY` names a chip and there is no AMD GPU. The variables are read
when the driver is loaded, so each chip needs a separate process (`process`). The device is not a
driver of the interface: no context opens it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.resources import PipelineRequest
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan.driver import create_device
from webnn_vk.driver.vulkan.instance import instance
from webnn_vk.driver.vulkan.pipelines import (
    binding_kinds,
    create_layout,
    create_pipeline,
    create_set_layout,
    descriptor_type,
)
from webnn_vk.driver.vulkan.snapshot import enumerate_devices
from webnn_vk.support.dataclass import dataclass

EXTENSION = "VK_KHR_pipeline_executable_properties"
#: By number of a descriptor set and of a binding: Vulkan's number of the descriptor's type.
Sets = Mapping[int, Mapping[int, int]]
#: How drivers name the assembly among a pipeline's internal representations.
_ASSEMBLY = ("assembly", "final ir", "ir3")


class ChipUnavailable(Exception):
    """The driver has no such chip; the message names its devices."""


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel: the driver's statistics by name, and the ISA ("" if not requested, or if
    the driver does not give it)."""

    statistics: dict[str, int | float]
    assembly: str


class CompileOnlyDevice:
    """RADV's null device for ``chip`` (RADV's name, such as "NAVI21"), or the driver's only device.
    `profile` has the chip's features and limits. The null device reports no memory: it has the
    memory of a typical card."""

    def __init__(self, chip: str | None) -> None:
        found = enumerate_devices(instance(validate=False))
        device = found[0] if found else None
        if chip is not None:
            device = next((d for d in found if d.profile.name.endswith(f"RADV {chip})")), None)
            if device is not None and "Null hardware" not in device.profile.name:
                device = None
        if device is None:
            names = ", ".join(d.profile.name for d in found) or "no device"
            raise ChipUnavailable(f"no null device for {chip}; the driver has {names}")
        if EXTENSION not in device.extensions:
            raise ChipUnavailable(f"{device.profile.name} has no {EXTENSION}")
        self.profile: DeviceProfile = device.profile
        if not self.profile.memory_heaps:
            self.profile = self.profile.replace(
                memory_heaps=((16 << 30, True), (16 << 30, False)),
                memory_types=(
                    (0, ("device_local",)),
                    (1, ("host_visible", "host_coherent")),
                    (1, ("host_visible", "host_coherent", "host_cached")),
                ),
            )
        executable = vk.struct(
            "VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR",
            "PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR",
            pipelineExecutableInfo=1,
        )
        self._device = create_device(device, self.profile, [executable], [EXTENSION])
        self._statistics = vk.device_function(
            self._device, "vkGetPipelineExecutableStatisticsKHR"
        )
        self._representations = vk.device_function(
            self._device, "vkGetPipelineExecutableInternalRepresentationsKHR"
        )

    def compile(
        self, request: PipelineRequest, assembly: bool = True, sets: Sets | None = None
    ) -> Compiled:
        """Compile a module. Thread-safe; releases the interpreter's lock. Raises VulkanError.

        assembly: whether to disassemble, which takes a large part of the time. sets: the module's
        bindings, where they are not the request's storage and texel buffers.
        """
        if sets is None:
            sets = {0: dict(enumerate(map(descriptor_type, binding_kinds(request))))}
        flags = vk.const("VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR")
        if assembly:
            flags |= vk.const("VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR")
        with ExitStack() as made:
            def own(kind: str, handle: Any) -> Any:
                destroy = getattr(vk.lib, f"vkDestroy{kind}")
                made.callback(destroy, self._device, handle, vk.NULL)
                return handle

            layouts = [
                own("DescriptorSetLayout", create_set_layout(self._device, sets.get(number, {})))
                for number in range(max(sets, default=-1) + 1)
            ]
            layout = own("PipelineLayout", create_layout(self._device, layouts, request.push_size))
            pipeline = own("Pipeline", create_pipeline(self._device, request, layout, flags=flags))
            text = self._read_assembly(pipeline) if assembly else ""
            return Compiled(self._read_statistics(pipeline), text)

    def _executable(self, pipeline: Any) -> Any:
        return vk.struct("VkPipelineExecutableInfoKHR", "PIPELINE_EXECUTABLE_INFO_KHR",
                         pipeline=pipeline, executableIndex=0)

    def _read_statistics(self, pipeline: Any) -> dict[str, int | float]:
        items = vk.listed(self._statistics, "VkPipelineExecutableStatisticKHR", self._device,
                          self._executable(pipeline), stype="PIPELINE_EXECUTABLE_STATISTIC_KHR")
        floating = vk.const("VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR")
        return {
            vk.text(item.name): item.value.f64 if item.format == floating else item.value.u64
            for item in items
        }

    def _read_assembly(self, pipeline: Any) -> str:
        # Two calls: the first gives the sizes of the texts, the second fills our buffers.
        executable = self._executable(pipeline)
        items = vk.listed(
            self._representations, "VkPipelineExecutableInternalRepresentationKHR", self._device,
            executable, stype="PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR",
        )
        buffers = [vk.new("char[]", item.dataSize) for item in items]
        for item, buffer in zip(items, buffers, strict=True):
            item.pData = buffer
        count = vk.new("uint32_t *", len(items))
        vk.check(self._representations(self._device, executable, count, items), "reading the ISA")
        texts = {vk.text(item.name): buffer for item, buffer in zip(items, buffers, strict=True)}
        found = [name for name in texts if any(word in name.lower() for word in _ASSEMBLY)]
        return vk.text(texts[found[-1]]) if found else ""
