"""Tensors larger than a binding: the blocks in which a kernel computes, and what it binds for each.

A kernel that knows where its operands lie (``Reach``) computes in blocks of its dimensions. A block
reads and writes no more of any operand than one binding holds. Blocks need no other module and no
more descriptors, but an invocation must not read farther than a binding reaches. Where it does, the
kernel binds one tensor several times (``multi_binding``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import VECTOR_BYTES, ceil_divide, padded

from ..ir import Value
from ..types.access import Access, span
from .dispatch import Binding, Packed, Scratch, Unsupported


@dataclass(frozen=True)
class Reach:
    """Where an operand's elements of ``size`` bytes lie: from element ``start`` on, by ``strides``
    (in elements) over the dimensions of the computation."""

    strides: tuple[int, ...]
    size: int
    start: int = 0


def block_shape(
    dims: Sequence[int], reaches: Sequence[Reach], profile: DeviceProfile,
    largest: Sequence[int] | None = None, *, in_order: bool = False,
) -> list[int]:
    """The shape of blocks that cut ``dims`` so that what a block touches of each operand fits a
    binding; no larger than ``largest``. The dimension that spans most is cut first, or with
    ``in_order`` the outermost: a block's elements are then neighbours in row-major order.

    Blocks begin at the alignment of bindings along a dimension that is cut, unless so long a block
    doesn't fit. Unsupported where not even one element fits."""
    limit = profile.max_storage_buffer_range // VECTOR_BYTES * VECTOR_BYTES
    multiple = alignment(profile)
    block = list(largest or dims)

    def needed(reach: Reach) -> int:
        """Bytes of a binding for any block. It may have to begin before the block does."""
        first, last = span(block, reach.strides)
        # The first byte of any block is a sum of multiples of these.
        offsets = [reach.start]
        for n, d, s in zip(block, dims, reach.strides, strict=True):
            if n < d:
                offsets.append(n * s if s > 0 else s)
            elif s < 0:
                offsets.append((n - 1) * s)
        aligned = math.gcd(multiple, *(n * reach.size for n in offsets))
        return (last - first) * reach.size + multiple - aligned

    while (reach := next((r for r in reaches if needed(r) > limit), None)) is not None:
        if max(block) == 1:
            raise Unsupported(f"bindings of {profile.max_storage_buffer_range} bytes are too small")
        spans = [(n - 1) * abs(s) for n, s in zip(block, reach.strides, strict=True)]
        axis = spans.index(max(spans))
        if in_order:
            axis = next(i for i, n in enumerate(block) if n > 1)
        step = abs(reach.strides[axis]) * reach.size
        others = (sum(spans) - spans[axis] + 1) * reach.size
        most = max(1, min((limit - others) // step + 1 if step else 1, block[axis] - 1))
        unit = multiple // math.gcd(multiple, step)
        block[axis] = most // unit * unit or most
    return block


def blocks(
    dims: Sequence[int], block: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(start, shape) of each block, in row-major order."""
    starts = ([start for start, _ in cuts(0, d, n)] for d, n in zip(dims, block, strict=True))
    for start in itertools.product(*starts):
        yield start, tuple(min(n, d - i) for n, d, i in zip(block, dims, start, strict=True))


@dataclass(frozen=True)
class Items:
    """Items of a tensor from ``start`` to ``stop``, exclusive: a range whose ends may be sizes that
    are known at dispatch."""

    start: int
    stop: int

    @property
    def count(self) -> int:
        return self.stop - self.start


def cuts(start: int, stop: int, step: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of the pieces of ``step`` items from ``start`` to ``stop``."""
    while start < stop:
        end = start + step
        end = stop if stop <= end else end
        yield start, end
        start = end


def ranges(count: int, size: int, profile: DeviceProfile, multiple: int = 1) -> Iterator[Items]:
    """``count`` items of ``size`` bytes, divided into ranges that fit in one binding. Each range
    begins at a multiple of ``multiple`` items and of the alignment of bindings."""
    step = count
    if padded(count * size) > profile.max_storage_buffer_range:
        unit = math.lcm(multiple, alignment(profile) // math.gcd(alignment(profile), size))
        units = block_shape([ceil_divide(count, unit)], [Reach((1,), unit * size)], profile)
        step = units[0] * unit
    for first, last in cuts(0, count, step):
        yield Items(first, last)


# -- bindings -------------------------------------------------------------------------------------
def alignment(profile: DeviceProfile) -> int:
    """The alignment of a binding's offset in bytes."""
    return max(VECTOR_BYTES, profile.min_storage_buffer_offset_alignment)


def memory(target: Access | Scratch) -> Value | Scratch | Packed:
    """The binding of an operand."""
    return target if isinstance(target, Scratch) else target.value


def byte_length(value: Value | Scratch | Packed) -> int:
    """Bytes of a tensor or of scratch memory."""
    return value.size if isinstance(value, Scratch) else value.descriptor.byte_length


def bind(
    value: Value | Scratch | Packed, profile: DeviceProfile, start: int, end: int
) -> tuple[Binding, int]:
    """A binding with the bytes start … end of the value, and the byte it begins at. It is as small
    as alignment allows, since dispatches that write different ranges need no barrier in between;
    all of the value where the driver binds at no offset."""
    whole = padded(byte_length(value))
    if profile.whole_bindings:
        return Binding(value), 0
    first = start - start % alignment(profile)
    size = min(padded(end - first), whole - first)
    return Binding(value) if size == whole else Binding(value, first, size), first


def bind_range(
    value: Value | Scratch | Packed, profile: DeviceProfile, part: Items, size: int
) -> Binding:
    """A binding with just those items of ``size`` bytes of the value."""
    return bind(value, profile, part.start * size, part.stop * size)[0]
