"""Compute dispatches as plain data, without handles, as kernel families return them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Any, Protocol

import numpy as np

from webnn_vk.codegen.spec import KernelSpec, Param
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import ceil_divide

from ..ir import Value
from ..types.data_types import DATA_TYPES, MLOperandDescriptor


@dataclass(frozen=True, eq=False)
class Scratch:
    """Temporary memory of one node, in bytes; dead after the node's last dispatch. ``data_type``:
    of its elements."""

    size: int
    data_type: str = "float32"


class Packing(Protocol):
    """How a constant is stored for a kernel. Implementations are frozen dataclasses of plain
    numbers and text: equal packings of one constant share memory."""

    def byte_length(self, descriptor: MLOperandDescriptor) -> int:
        """Bytes of the packed form of a constant."""

    def pack(self, packed: Packed, profile: DeviceProfile) -> Sequence[Dispatch]:
        """The dispatches that read ``packed.value`` and write ``packed``, once, at set-up."""

    def unpack(self, data: np.ndarray, descriptor: MLOperandDescriptor) -> np.ndarray:
        """The constant's elements again, from the packed bytes (uint8)."""


@dataclass(frozen=True)
class Packed:
    """A constant in the form that a kernel reads. Dispatches bind it as they bind a value; set-up
    fills it once, and then releases the original where nothing else reads it."""

    value: Value
    packing: Packing

    @property
    def size(self) -> int:
        """In bytes."""
        return self.packing.byte_length(self.value.descriptor)

    @property
    def data_type(self) -> str:
        return self.value.data_type

    @property
    def descriptor(self) -> MLOperandDescriptor:
        """The packed form as a tensor of one dimension."""
        elements = self.size // DATA_TYPES[self.data_type].size
        return MLOperandDescriptor(self.data_type, (elements,))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.descriptor.shape

    @property
    def is_constant(self) -> bool:
        return True


@dataclass(frozen=True)
class Binding:
    """A range of a value's memory in bytes; ``size`` None means up to the padded end."""

    value: Value | Scratch | Packed
    offset: int = 0
    size: int | None = None


#: Specialisation constants as a pipeline gets them: (id, bytes).
Specialised = tuple[tuple[int, bytes], ...]
#: What is unavailable, and why: modules that the GLSL compiler refuses (without constants),
#: pipelines that the driver can't make of theirs.
Refused = Mapping[tuple[KernelSpec, Specialised | None], str]


@dataclass(frozen=True)
class Dispatch:
    """One compute dispatch. ``bindings`` follow the spec's buffers: one for each, or as many as the
    buffer has portions. ``params`` and ``constants`` give values by the names in the spec."""

    spec: KernelSpec
    bindings: tuple[Binding, ...]
    groups: tuple[int, int, int]
    params: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, int | float] = field(default_factory=dict)
    kernel: str = ""
    variant: str = ""
    flops: int = 0
    bytes: int = 0

    @property
    def specialised(self) -> Specialised:
        """Its specialisation constants."""
        ids, data = self.spec.pack_constants(self.constants)
        return tuple((i, data[4 * n : 4 * n + 4]) for n, i in enumerate(ids))

    def refusal(self, refused: Refused) -> str | None:
        """Why it was refused; None if it wasn't."""
        if not refused:
            return None
        return refused.get((self.spec, None)) or refused.get((self.spec, self.specialised))


_param = cache(Param)


def declared(
    params: Mapping[str, Any], types: Mapping[str, str] | None = None
) -> tuple[Param, ...]:
    """The parameters of a module that is given these numbers and tuples of numbers by name.
    ``types``: of those that are not unsigned integers."""
    return tuple(
        _param(name, (types or {}).get(name, "uint"), len(v) if isinstance(v, tuple) else 1)
        for name, v in params.items()
    )


def grid(groups: int, profile: DeviceProfile) -> tuple[int, int, int]:
    """A one-dimensional number of workgroups folded into the device's limits; kernels undo it
    with ``workgroup_index()`` and must ignore indices past the end."""
    x_max, y_max, z_max = profile.max_workgroup_count
    if groups <= x_max:
        return (max(groups, 1), 1, 1)
    rows = ceil_divide(groups, x_max)
    if rows <= y_max:
        # Even rows waste fewer workgroups than full ones with a short last row.
        return (ceil_divide(groups, rows), rows, 1)
    planes = ceil_divide(rows, y_max)
    if planes > z_max:
        raise ValueError(f"{groups} workgroups exceed the device's {profile.max_workgroup_count}")
    return (x_max, y_max, planes)


def workgroup(profile: DeviceProfile, wanted: int = 256) -> int:
    """Invocations per one-dimensional workgroup: as many as wanted, within the device's limits."""
    return min(wanted, profile.max_workgroup_invocations, profile.max_workgroup_size[0])


def is_workgroup(width: int, height: int, profile: DeviceProfile) -> bool:
    """Whether the device has workgroups of this size."""
    most = profile.max_workgroup_size
    return (
        width * height <= profile.max_workgroup_invocations
        and width <= most[0] and height <= most[1]
    )


class Unsupported(Exception):
    """The device can't run this node; the message says why."""


class KernelRefused(Unsupported):
    """The GLSL compiler or the driver has refused every kernel that was tried."""
