"""How constants are packed for kernels: matrices in panels, others with permuted dimensions.

Packing runs on the device, once, when a program is loaded; each form has an inverse.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import round_up

from ..ir import Value
from ..types.access import Access, strides
from ..types.data_types import DATA_TYPES, MLOperandDescriptor
from .dispatch import Dispatch, Packed
from .raw_copy import Box, move
from .winograd_tiles import WinogradFilter

# Below this many bytes a constant stays as it is: packing costs a dispatch at set-up, and reading
# it in any order costs next to nothing.
_LEAST_BYTES = 4096


def is_weight(access: Access, least_bytes: int = _LEAST_BYTES) -> bool:
    """Whether an operand is a constant worth packing. A constant tensor's memory stays while the
    tensor lives, so a packed form would be a second copy of it."""
    value = access.value
    return (
        isinstance(value, Value)
        and value.is_constant
        and value.source is None
        and value.descriptor.byte_length >= least_bytes
    )


@dataclass(frozen=True)
class Panels:
    """A matrix of ``k`` rows and ``n`` columns, cut into panels of ``columns`` columns. The panels
    lie one behind the other, each row by row. In the constant the matrix begins at element
    ``start``; ``row`` and ``column`` are its strides."""

    k: int
    n: int
    columns: int
    row: int
    column: int
    start: int = 0

    @property
    def elements(self) -> int:
        return round_up(self.n, self.columns) * self.k

    def byte_length(self, descriptor: MLOperandDescriptor) -> int:
        return self.elements * DATA_TYPES[descriptor.data_type].size

    def pack(self, packed: Packed, profile: DeviceProfile) -> Sequence[Dispatch]:
        panels, rest = divmod(self.n, self.columns)
        size = self.columns * self.k
        boxes = []
        if panels:
            boxes.append(Box(
                (panels, self.k, self.columns),
                (self.columns * self.column, self.row, self.column),
                (size, self.columns, 1),
                self.start,
            ))
        if rest:
            boxes.append(Box(
                (self.k, rest), (self.row, self.column), (self.columns, 1),
                self.start + panels * self.columns * self.column, panels * size,
            ))
        return [d for box in boxes for d in move(packed.value, packed, box, profile)]

    def unpack(self, data: np.ndarray, descriptor: MLOperandDescriptor) -> np.ndarray:
        elements = data.view(descriptor.numpy_dtype)[: self.elements]
        panels = elements.reshape(-1, self.k, self.columns)
        matrix = panels.transpose(1, 0, 2).reshape(self.k, -1)[:, : self.n]
        constant = np.zeros(descriptor.size, descriptor.numpy_dtype)
        at = self.start + self.row * np.arange(self.k)[:, None] + self.column * np.arange(self.n)
        constant[at] = matrix
        return constant.reshape(descriptor.shape)


@dataclass(frozen=True)
class Permuted:
    """A constant with its dimensions permuted: ``permutation[i]`` becomes dimension i."""

    permutation: tuple[int, ...]

    def byte_length(self, descriptor: MLOperandDescriptor) -> int:
        return descriptor.byte_length

    def pack(self, packed: Packed, profile: DeviceProfile) -> Sequence[Dispatch]:
        source = Access.dense(packed.value).permuted(self.permutation)
        box = Box(source.shape, source.strides, strides(source.shape))
        return move(packed.value, packed, box, profile)

    def unpack(self, data: np.ndarray, descriptor: MLOperandDescriptor) -> np.ndarray:
        elements = data.view(descriptor.numpy_dtype)[: descriptor.size]
        shape = tuple(descriptor.shape[axis] for axis in self.permutation)
        return np.ascontiguousarray(
            elements.reshape(shape).transpose(np.argsort(self.permutation))
        )


def packing_called(
    name: str,
) -> tuple[Panels | Permuted | WinogradFilter, MLOperandDescriptor]:
    """The packing of a ``SetupPart``'s name, and what it packs; ValueError for another. Names are
    like ``Permuted({"permutation": [1, 0]}) of float32[2, 3]``."""
    kind, _, rest = name.partition("(")
    for packing in (Panels, Permuted, WinogradFilter):
        if kind == packing.__name__:
            fields, end = json.JSONDecoder().raw_decode(rest)
            data_type, _, shape = rest[end:].removeprefix(") of ").partition("[")
            packed = MLOperandDescriptor(data_type, tuple(json.loads(f"[{shape}")))
            made = packing(
                **{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
            )
            return made, packed
    raise ValueError(f"no packing is called {name!r}")


def permuted(access: Access, permutation: tuple[int, ...]) -> Access:
    """A dense constant operand, packed with its dimensions in another order."""
    packed = Packed(access.value, Permuted(permutation))
    shape = tuple(access.shape[axis] for axis in permutation)
    step_of = dict(zip(permutation, strides(shape), strict=True))
    assert math.prod(shape) == access.value.descriptor.size
    return Access(packed, access.shape, tuple(step_of[axis] for axis in range(len(shape))))
