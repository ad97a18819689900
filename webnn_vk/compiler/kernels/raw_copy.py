"""Elements as bytes, 1, 2, 4, 8 or 16 wide, for kernels that move them and compute nothing.

Such a kernel need not know the data type: types of one size share it, several neighbouring elements
move as one wider element, and NaNs keep their payload because no float is ever loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from webnn_vk.codegen.spec import Buffer
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import padded

from ..ir import Value
from ..types.data_types import DATA_TYPES
from .dispatch import Binding

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


def bind(value: Value, profile: DeviceProfile, start: int, end: int) -> tuple[Binding, int]:
    """A binding with the bytes start … end of the value, and the byte it begins at. It is as small
    as alignment allows, since dispatches that write different ranges need no barrier in between;
    all of the value where the driver binds at no offset."""
    whole = padded(value.descriptor.byte_length)
    if profile.whole_bindings:
        return Binding(value), 0
    first = start - start % alignment(profile)
    size = min(padded(end - first), whole - first)
    return Binding(value) if size == whole else Binding(value, first, size), first


def alignment(profile: DeviceProfile) -> int:
    """The alignment of a binding's offset in bytes."""
    return max(16, profile.min_storage_buffer_offset_alignment)


def fits(value: Value, profile: DeviceProfile, start: int, end: int) -> bool:
    """Whether one binding can hold the bytes start … end of the value."""
    binding, first = bind(value, profile, start, end)
    size = padded(value.descriptor.byte_length) if binding.size is None else padded(end - first)
    return size <= profile.max_storage_buffer_range


def bind_range(value: Value, part: range, size: int) -> Binding:
    """A binding with just those items of ``size`` bytes of the value."""
    whole = padded(value.descriptor.byte_length)
    first = part.start * size
    end = min(padded(part.stop * size), whole)
    return Binding(value) if (first, end) == (0, whole) else Binding(value, first, end - first)


def ranges(count: int, size: int, profile: DeviceProfile, multiple: int = 1) -> Iterator[range]:
    """``count`` items of ``size`` bytes, divided into ranges that fit in one binding. Each range
    begins at a multiple of ``multiple`` items and of the alignment of bindings."""
    limit = profile.max_storage_buffer_range
    if padded(count * size) <= limit:
        yield range(count)
        return
    step = multiple * alignment(profile)
    step *= max(1, limit // (step * size))
    for first in range(0, count, step):
        yield range(first, min(first + step, count))
