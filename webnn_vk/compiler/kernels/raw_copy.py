"""Copies of elements as bytes, 1, 2, 4, 8 or 16 wide, by kernels that compute nothing.

Such a kernel need not know the data type: types of one size share it, several neighbouring elements
move as one wider element, and NaNs keep their payload because no float is ever loaded. Copies and
padding move a strided ``Box`` of elements from one tensor to another. Its dimensions are merged
where strides allow it, and where a tensor exceeds a binding it moves in blocks (``parts``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from operator import mul, sub
from typing import Any

from webnn_vk.codegen.spec import Buffer, KernelSpec, Param
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import ceil_divide, padded

from ..ir import Value
from ..types.access import Access, collapse, span
from ..types.data_types import DATA_TYPES
from .dispatch import Binding, Dispatch, Scratch, declared, grid, workgroup
from .expression import reciprocal
from .heuristics import device_class
from .loads import has_texels
from .parts import Reach, bind, block_shape, blocks, byte_length

# -- elements -------------------------------------------------------------------------------------
#: Widths of an element in bytes.
WIDTHS = (1, 2, 4, 8, 16)

_TYPES = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64", 16: "uint32"}
# The native storage that a width uses; 8 bytes are two words on every device.
_FEATURES = {1: frozenset({"int8"}), 2: frozenset({"float16"})}


def item_size(value: Access | Value | Scratch) -> int:
    """Bytes of one of the elements."""
    return DATA_TYPES[value.data_type].size


def buffer(name: str, width: int, access: str = "r") -> Buffer:
    """A buffer of elements ``width`` bytes wide."""
    return Buffer(name, _TYPES[width], access, 4 if width == 16 else 1)


def widest(size: int, numbers: Iterable[int]) -> int:
    """The widest element, in bytes, as which runs of ``size``-byte elements can move: each of
    ``numbers`` (lengths, strides and offsets, in elements) must be a multiple of it."""
    numbers = tuple(numbers)
    return next(
        width
        for width in reversed(WIDTHS)
        if width % size == 0 and all(n % (width // size) == 0 for n in numbers)
    )


# -- boxes ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Box:
    """A box of ``shape`` elements with the strides and offsets, in elements, by which it lies in
    the source and in the destination. Padding: ``begin`` and ``size`` say where the source's
    elements are along each dimension; source strides and offset refer to its first element."""

    shape: tuple[int, ...]
    src_strides: tuple[int, ...]
    dst_strides: tuple[int, ...]
    src_offset: int = 0
    dst_offset: int = 0
    begin: tuple[int, ...] = ()
    size: tuple[int, ...] = ()
    mode: str = "strided"

    def src_span(self) -> tuple[int, int]:
        """The range of elements read, in the source: first, and last + 1."""
        if self.mode == "strided":
            return span(self.shape, self.src_strides, self.src_offset)
        low = high = self.src_offset
        for n, stride, begin, size in zip(
            self.shape, self.src_strides, self.begin, self.size, strict=True
        ):
            first, last = _source_range(self.mode, -begin, n - 1 - begin, size)
            low, high = low + first * stride, high + last * stride
        return low, high + 1

    def block(self, start: tuple[int, ...], shape: tuple[int, ...]) -> Box:
        """The block of ``shape`` elements from the coordinates ``start`` on."""
        dst_offset = self.dst_offset + sum(map(mul, start, self.dst_strides))
        block = replace(self, shape=shape, dst_offset=dst_offset)
        if self.mode == "strided":
            src_offset = self.src_offset + sum(map(mul, start, self.src_strides))
            return replace(block, src_offset=src_offset)
        return replace(block, begin=tuple(map(sub, self.begin, start)))


def _source_range(mode: str, first: int, last: int, size: int) -> tuple[int, int]:
    """Source coordinates that padded ones first … last lead to. With a constant there may be none;
    the nearest one is taken then."""
    if mode != "reflection":
        return min(max(first, 0), size - 1), min(max(last, 0), size - 1)
    # Mirrored: an end inside the source is one of the range's, else the mirrored coordinates are.
    turned = [min(abs(x), 2 * (size - 1) - abs(x)) for x in (first, last)]
    low = 0 if first <= 0 <= last else min(turned)
    high = size - 1 if first <= size - 1 <= last else max(turned)
    return low, high


def merged(box: Box) -> Box:
    """The box with dimensions merged where they lie behind each other on both sides."""
    shape, (src, dst) = collapse(box.shape, box.src_strides, box.dst_strides)
    if shape == (1,):
        src = dst = (1,)
    return replace(box, shape=shape, src_strides=src, dst_strides=dst)


def turns(box: Box) -> bool:
    """Whether tiles in shared memory are worth it: elements side by side in the source lie apart in
    the destination, and the other way round, in rows and columns that fill half a tile."""
    if not 2 <= len(box.shape) <= 4 or min(*box.src_strides, *box.dst_strides) < 1:
        return False
    if box.dst_strides[-1] != 1 or 1 not in box.src_strides[:-1]:
        return False
    return min(box.shape[-1], box.shape[box.src_strides.index(1)]) >= _TILE // 2


# -- kernels --------------------------------------------------------------------------------------
_PADDED = (2, 3, 4, 8)
#: Dimensions of the boxes that kernels exist for, by mode. tile makes two of each of 8 dimensions.
RANKS = {
    "strided": (1, 2, 3, 4, 6, 16), "constant": _PADDED, "edge": _PADDED, "reflection": _PADDED
}


#: Elements along each side of a tile, and rows of them that a workgroup moves at once.
_TILE, _ROWS = 32, 8


def has_tiles(profile: DeviceProfile) -> bool:
    """Whether a device can transpose by tiles."""
    return (
        profile.max_workgroup_invocations >= _TILE * _ROWS
        and profile.max_workgroup_size[0] >= _TILE and profile.max_workgroup_size[1] >= _ROWS
        and profile.max_shared_memory >= 4 * _TILE * (_TILE + 1)
    )


# -- dispatches -----------------------------------------------------------------------------------
def move(
    source: Value | Scratch, target: Value | Scratch, box: Box, profile: DeviceProfile, *,
    tiled: bool = False, value: tuple[int, ...] = (),
) -> list[Dispatch]:
    """The dispatches that copy a box, numbers in elements of the two. ``tiled``: by tiles in
    shared memory where they are worth it. ``value``: the words that pad with a constant."""
    size = item_size(target)
    if box.mode == "strided":
        box = merged(box)
        whole = byte_length(source) // size
        in_order = box.src_strides == box.dst_strides == (1,)
        if in_order and box.shape == (whole,) and whole == byte_length(target) // size:
            # Values are padded to 16 bytes, so all of one may be copied with its padding.
            box = replace(box, shape=(ceil_divide(whole * size, 16) * (16 // size),))
    width, box = _widened(box, size)
    return [
        _transposed(source, target, part, profile) if tiled and width == 4 and turns(part)
        else _copied(source, target, width, part, profile, value)
        for part in _blocks(source, target, width, box, profile)
    ]


def _transposed(
    source: Value | Scratch, target: Value | Scratch, box: Box, profile: DeviceProfile
) -> Dispatch:
    bindings, numbers = _bound(source, target, 4, box, profile)
    side, last = box.src_strides.index(1), len(box.shape) - 1
    rest = [axis for axis in range(last) if axis != side]
    missing = 2 - len(rest)
    batches = (1,) * missing + tuple(box.shape[axis] for axis in rest)
    across, down = box.shape[side], box.shape[last]
    params = {
        "across": across, "down": down,
        "src_offset": numbers["src_offset"], "dst_offset": numbers["dst_offset"],
        "src_stride": box.src_strides[last], "dst_stride": box.dst_strides[side],
        "batches": batches,
        "src_batch": (0,) * missing + tuple(box.src_strides[axis] for axis in rest),
        "dst_batch": (0,) * missing + tuple(box.dst_strides[axis] for axis in rest),
    }
    groups = ceil_divide(across, _TILE) * ceil_divide(down, _TILE) * prod(batches)
    buffers = buffer("src", 4), buffer("dst", 4, "w")
    return Dispatch(
        _module("transpose", buffers, declared(params)), bindings, grid(groups, profile), params,
        {"LX": _TILE, "LY": _ROWS}, "transpose", f"{_TILE}x{_TILE} 32 bit",
        bytes=8 * numbers["count"],
    )


def _widened(box: Box, size: int) -> tuple[int, Box]:
    """The box in the widest elements its innermost runs allow, and their width in bytes."""
    width = size
    if box.src_strides[-1] == box.dst_strides[-1] == 1:
        numbers = [box.shape[-1], box.src_offset, box.dst_offset]
        numbers += [*box.src_strides[:-1], *box.dst_strides[:-1]]
        if box.mode != "strided":
            numbers += [box.begin[-1], box.size[-1]]
        # Only an unpadded innermost dimension has whole elements at the edges.
        if box.mode in ("strided", "constant") or box.shape[-1] == box.size[-1]:
            width = widest(size, numbers)
    n = width // size
    if n == 1:
        return width, box

    def inner(numbers: tuple[int, ...]) -> tuple[int, ...]:
        return (*numbers[:-1], numbers[-1] // n) if numbers else ()

    def outer(numbers: tuple[int, ...]) -> tuple[int, ...]:
        return (*(s // n for s in numbers[:-1]), 1)

    box = replace(
        box,
        shape=inner(box.shape), begin=inner(box.begin), size=inner(box.size),
        src_strides=outer(box.src_strides), dst_strides=outer(box.dst_strides),
        src_offset=box.src_offset // n, dst_offset=box.dst_offset // n,
    )
    if box.mode == "strided":
        shape, (src, dst) = collapse(box.shape, box.src_strides, box.dst_strides)
        box = replace(box, shape=shape, src_strides=src, dst_strides=dst)
    return width, box


def _blocks(
    source: Value | Scratch, target: Value | Scratch, width: int, box: Box, profile: DeviceProfile
) -> Iterator[Box]:
    """The box in blocks of which each reads and writes what a binding holds."""
    # Padding reads the source from any element on.
    src_start = box.src_offset if box.mode == "strided" else 1
    reaches = [
        Reach(strides, width, start)
        for value, strides, start in (
            (source, box.src_strides, src_start), (target, box.dst_strides, box.dst_offset)
        )
        if padded(byte_length(value)) > profile.max_storage_buffer_range
    ]
    for start, shape in blocks(box.shape, block_shape(box.shape, reaches, profile)):
        yield box.block(start, shape)


def _bound(
    source: Value | Scratch, target: Value | Scratch, width: int, box: Box, profile: DeviceProfile
) -> tuple[tuple[Binding, Binding], dict[str, int]]:
    """Bindings for a box, and its offsets from where they begin."""
    first, last = box.src_span()
    low, high = span(box.shape, box.dst_strides, box.dst_offset)
    src, src_base = bind(source, profile, first * width, last * width)
    dst, dst_base = bind(target, profile, low * width, high * width)
    return (src, dst), {
        "src_offset": (box.src_offset - src_base // width) % 2**32,
        "dst_offset": box.dst_offset - dst_base // width,
        "count": prod(box.shape),
    }


def _copied(
    source: Value | Scratch, target: Value | Scratch, width: int, box: Box, profile: DeviceProfile,
    value: tuple[int, ...],
) -> Dispatch:
    """The dispatch for a box that fits bindings, by the kernel of the smallest rank that holds it:
    dimensions of size 1 are added in front."""
    bindings, offsets = _bound(source, target, width, box, profile)
    rank = next(r for r in RANKS[box.mode] if r >= len(box.shape))
    missing = rank - len(box.shape)
    dims = (1,) * missing + box.shape
    lists = {
        "dims": dims,
        "reciprocals": tuple(reciprocal(n) for n in dims),
        "src_strides": (0,) * missing + tuple(s % 2**32 for s in box.src_strides),
        "dst_strides": (0,) * missing + tuple(s % 2**32 for s in box.dst_strides),
    }
    if box.mode != "strided":
        lists |= {"begin": (0,) * missing + box.begin, "size": (1,) * missing + box.size}
    if value:
        lists["value"] = value
    params = {name: n[0] if rank == 1 else n for name, n in lists.items()}
    return copy_dispatch(
        box.mode, rank, bindings, params | offsets, width, profile, types={"begin": "int"}
    )


def copy_dispatch(
    mode: str, rank: int, bindings: tuple[Binding, Binding], params: Mapping[str, Any], width: int,
    profile: DeviceProfile, types: Mapping[str, str],
) -> Dispatch:
    """A dispatch of the template that copies elements ``width`` bytes wide. ``types`` as for
    ``declared``."""
    src = buffer("src", width)
    # The other boxes are rare, and modules for them would make the shader archive larger.
    if (
        width in (4, 16) and mode in ("strided", "constant", "triangular") and rank <= 6
        and device_class(profile).copies_texels and has_texels(profile)
    ):
        src = replace(src, load="texel")
    buffers = src, buffer("dst", width, "w")
    return by_element(
        "copy", [*zip(buffers, bindings, strict=True)], params, width, profile,
        (("mode", mode), ("rank", rank)), types=types,
        variant=f"{mode}{f' {rank}d' if rank else ''} {8 * width} bit",
        bytes=2 * width * params["count"],
    )


def by_element(
    template: str, operands: Sequence[tuple[Buffer, Binding]], params: Mapping[str, Any],
    width: int, profile: DeviceProfile, options: tuple[tuple[str, Any], ...] = (), *,
    types: Mapping[str, str] | None = None, kernel: str = "", variant: str, bytes: int,
) -> Dispatch:
    """A dispatch of the template with an invocation for each of ``params["count"]`` elements, which
    are ``width`` bytes wide. ``types`` as for ``declared``. ``kernel``: the name in reports, if
    that is not the template's."""
    buffers, bindings = zip(*operands, strict=True)
    spec = _module(
        template, buffers, declared(params, types), options,
        _FEATURES.get(width, frozenset()) & profile.features,
    )
    lanes = workgroup(profile)
    return Dispatch(
        spec, bindings, grid(ceil_divide(params["count"], lanes), profile), params, {"LX": lanes},
        kernel or template, variant, bytes=bytes,
    )


@functools.cache
def _module(
    template: str, buffers: tuple[Buffer, ...], params: tuple[Param, ...],
    options: tuple[tuple[str, Any], ...] = (), features: frozenset[str] = frozenset(),
) -> KernelSpec:
    return KernelSpec(
        f"{template}.comp.j2", buffers, params, options=options, features=features
    )
