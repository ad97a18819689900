"""A device of Mesa's RADV without a GPU: it compiles pipelines for a chip and runs nothing.

RADV opens it ("Null hardware") when `RADV_FORCE_FAMILY` names a chip and there is no AMD GPU. The
variable is read when the driver is loaded, so each chip needs a process of its own
(`process`). No driver of the interface: no context opens it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.resources import PipelineRequest
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan.instance import instance
from webnn_vk.driver.vulkan.pipelines import binding_kinds, descriptor_type
from webnn_vk.driver.vulkan.snapshot import (
    FEATURES_10,
    FEATURES_11,
    FEATURES_12,
    FEATURES_13,
    enumerate_devices,
)

EXTENSION = "VK_KHR_pipeline_executable_properties"
#: By number of a descriptor set and of a binding: Vulkan's number of the descriptor's type.
Sets = Mapping[int, Mapping[int, int]]
#: What the driver calls the assembly among a pipeline's internal representations.
ASSEMBLY = "Assembly"


class NoNullDevice(Exception):
    """The driver gives no null device of that chip; the message says what it gives."""


@dataclass(frozen=True)
class Compiled:
    """What the driver's compiler made of a kernel: its own statistics by name, and the ISA ("" when
    it was not wanted)."""

    statistics: dict[str, int | float]
    assembly: str


class NullDevice:
    """The null device of ``chip`` (RADV's name, e.g. "NAVI21"). `profile` has the chip's features
    and limits, and memory as a card of its kind has it: the null device reports none."""

    def __init__(self, chip: str) -> None:
        found = enumerate_devices(instance(validate=False))
        device = next((d for d in found if d.profile.name.endswith(f"RADV {chip})")), None)
        if device is None or "Null hardware" not in device.profile.name:
            names = ", ".join(d.profile.name for d in found) or "no device"
            raise NoNullDevice(f"no null device of {chip}; the driver has {names}")
        if EXTENSION not in device.extensions:
            raise NoNullDevice(f"{device.profile.name} has no {EXTENSION}")
        self.profile: DeviceProfile = device.profile.replace(
            memory_heaps=((16 << 30, True), (16 << 30, False)),
            memory_types=(
                (0, ("device_local",)),
                (1, ("host_visible", "host_coherent")),
                (1, ("host_visible", "host_coherent", "host_cached")),
            ),
        )
        self._device = _create(device.handle, device.queue_family, self.profile)
        self._statistics = vk.device_function(
            self._device, "vkGetPipelineExecutableStatisticsKHR"
        )
        self._representations = vk.device_function(
            self._device, "vkGetPipelineExecutableInternalRepresentationsKHR"
        )

    def compile(
        self, request: PipelineRequest, assembly: bool = True, sets: Sets | None = None
    ) -> Compiled:
        """Compile a module. Thread-safe, and other threads run meanwhile. Raises VulkanError.

        assembly: whether it is wanted; disassembling takes a good part of the time. sets: what the
        module binds, where that is something else than the request's storage and texel buffers.
        """
        made: list[tuple[Any, Any]] = []
        try:
            return self._compile(request, assembly, sets, made)
        finally:
            for destroy, handle in reversed(made):
                destroy(self._device, handle, vk.NULL)

    def _compile(
        self, request: PipelineRequest, assembly: bool, sets: Sets | None,
        made: list[tuple[Any, Any]],
    ) -> Compiled:
        def create(kind: str, info: Any) -> Any:
            call = getattr(vk.lib, f"vkCreate{kind}")
            handle = vk.create(call, self._device, info, f"Vk{kind}")
            made.append((getattr(vk.lib, f"vkDestroy{kind}"), handle))
            return handle

        compute = vk.const("VK_SHADER_STAGE_COMPUTE_BIT")
        if sets is None:
            sets = {0: dict(enumerate(map(descriptor_type, binding_kinds(request))))}
        layouts = []
        for number in range(max(sets, default=-1) + 1):
            kinds = sets.get(number, {})
            bindings = vk.new("VkDescriptorSetLayoutBinding[]", [
                {"binding": i, "descriptorCount": 1, "stageFlags": compute,
                 "descriptorType": kind}
                for i, kind in kinds.items()
            ])
            layouts.append(create("DescriptorSetLayout", vk.struct(
                "VkDescriptorSetLayoutCreateInfo", "DESCRIPTOR_SET_LAYOUT_CREATE_INFO",
                bindingCount=len(kinds), pBindings=bindings,
            )))
        set_layouts = vk.new("VkDescriptorSetLayout[]", layouts)
        ranges = vk.new("VkPushConstantRange[]", [
            {"stageFlags": compute, "offset": 0, "size": request.push_size}]
            if request.push_size else [])
        layout = create("PipelineLayout", vk.struct(
            "VkPipelineLayoutCreateInfo", "PIPELINE_LAYOUT_CREATE_INFO",
            setLayoutCount=len(layouts), pSetLayouts=set_layouts,
            pushConstantRangeCount=len(ranges), pPushConstantRanges=ranges,
        ))
        code = vk.ffi.from_buffer("uint32_t[]", request.spirv)
        shader = create("ShaderModule", vk.struct(
            "VkShaderModuleCreateInfo", "SHADER_MODULE_CREATE_INFO",
            codeSize=len(request.spirv), pCode=code,
        ))
        data = vk.new("char[]", b"".join(value for _, value in request.constants) or b"\0")
        entries = vk.new("VkSpecializationMapEntry[]", [
            (identifier, 4 * i, 4) for i, (identifier, _) in enumerate(request.constants)])
        special = vk.new("VkSpecializationInfo *", (len(entries), entries, 4 * len(entries), data))
        entry_point = vk.new("char[]", request.entry_point.encode())
        stage = {
            "sType": vk.const("VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO"),
            "stage": compute, "module": shader, "pName": entry_point,
            "pSpecializationInfo": special,
        }
        flags = vk.const("VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR")
        if assembly:
            flags |= vk.const("VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR")
        info = vk.struct("VkComputePipelineCreateInfo", "COMPUTE_PIPELINE_CREATE_INFO",
                         flags=flags, stage=stage, layout=layout)
        out = vk.new("VkPipeline *")
        vk.check(
            vk.lib.vkCreateComputePipelines(self._device, vk.NULL, 1, info, vk.NULL, out),
            f"compiling {request.name}",
        )
        made.append((vk.lib.vkDestroyPipeline, out[0]))
        text = self._read_assembly(out[0]) if assembly else ""
        return Compiled(self._read_statistics(out[0]), text)

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
        for item, buffer in zip(items, buffers, strict=True):
            if vk.text(item.name) == ASSEMBLY:
                return vk.text(buffer)
        names = ", ".join(vk.text(item.name) for item in items)
        raise NoNullDevice(f"the driver gives no assembly, only {names}")


def _create(physical: Any, queue_family: int, profile: DeviceProfile) -> Any:
    """A VkDevice with every feature of the profile that kernels may use."""
    features = vk.struct("VkPhysicalDeviceFeatures2", "PHYSICAL_DEVICE_FEATURES_2")
    executable = vk.struct(
        "VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR",
        "PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR", pipelineExecutableInfo=1,
    )
    versions = {
        version: vk.struct(f"VkPhysicalDeviceVulkan{version}Features",
                           f"PHYSICAL_DEVICE_VULKAN_1_{version[1]}_FEATURES")
        for version in ("11", "12", "13")
    }
    tables = (
        (features.features, FEATURES_10), (versions["11"], FEATURES_11),
        (versions["12"], FEATURES_12), (versions["13"], FEATURES_13),
    )
    for target, table in tables:
        for name in profile.features & table.keys():
            setattr(target, table[name], 1)
    if "vulkan_memory_model" in profile.features:
        versions["12"].vulkanMemoryModelDeviceScope = 1
    chained = vk.chain(features, *versions.values(), executable)
    name = vk.new("char[]", EXTENSION.encode())
    names = vk.new("char *[]", [name])
    priority = vk.new("float *", 1.0)
    queue = vk.struct("VkDeviceQueueCreateInfo", "DEVICE_QUEUE_CREATE_INFO",
                      queueFamilyIndex=queue_family, queueCount=1, pQueuePriorities=priority)
    info = vk.struct("VkDeviceCreateInfo", "DEVICE_CREATE_INFO", pNext=chained,
                     queueCreateInfoCount=1, pQueueCreateInfos=queue, enabledExtensionCount=1,
                     ppEnabledExtensionNames=names)
    return vk.create(vk.lib.vkCreateDevice, physical, info, "VkDevice")
