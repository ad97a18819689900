"""`DeviceProfile`: a Vulkan device's features and limits, as plain frozen data.

Kernel selection, planning and rendering read a profile and nothing else, so they are tested without
a GPU against stored profiles (``tests/support/profiles/*.json``). Nothing here imports Vulkan.
"""

from __future__ import annotations

import builtins
import dataclasses
import json
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args, get_origin, get_type_hints

from webnn_vk.support import environment
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import nearest
from webnn_vk.support.warnings import say_once

#: Feature name -> where Vulkan has it (features and properties of a version, operations of
#: subgroups in compute, extensions; "": found out otherwise) and under which name.
FEATURES: dict[str, tuple[str, str]] = {
    "float16": ("features 1.1", "storageBuffer16BitAccess"),  # 16-bit types in storage buffers
    "float16_arithmetic": ("features 1.2", "shaderFloat16"),
    "int8": ("features 1.2", "storageBuffer8BitAccess"),  # 8-bit types in storage buffers
    "int8_arithmetic": ("features 1.2", "shaderInt8"),
    "int16": ("features 1.0", "shaderInt16"),
    "int64": ("features 1.0", "shaderInt64"),
    "float64": ("features 1.0", "shaderFloat64"),
    "timeline_semaphore": ("features 1.2", "timelineSemaphore"),  # required
    "synchronization2": ("features 1.3", "synchronization2"),
    "vulkan_memory_model": ("features 1.2", "vulkanMemoryModel"),
    "maintenance4": ("features 1.3", "maintenance4"),  # LocalSizeId, maxBufferSize
    "host_query_reset": ("features 1.2", "hostQueryReset"),
    "buffer_device_address": ("features 1.2", "bufferDeviceAddress"),
    # 32-bit formats, of 1 and 4 channels, as uniform texel buffers
    "texel_buffers": ("", "VK_FORMAT_FEATURE_UNIFORM_TEXEL_BUFFER_BIT"),
    "timestamps": ("", "timestampValidBits"),  # > 0 on the compute queue
    "subgroup_basic": ("subgroup", "BASIC"),
    "subgroup_vote": ("subgroup", "VOTE"),
    "subgroup_arithmetic": ("subgroup", "ARITHMETIC"),
    "subgroup_ballot": ("subgroup", "BALLOT"),
    "subgroup_shuffle": ("subgroup", "SHUFFLE"),
    "subgroup_extended_types": ("features 1.2", "shaderSubgroupExtendedTypes"),
    "subgroup_size_control": ("features 1.3", "subgroupSizeControl"),  # for the compute stage
    "subgroup_full": ("features 1.3", "computeFullSubgroups"),
    "cooperative_matrix": ("extension", "VK_KHR_cooperative_matrix"),
    "integer_dot_product": ("features 1.3", "shaderIntegerDotProduct"),
    # 4x8-bit packed signed dot product in hardware
    "integer_dot_product_accelerated": ("", "integerDotProduct4x8BitPackedSignedAccelerated"),
    "denorm_preserve_f16": ("properties 1.2", "shaderDenormPreserveFloat16"),
    "denorm_preserve_f32": ("properties 1.2", "shaderDenormPreserveFloat32"),
    "denorm_flush_f32": ("properties 1.2", "shaderDenormFlushToZeroFloat32"),
    "nan_preserve_f16": ("properties 1.2", "shaderSignedZeroInfNanPreserveFloat16"),
    "nan_preserve_f32": ("properties 1.2", "shaderSignedZeroInfNanPreserveFloat32"),
    "rounding_rte_f16": ("properties 1.2", "shaderRoundingModeRTEFloat16"),
    "rounding_rte_f32": ("properties 1.2", "shaderRoundingModeRTEFloat32"),
    "external_memory_fd": ("extension", "VK_KHR_external_memory_fd"),
    "external_memory_host": ("extension", "VK_EXT_external_memory_host"),
    "external_semaphore_fd": ("extension", "VK_KHR_external_semaphore_fd"),
    "memory_budget": ("extension", "VK_EXT_memory_budget"),
}
#: Without these nothing runs on a device: they can't be masked.
NEEDED = frozenset({"timeline_semaphore"})

#: Names that mask several features at once.
MASK_GROUPS: dict[str, tuple[str, ...]] = {
    "float16": ("float16", "float16_arithmetic", "denorm_preserve_f16", "nan_preserve_f16",
                "rounding_rte_f16"),
    "int8": ("int8", "int8_arithmetic"),
    "subgroup": tuple(name for name in FEATURES if name.startswith("subgroup_")),
    "integer_dot_product": ("integer_dot_product", "integer_dot_product_accelerated"),
}

DEVICE_TYPES = ("discrete", "integrated", "virtual", "cpu", "other")

# Kernels index bytes and elements with 32-bit unsigned numbers.
_MAX_ADDRESSABLE = 2**32 - 256


#: Features that earlier versions used, with what became of them. They may still be masked.
WITHDRAWN = {
    "cooperative_matrix2": "products by the matrices of workgroups (VK_NV_cooperative_matrix2) "
                           "are not used any more",
}


@dataclass(frozen=True)
class CooperativeMatrix:
    """One matrix shape of VK_KHR_cooperative_matrix at subgroup scope: an MxK by KxN product."""

    m: int
    n: int
    k: int
    a: str
    b: str
    c: str
    result: str
    saturating: bool = False


@dataclass(frozen=True, kw_only=True)
class DeviceProfile:
    """Frozen snapshot of a Vulkan device: identity, features, limits. All sizes in bytes."""

    name: str
    vendor_id: int
    device_id: int
    driver_name: str
    driver_version: str
    api_version: tuple[int, int, int]
    device_type: str
    uuid: str
    features: frozenset[str]

    max_storage_buffer_range: int
    max_texel_buffer_elements: int
    max_push_constants_size: int
    max_memory_allocation_count: int
    max_memory_allocation_size: int
    max_buffer_size: int
    max_storage_buffers_per_stage: int
    max_storage_buffers_per_set: int
    max_workgroup_size: tuple[int, int, int]
    max_workgroup_invocations: int
    max_workgroup_count: tuple[int, int, int]
    max_shared_memory: int
    min_storage_buffer_offset_alignment: int
    non_coherent_atom_size: int
    min_imported_host_pointer_alignment: int
    subgroup_size: int
    min_subgroup_size: int
    max_subgroup_size: int
    #: nanoseconds per timestamp tick
    timestamp_period: float
    timestamp_valid_bits: int
    #: (size in bytes, device-local) per heap
    memory_heaps: tuple[tuple[int, bool], ...]
    #: (heap index, property names) per memory type, in Vulkan's order
    memory_types: tuple[tuple[int, tuple[str, ...]], ...]
    cooperative_matrices: tuple[CooperativeMatrix, ...] = ()
    #: iterations after which the driver ends the loops of one invocation, silently, all its loops
    #: together (a fault: `vulkan.quirks`); None: it doesn't
    max_loop_iterations: int | None = None
    #: whether a binding is an allocation from its first byte on: the driver binds at no offset, so
    #: nothing that kernels bind can share an allocation with something else
    whole_bindings: bool = False
    #: 256 is the most that Vulkan allows
    min_texel_buffer_offset_alignment: int = 256
    #: for devices that run on the CPU: whether its gathers are slow, so that loads from storage
    #: buffers take several times as long as texels (`tuning.probe` finds out)
    slow_gathers: bool = False
    #: for devices that run on the CPU: whether a core reads memory fastest from end to end, instead
    #: of in several places in turn
    reads_linearly: bool = False
    #: whether the driver compiles a pipeline again for some sizes of what it reads as texels (a
    #: peculiarity: `vulkan.quirks`), so that memory is allocated in other sizes
    compiles_by_size: bool = False
    #: multiprocessors (AMD: compute units, Arm: shader cores) that run workgroups side by side, as
    #: the driver or `core_counts` say it; 0: not known
    multiprocessors: int = 0
    #: PCI address, "0000:65:00.0"; "" where the driver doesn't say it
    pci: str = ""
    #: where the data comes from ("snapshot of …", "hand-made …"); not compared
    note: str = dataclasses.field(default="", compare=False)

    def __post_init__(self) -> None:
        unknown = self.features - FEATURES.keys()
        if unknown:
            known = ", ".join(sorted({*FEATURES, *MASK_GROUPS}))
            raise ValueError(f"unknown device features {sorted(unknown)}; known: {known}")
        if self.device_type not in DEVICE_TYPES:
            raise ValueError(f"device type {self.device_type!r} is not one of {DEVICE_TYPES}")

    # -- derived ------------------------------------------------------------------------------
    @property
    def is_software(self) -> bool:
        """Whether the device runs on the CPU (llvmpipe, SwiftShader …)."""
        return self.device_type == "cpu"

    @property
    def local_heap_size(self) -> int:
        """Size in bytes of the largest device-local heap, or of any where none is local; 0 without
        heaps (such a device is listed, and never used)."""
        local = [size for size, device_local in self.memory_heaps if device_local]
        return max(local or [size for size, _ in self.memory_heaps], default=0)

    @property
    def max_tensor_byte_length(self) -> int:
        """Largest tensor in bytes: bounded by buffer, allocation and heap, not by one binding."""
        limit = min(self.max_buffer_size, self.max_memory_allocation_size, self.local_heap_size,
                    _MAX_ADDRESSABLE)
        return limit - limit % 256

    # -- variations ---------------------------------------------------------------------------
    def masked(self, names: Iterable[str]) -> DeviceProfile:
        """The same device without the named features (`FEATURES` or a group of `MASK_GROUPS`).

        Raises ValueError for a name that is neither.
        """
        gone: set[str] = set()
        for name in names:
            check_feature(name)
            gone.update(MASK_GROUPS.get(name, (name,)))
        shapes = () if "cooperative_matrix" in gone else self.cooperative_matrices
        if not gone & self.features and shapes == self.cooperative_matrices:
            return self
        return dataclasses.replace(
            self, features=self.features - gone, cooperative_matrices=shapes
        )

    def mask_from_environment(self, variables: Mapping[str, str] | None = None) -> DeviceProfile:
        """`masked` with the comma-separated names in ``WEBNN_VK_MASK`` (none: unchanged)."""
        names = environment.words("WEBNN_VK_MASK", variables)
        try:
            return self.masked(names)
        except ValueError as error:
            raise ValueError(f"WEBNN_VK_MASK={','.join(names)!r}: {error}") from None

    def replace(self, **limits: Any) -> DeviceProfile:
        """A copy with other values for some fields (for tests and what-if planning)."""
        return dataclasses.replace(self, **limits)

    # -- JSON ---------------------------------------------------------------------------------
    def to_json(self) -> str:
        """Readable JSON text; `from_json` gives the same profile back."""
        data = dataclasses.asdict(self)
        data["features"] = sorted(self.features)
        return json.dumps(data, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> DeviceProfile:
        """The profile of `to_json` text. ValueError: fields are missing, unknown or mistyped."""
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("a device profile is a JSON object")
        fields = {field.name: field for field in dataclasses.fields(cls)}
        required = {name for name, field in fields.items()
                    if field.default is dataclasses.MISSING}
        missing, unknown = required - data.keys(), data.keys() - fields.keys()
        if missing or unknown:
            raise ValueError(f"device profile: missing fields {sorted(missing)}, "
                             f"unknown fields {sorted(unknown)}")
        try:
            kinds = get_type_hints(cls)
            return cls(**{name: _convert(kinds[name], value) for name, value in data.items()})
        except (TypeError, ValueError) as error:
            raise ValueError(f"device profile: {error}") from error


def devices_named(wanted: str, profiles: Sequence[DeviceProfile]) -> list[int]:
    """The indices of the devices that a user's words name: "uuid:" with a UUID, "pci:" with an
    address (its domain may be left out), a number, or part of a name; case is ignored.

    Raises ValueError for what is neither a UUID nor a PCI address after these prefixes.
    """
    kind, colon, text = wanted.strip().lower().partition(":")
    if colon and kind in ("uuid", "pci"):
        named = plain_uuid(text) if kind == "uuid" else plain_pci(text)
        return [i for i, profile in enumerate(profiles) if getattr(profile, kind) == named]
    if wanted.isdecimal():
        return [int(wanted)] if int(wanted) < len(profiles) else []
    return [i for i, profile in enumerate(profiles) if wanted.lower() in profile.name.lower()]


def plain_uuid(text: str) -> str:
    """A UUID as a profile has it: 32 hexadecimal digits. ValueError for anything else."""
    digits = text.strip().lower().replace("-", "")
    if not re.fullmatch("[0-9a-f]{32}", digits):
        raise ValueError(f"{text!r} is no UUID: 32 hexadecimal digits are expected")
    return digits


def plain_pci(text: str) -> str:
    """A PCI address as a profile has it, "0000:65:00.0": the domain has at least four digits and is
    0 where it is left out. ValueError for anything else."""
    match = re.fullmatch(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])",
                         text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is no PCI address: one like 0000:65:00.0 is expected")
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}"


def features_of(kind: str) -> dict[str, str]:
    """The features of one kind of `FEATURES`, with Vulkan's names."""
    return {name: member for name, (of, member) in FEATURES.items() if of == kind}


def check_feature(name: str) -> None:
    """ValueError unless it is a feature or a group of features that can be masked. Masking one of
    `WITHDRAWN` changes nothing, and a warning says so."""
    if name in WITHDRAWN:
        say_once(f"masking {name!r} has no effect: {WITHDRAWN[name]}")
        return
    if name in NEEDED:
        raise ValueError(f"{name!r} can't be masked: nothing runs on a Vulkan device without it")
    if name not in FEATURES and name not in MASK_GROUPS:
        near = nearest(name, [*FEATURES, *MASK_GROUPS])
        known = ", ".join(sorted({*FEATURES, *MASK_GROUPS} - NEEDED))
        raise ValueError(f"unknown device feature {name!r} to mask{near}; known: {known}")


def _convert(kind: Any, value: Any) -> Any:
    """A value of JSON as one of a type."""
    of = get_args(kind)
    match get_origin(kind):
        case builtins.frozenset:
            return frozenset(_convert(of[0], item) for item in value)
        case builtins.tuple:
            kinds = [of[0]] * len(value) if of[-1] is ... else of
            return tuple(_convert(*pair) for pair in zip(kinds, value, strict=True))
        case types.UnionType:
            return None if value is None else _convert(of[0], value)
    if kind is CooperativeMatrix:
        return CooperativeMatrix(**value)
    allowed = (int, float) if kind is float else kind
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, allowed):
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return kind(value)
