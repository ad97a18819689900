"""VK_NV_cooperative_matrix2 as the driver describes it. The table of C types that `binding` reads
is older than the extension, so its structs are defined here: words behind sType and pNext."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from webnn_vk.driver.device_profile import FlexibleMatrix
from webnn_vk.driver.vulkan import binding as vk

EXTENSION = "VK_NV_cooperative_matrix2"
#: Booleans of VkPhysicalDeviceCooperativeMatrix2FeaturesNV, in their order.
MEMBERS = (
    "cooperativeMatrixWorkgroupScope", "cooperativeMatrixFlexibleDimensions",
    "cooperativeMatrixReductions", "cooperativeMatrixConversions",
    "cooperativeMatrixPerElementOperations", "cooperativeMatrixTensorAddressing",
    "cooperativeMatrixBlockLoads",
)
#: The features that the kernels use.
NEEDED = frozenset({
    "cooperativeMatrixWorkgroupScope", "cooperativeMatrixFlexibleDimensions",
    "cooperativeMatrixPerElementOperations", "cooperativeMatrixTensorAddressing",
})
FEATURES_STYPE, FLEXIBLE_STYPE, PROPERTIES_STYPE = 1000593000, 1000593001, 1000593002

_HEADER_WORDS = 4  # of 32 bits: sType, a gap, pNext
_FUNCTION = "vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV"
# Members of VkCooperativeMatrixFlexibleDimensionsPropertiesNV.
_ROW = ("m", "n", "k", "a", "b", "c", "result", "saturating", "scope", "invocations")


class Struct:
    """A struct of 32-bit ``members`` behind sType and pNext, all 0. ``base`` goes into a chain, as
    long as this object lives."""

    def __init__(self, stype: int, members: Collection[str]) -> None:
        self._members = tuple(members)
        self._words = vk.new("uint64_t[]", (_HEADER_WORDS + len(self._members) + 1) // 2)
        self.base = vk.ffi.cast("VkBaseOutStructure *", self._words)
        self.base.sType = stype
        self._values = vk.ffi.cast("uint32_t *", self._words) + _HEADER_WORDS

    def __getitem__(self, member: str) -> int:
        return self._values[self._members.index(member)]

    def __setitem__(self, member: str, value: int) -> None:
        self._values[self._members.index(member)] = value


def features(on: Collection[str] = ()) -> Struct:
    """VkPhysicalDeviceCooperativeMatrix2FeaturesNV with these members on."""
    made = Struct(FEATURES_STYPE, MEMBERS)
    for member in on:
        made[member] = 1
    return made


def properties() -> Struct:
    """VkPhysicalDeviceCooperativeMatrix2PropertiesNV, to be filled in."""
    return Struct(PROPERTIES_STYPE, ("max_workgroup_size", "max_dimension", "reserved_shared"))


def is_enough(described: Struct) -> bool:
    """Whether features, as a driver has filled them in, are all that the kernels use."""
    return all(described[member] for member in NEEDED)


def flexible_matrices(
    instance: Any, device: Any, component_types: dict[int, str], max_workgroup_size: int
) -> tuple[FlexibleMatrix, ...]:
    """The matrices of workgroups, of types that we know, that a physical device has."""
    call = _function(instance)
    if call is None:
        return ()
    workgroup = vk.const("VK_SCOPE_WORKGROUP_KHR")
    found = []
    for row in _rows(call, device):
        values = dict(zip(_ROW, row, strict=True))
        types = [component_types.get(values[name]) for name in ("a", "b", "c", "result")]
        if (
            values["scope"] == workgroup and None not in types
            and 0 < values["invocations"] <= max_workgroup_size
            and min(values[name] for name in ("m", "n", "k")) > 0
        ):
            found.append(FlexibleMatrix(
                values["m"], values["n"], values["k"], *types,  # type: ignore[arg-type]
                values["invocations"], bool(values["saturating"]),
            ))
    return tuple(found)


def _function(instance: Any) -> Any:
    pointer = vk.lib.vkGetInstanceProcAddr(instance, _FUNCTION.encode())
    if pointer == vk.NULL:
        return None
    return vk.ffi.cast("VkResult(*)(VkPhysicalDevice, uint32_t *, void *)", pointer)


def _rows(call: Any, device: Any) -> list[tuple[int, ...]]:
    size = _HEADER_WORDS + len(_ROW)
    rows = vk.listed(call, f"uint64_t[{size // 2}]", device, stype=FLEXIBLE_STYPE, what=_FUNCTION)
    return [tuple(vk.ffi.cast("uint32_t *", row)[_HEADER_WORDS:size]) for row in rows]
