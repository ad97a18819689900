"""Reads a physical device into a `DeviceProfile` and says whether it can be used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from webnn_vk.driver import loading
from webnn_vk.driver.core_counts import known_cores
from webnn_vk.driver.device_profile import CooperativeMatrix, DeviceProfile, features_of
from webnn_vk.driver.errors import DriverError
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan.errors import VulkanUnavailable
from webnn_vk.driver.vulkan.instance import Instance, instance
from webnn_vk.driver.vulkan.quirks import (
    compiles_by_size,
    max_loop_iterations,
    unusable_features,
)
from webnn_vk.driver.vulkan.requirements import why_unusable
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.processor import processor

_DEVICE_TYPES = {1: "integrated", 2: "discrete", 3: "virtual", 4: "cpu"}
_NVIDIA = 0x10DE
_MEMORY_PROPERTIES = ("DEVICE_LOCAL", "HOST_VISIBLE", "HOST_COHERENT", "HOST_CACHED",
                      "LAZILY_ALLOCATED", "PROTECTED")

# Feature -> member of Vulkan's structs. These are switched on at device creation.
FEATURES_10, FEATURES_11, FEATURES_12, FEATURES_13 = (
    features_of(f"features 1.{minor}") for minor in range(4))
EXTENSIONS = features_of("extension")
#: Formats of texels (`driver.resources.TEXEL_BYTES`) in Vulkan.
TEXEL_FORMATS = {
    f"{channels}32{letter}": f"VK_FORMAT_{name}_{kind}"
    for channels, name in (("r", "R32"), ("rgba", "R32G32B32A32"))
    for letter, kind in (("f", "SFLOAT"), ("i", "SINT"), ("ui", "UINT"))}
_PROPERTIES_12, _SUBGROUP_BITS = features_of("properties 1.2"), features_of("subgroup")
#: By extension, the struct and its member that say how many multiprocessors a device has.
_MULTIPROCESSORS = {
    "VK_NV_shader_sm_builtins": (
        "VkPhysicalDeviceShaderSMBuiltinsPropertiesNV", "SHADER_SM_BUILTINS_PROPERTIES_NV",
        "shaderSMCount"),
    "VK_AMD_shader_core_properties2": (
        "VkPhysicalDeviceShaderCoreProperties2AMD", "SHADER_CORE_PROPERTIES_2_AMD",
        "activeComputeUnitCount"),
    "VK_ARM_shader_core_builtins": (
        "VkPhysicalDeviceShaderCoreBuiltinsPropertiesARM", "SHADER_CORE_BUILTINS_PROPERTIES_ARM",
        "shaderCoreCount"),
}
_COMPONENT_TYPES = {0: "float16", 1: "float32", 2: "float64", 3: "int8", 4: "int16", 5: "int32",
                    6: "int64", 7: "uint8", 8: "uint16", 9: "uint32", 10: "uint64"}


@dataclass(frozen=True)
class PhysicalDevice:
    """A device found. `index`: its number in Vulkan's order; `unusable`: why not, or None; `owner`:
    the instance that `handle` is of."""

    index: int
    profile: DeviceProfile
    unusable: str | None
    handle: Any
    queue_family: int
    extensions: frozenset[str]
    owner: Instance | None = None

    def current(self) -> PhysicalDevice:
        """This device; in a forked child the same device of the child's own instance.
        VulkanUnavailable if it no longer exists."""
        if self.owner is None or self.owner is instance():
            return self
        for found in enumerate_devices():
            same = (found.index, found.profile.uuid) == (self.index, self.profile.uuid)
            if same and not found.unusable:
                return replace(self, handle=found.handle, owner=found.owner)
        raise VulkanUnavailable(f"{self.profile.name} is not there any more")


def enumerate_devices(source: Instance | None = None) -> list[PhysicalDevice]:
    """All Vulkan devices with their snapshots, those that can't be used with the reason; at the end
    one for each driver that is broken.

    Raises VulkanUnavailable when there is no loader or no driver.
    """
    owner = source or instance()
    with owner.drivers.asking():
        try:
            with loading.alone:
                handles = vk.listed(
                    vk.lib.vkEnumeratePhysicalDevices, "VkPhysicalDevice", owner.handle)
        except DriverError as error:
            raise VulkanUnavailable(f"the Vulkan drivers list no devices: {error}") from error
        found = [_read(owner, index, handle) for index, handle in enumerate(handles)]
    return [*found, *broken_drivers(owner.drivers.verdict.broken, len(found))]


def broken_drivers(broken: Mapping[str, str], first: int = 0) -> list[PhysicalDevice]:
    """Entries for the devices of drivers that can't be queried, numbered from `first` on."""
    return [_unknown(index, f"driver {Path(manifest).name}", reason)
            for index, (manifest, reason) in enumerate(broken.items(), first)]


def _unknown(index: int, name: str, reason: str) -> PhysicalDevice:
    nothing = {"str": "", "int": 0, "float": 0.0, "tuple[int, int, int]": (0, 0, 0),
               "frozenset[str]": frozenset()}
    values = {item.name: nothing.get(item.type, ()) for item in fields(DeviceProfile)
              if item.default is MISSING}
    profile = DeviceProfile(**values | {"name": name, "device_type": "other"})
    return PhysicalDevice(index, profile, reason, None, -1, frozenset())


def _read(owner: Instance, index: int, handle: Any) -> PhysicalDevice:
    try:
        return _snapshot(owner, index, handle)
    except (DriverError, ValueError) as error:
        basic = vk.new("VkPhysicalDeviceProperties *")
        vk.lib.vkGetPhysicalDeviceProperties(handle, basic)
        name = vk.text(basic.deviceName) or f"device {index}"
        return _unknown(index, name, f"it can't be asked what it offers: {error}")


def _snapshot(owner: Instance, index: int, handle: Any) -> PhysicalDevice:
    with loading.alone:
        listed = vk.listed(vk.lib.vkEnumerateDeviceExtensionProperties, "VkExtensionProperties",
                           handle, vk.NULL)
    extensions = frozenset(vk.text(item.extensionName) for item in listed)
    families = vk.listed(vk.lib.vkGetPhysicalDeviceQueueFamilyProperties,
                         "VkQueueFamilyProperties", handle)
    family = choose_queue_family([(item.queueFlags, item.queueCount) for item in families])
    bits = families[family].timestampValidBits if family >= 0 else 0
    profile = _profile(owner, handle, extensions, bits)
    return PhysicalDevice(index, profile, why_unusable(profile, family), handle, family,
                          extensions, owner)


def choose_queue_family(families: list[tuple[int, int]]) -> int:
    """The index of the queue family to use of (flags, count): compute without graphics is only
    taken when no family does both, as graphics queues are the best tested. -1: none."""
    compute, graphics = vk.const("VK_QUEUE_COMPUTE_BIT"), vk.const("VK_QUEUE_GRAPHICS_BIT")
    candidates = [(not flags & graphics, index) for index, (flags, count) in enumerate(families)
                  if flags & compute and count]
    return min(candidates)[1] if candidates else -1


def _profile(owner: Instance, handle: Any, extensions: frozenset[str],
             timestamp_bits: int) -> DeviceProfile:
    basic = vk.new("VkPhysicalDeviceProperties *")
    vk.lib.vkGetPhysicalDeviceProperties(handle, basic)
    # The instance's version bounds the usable features.
    api = vk.version(basic.apiVersion)
    usable = min(api, (*owner.api_version[:2], 0xFFF))
    is_12, is_13 = usable >= (1, 2), usable >= (1, 3)

    kinds = ["11", "12", "13"][:(is_12 and 2) + is_13]
    features = {kind: vk.struct(f"VkPhysicalDeviceVulkan{kind}Features",
                                f"PHYSICAL_DEVICE_VULKAN_1_{kind[1]}_FEATURES") for kind in kinds}
    properties = {kind: vk.struct(f"VkPhysicalDeviceVulkan{kind}Properties",
                                  f"PHYSICAL_DEVICE_VULKAN_1_{kind[1]}_PROPERTIES")
                  for kind in kinds}
    maintenance3 = vk.struct("VkPhysicalDeviceMaintenance3Properties",
                             "PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES")
    maintenance4 = vk.struct("VkPhysicalDeviceMaintenance4Properties",
                             "PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES")
    host = vk.struct("VkPhysicalDeviceExternalMemoryHostPropertiesEXT",
                     "PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT")
    matrix = vk.struct("VkPhysicalDeviceCooperativeMatrixFeaturesKHR",
                       "PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR")
    pci = vk.struct("VkPhysicalDevicePCIBusInfoPropertiesEXT",
                    "PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT")
    has_pci = "VK_EXT_pci_bus_info" in extensions
    counts = {member: vk.struct(ctype, f"PHYSICAL_DEVICE_{stype}")
              for extension, (ctype, stype, member) in _MULTIPROCESSORS.items()
              if extension in extensions}
    has_host = EXTENSIONS["external_memory_host"] in extensions
    has_matrix = EXTENSIONS["cooperative_matrix"] in extensions and is_12
    has_maintenance4 = is_13 or "VK_KHR_maintenance4" in extensions

    every_property = vk.struct("VkPhysicalDeviceProperties2", "PHYSICAL_DEVICE_PROPERTIES_2")
    every_feature = vk.struct("VkPhysicalDeviceFeatures2", "PHYSICAL_DEVICE_FEATURES_2")
    if api >= (1, 1):
        vk.chain(every_property, *properties.values(), *[maintenance3] * (not is_12),
                 *[maintenance4] * (has_maintenance4 and not is_13), *[host] * has_host,
                 *[pci] * has_pci, *counts.values())
        vk.chain(every_feature, *features.values(), *[matrix] * has_matrix)
        vk.lib.vkGetPhysicalDeviceProperties2(handle, every_property)
        vk.lib.vkGetPhysicalDeviceFeatures2(handle, every_feature)

    found = {name for name, member in FEATURES_10.items()
             if getattr(every_feature.features, member)}
    for kind, table in (("11", FEATURES_11), ("12", FEATURES_12), ("13", FEATURES_13)):
        if kind in features:
            found |= {name for name, member in table.items() if getattr(features[kind], member)}
    found |= {name for name, extension in EXTENSIONS.items() if extension in extensions}
    if not (has_matrix and matrix.cooperativeMatrix):
        found.discard("cooperative_matrix")
    # Once vulkanMemoryModel is enabled, ordinary atomics need its device scope too.
    if "12" in features and not features["12"].vulkanMemoryModelDeviceScope:
        found.discard("vulkan_memory_model")
    if timestamp_bits and basic.limits.timestampPeriod:
        found.add("timestamps")
    if _has_texel_buffers(handle):
        found.add("texel_buffers")

    p11, p12, p13 = (properties.get(kind) for kind in ("11", "12", "13"))
    compute = vk.const("VK_SHADER_STAGE_COMPUTE_BIT")
    if p11 and p11.subgroupSupportedStages & compute:
        found |= {name for name, bit in _SUBGROUP_BITS.items() if p11.subgroupSupportedOperations
                  & vk.const(f"VK_SUBGROUP_FEATURE_{bit}_BIT")}
    if p12:
        found |= {name for name, member in _PROPERTIES_12.items() if getattr(p12, member)}
        # Kernels set float modes for one bit width only.
        dependent = vk.const("VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE")
        for behaviour, prefix in (("denormBehaviorIndependence", "denorm_"),
                                  ("roundingModeIndependence", "rounding_")):
            if getattr(p12, behaviour) == dependent:
                found = {name for name in found if not name.startswith(prefix)}
    if p13 and p13.integerDotProduct4x8BitPackedSignedAccelerated:
        found.add("integer_dot_product_accelerated")
    if p13 and not p13.requiredSubgroupSizeStages & compute:
        found.discard("subgroup_size_control")
    subgroup = (p11.subgroupSize if p11 else 0) or 1

    memory = vk.new("VkPhysicalDeviceMemoryProperties *")
    vk.lib.vkGetPhysicalDeviceMemoryProperties(handle, memory)
    local = vk.const("VK_MEMORY_HEAP_DEVICE_LOCAL_BIT")
    heaps = tuple((memory.memoryHeaps[i].size, bool(memory.memoryHeaps[i].flags & local))
                  for i in range(memory.memoryHeapCount))
    allocation = (p11 or maintenance3).maxMemoryAllocationSize or 2**30
    largest = (p13.maxBufferSize if p13 else maintenance4.maxBufferSize) or allocation
    limits = basic.limits
    driver_name = vk.text(p12.driverName) if p12 else ""
    driver_version = _driver_version(basic.vendorID, basic.driverVersion,
                                     vk.text(p12.driverInfo) if p12 else "")
    device_type = _DEVICE_TYPES.get(basic.deviceType, "other")
    name = vk.text(basic.deviceName)
    cores = max((getattr(count, member) for member, count in counts.items()), default=0)
    return DeviceProfile(
        name=name, vendor_id=basic.vendorID, device_id=basic.deviceID,
        driver_name=driver_name, driver_version=driver_version,
        api_version=api, device_type=device_type,
        uuid=bytes(p11.deviceUUID).hex() if p11 else bytes(basic.pipelineCacheUUID).hex(),
        pci=f"{pci.pciDomain:04x}:{pci.pciBus:02x}:{pci.pciDevice:02x}.{pci.pciFunction}"
        if has_pci and api >= (1, 1) else "",
        multiprocessors=cores or known_cores(basic.vendorID, basic.deviceID, name),
        features=frozenset(found) - unusable_features(driver_name, driver_version, found),
        max_storage_buffer_range=limits.maxStorageBufferRange,
        max_texel_buffer_elements=limits.maxTexelBufferElements,
        max_push_constants_size=limits.maxPushConstantsSize,
        max_memory_allocation_count=limits.maxMemoryAllocationCount,
        max_memory_allocation_size=allocation, max_buffer_size=largest,
        max_storage_buffers_per_stage=limits.maxPerStageDescriptorStorageBuffers,
        max_storage_buffers_per_set=limits.maxDescriptorSetStorageBuffers,
        max_workgroup_size=tuple(limits.maxComputeWorkGroupSize),
        max_workgroup_invocations=limits.maxComputeWorkGroupInvocations,
        max_workgroup_count=tuple(limits.maxComputeWorkGroupCount),
        max_shared_memory=limits.maxComputeSharedMemorySize,
        min_storage_buffer_offset_alignment=limits.minStorageBufferOffsetAlignment,
        non_coherent_atom_size=limits.nonCoherentAtomSize,
        min_imported_host_pointer_alignment=(
            host.minImportedHostPointerAlignment if has_host else 0),
        subgroup_size=subgroup,
        min_subgroup_size=p13.minSubgroupSize if p13 else subgroup,
        max_subgroup_size=p13.maxSubgroupSize if p13 else subgroup,
        timestamp_period=limits.timestampPeriod, timestamp_valid_bits=timestamp_bits,
        memory_heaps=heaps,
        memory_types=tuple(
            (memory.memoryTypes[i].heapIndex, _property_names(memory.memoryTypes[i].propertyFlags))
            for i in range(memory.memoryTypeCount)),
        cooperative_matrices=(_cooperative_matrices(owner, handle)
                              if "cooperative_matrix" in found else ()),
        max_loop_iterations=max_loop_iterations(driver_name, driver_version),
        compiles_by_size=compiles_by_size(driver_name, driver_version),
        # Measured on an AMD EPYC and an Intel Xeon (`kernels.matmul`).
        reads_linearly=device_type == "cpu" and processor().startswith("AMD"),
        min_texel_buffer_offset_alignment=limits.minTexelBufferOffsetAlignment)


def _has_texel_buffers(handle: Any) -> bool:
    about = vk.new("VkFormatProperties *")
    needed = vk.const("VK_FORMAT_FEATURE_UNIFORM_TEXEL_BUFFER_BIT")
    for name in TEXEL_FORMATS.values():
        vk.lib.vkGetPhysicalDeviceFormatProperties(handle, vk.const(name), about)
        if not about.bufferFeatures & needed:
            return False
    return True


def _property_names(flags: int) -> tuple[str, ...]:
    return tuple(name.lower() for name in _MEMORY_PROPERTIES
                 if flags & vk.const(f"VK_MEMORY_PROPERTY_{name}_BIT"))


def _cooperative_matrices(owner: Instance, handle: Any) -> tuple[CooperativeMatrix, ...]:
    call = vk.instance_function(owner.handle, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR")
    rows = vk.listed(call, "VkCooperativeMatrixPropertiesKHR", handle,
                     stype="COOPERATIVE_MATRIX_PROPERTIES_KHR")
    subgroup = vk.const("VK_SCOPE_SUBGROUP_KHR")
    shapes = []
    for row in rows:
        types = [_COMPONENT_TYPES.get(kind)
                 for kind in (row.AType, row.BType, row.CType, row.ResultType)]
        if row.scope == subgroup and None not in types:
            shapes.append(CooperativeMatrix(row.MSize, row.NSize, row.KSize, *types,
                                            saturating=bool(row.saturatingAccumulation)))
    return tuple(shapes)


def _driver_version(vendor: int, number: int, info: str) -> str:
    # Mesa's software drivers report 0.0.1; their info text has the release.
    release = re.search(r"\d+(\.\d+)+", info)
    if release:
        return release.group()
    if vendor == _NVIDIA:
        return f"{number >> 22}.{number >> 14 & 0xFF}.{number >> 6 & 0xFF}"
    return ".".join(map(str, vk.version(number)))
