"""Elements as bytes, 1, 2, 4, 8 or 16 wide, for kernels that move them and compute nothing.

Such a kernel need not know the data type: types of one size share it, several neighbouring elements
move as one wider element, and NaNs keep their payload because no float is ever loaded.
"""

from __future__ import annotations

from collections.abc import Iterable

from webnn_vk.codegen.spec import Buffer

from ..ir import Value
from ..types.data_types import DATA_TYPES

#: Widths of an element in bytes.
WIDTHS = (1, 2, 4, 8, 16)

_TYPES = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64", 16: "uint32"}
# The native storage that a width uses; 8 bytes are two words on every device.
_FEATURES = {1: frozenset({"int8"}), 2: frozenset({"float16"})}


def item_size(value: Value) -> int:
    """Bytes of one of the value's elements."""
    return DATA_TYPES[value.data_type].size


def buffer(name: str, width: int, access: str = "r") -> Buffer:
    """A buffer of elements ``width`` bytes wide."""
    return Buffer(name, _TYPES[width], access, 4 if width == 16 else 1)


def storage_features(width: int, features: frozenset[str]) -> frozenset[str]:
    """Those of the device's ``features`` that a kernel uses to move elements ``width`` bytes
    wide."""
    return _FEATURES.get(width, frozenset()) & features


def widest(size: int, numbers: Iterable[int]) -> int:
    """The widest element, in bytes, as which runs of ``size``-byte elements can move: each of
    ``numbers`` (lengths, strides and offsets, in elements) must be a multiple of it."""
    numbers = tuple(numbers)
    return next(
        width
        for width in reversed(WIDTHS)
        if width % size == 0 and all(n % (width // size) == 0 for n in numbers)
    )
