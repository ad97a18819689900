"""Operators that move elements between strided boxes: transpose, slice, concat, split, expand,
tile, reverse, pad, triangular. One template; shapes, strides and offsets are parameters.

Boxes are collapsed to few dimensions and contiguous runs widened to elements of up to 16 bytes. A
tensor over the device's binding limit is halved into boxes that each touch one binding's range.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from webnn_vk.codegen.spec import KernelSpec, Param

from ..device_profile import DeviceProfile
from ..graph import Node, Value
from . import elements
from .dispatch import Binding, Dispatch, broadcast_strides, collapse, grid, strides
from .expression import reciprocal

#: Dimensions of the boxes that kernels exist for. tile makes two of each of 8 dimensions.
RANKS = (1, 2, 3, 4, 6, 16)
PAD_RANKS = (2, 3, 4, 8)
_PAD_MODES = ("constant", "edge", "reflection")
_BOX_PARAMS = ("dims", "reciprocals", "src_strides", "dst_strides")


@dataclass(frozen=True)
class Box:
    """A box of ``shape`` elements with the strides and offsets, in elements, by which it lies in
    the source and in the destination. Padding: ``begin`` and ``size`` say where the source's
    elements are along each dimension; source strides and offset are those of its first element."""

    shape: tuple[int, ...]
    src_strides: tuple[int, ...]
    dst_strides: tuple[int, ...]
    src_offset: int = 0
    dst_offset: int = 0
    begin: tuple[int, ...] = ()
    size: tuple[int, ...] = ()
    mode: str = "strided"

    def src_span(self) -> tuple[int, int]:
        """First and last + 1 element read."""
        if self.mode == "strided":
            return _span(self.shape, self.src_strides, self.src_offset)
        low = high = self.src_offset
        for n, stride, begin, size in zip(
            self.shape, self.src_strides, self.begin, self.size, strict=True
        ):
            first, last = _source_range(self.mode, -begin, n - 1 - begin, size)
            if first > last:
                return self.src_offset, self.src_offset
            low, high = low + first * stride, high + last * stride
        return low, high + 1

    def dst_span(self) -> tuple[int, int]:
        """First and last + 1 element written."""
        return _span(self.shape, self.dst_strides, self.dst_offset)

    def halves(self, axis: int) -> tuple[Box, Box]:
        """The box cut in two along a dimension."""
        first = self.shape[axis] // 2
        low = replace(self, shape=_with(self.shape, axis, first))
        high = replace(
            self,
            shape=_with(self.shape, axis, self.shape[axis] - first),
            dst_offset=self.dst_offset + first * self.dst_strides[axis],
        )
        if self.mode == "strided":
            offset = self.src_offset + first * self.src_strides[axis]
            return low, replace(high, src_offset=offset)
        return low, replace(high, begin=_with(self.begin, axis, self.begin[axis] - first))


def _with(numbers: tuple[int, ...], axis: int, number: int) -> tuple[int, ...]:
    return (*numbers[:axis], number, *numbers[axis + 1 :])


def _span(shape: tuple[int, ...], own: tuple[int, ...], offset: int) -> tuple[int, int]:
    ends = [(n - 1) * s for n, s in zip(shape, own, strict=True)]
    return offset + sum(min(0, e) for e in ends), offset + sum(max(0, e) for e in ends) + 1


def _source_range(mode: str, first: int, last: int, size: int) -> tuple[int, int]:
    """Source coordinates that padded ones first … last lead to; (1, 0) where there are none."""
    if mode == "constant":
        first, last = max(first, 0), min(last, size - 1)
        return (first, last) if first <= last else (1, 0)
    if mode == "edge":
        return min(max(first, 0), size - 1), min(max(last, 0), size - 1)
    # Mirrored: an end inside the source is one of the range's, else the mirrored coordinates are.
    turned = [_mirror(x, size) for x in (first, last)]
    low = 0 if first <= 0 <= last else min(turned)
    high = size - 1 if first <= size - 1 <= last else max(turned)
    return low, high


def _mirror(x: int, size: int) -> int:
    x = abs(x)
    return 2 * (size - 1) - x if x >= size else x


# -- specs -----------------------------------------------------------------------------------
@functools.cache
def strided_spec(width: int, rank: int, features: frozenset[str]) -> KernelSpec:
    """Copy between strided boxes of ``rank`` dimensions, elements ``width`` bytes wide."""
    return _spec(
        width, features, "strided", rank,
        *(Param(name, count=rank) for name in _BOX_PARAMS),
        Param("src_offset"), Param("dst_offset"), Param("count"),
    )


@functools.cache
def pad_spec(width: int, rank: int, mode: str, features: frozenset[str]) -> KernelSpec:
    """Padding of ``rank`` dimensions."""
    value = (Param("value", count=4),) if mode == "constant" else ()
    return _spec(
        width, features, mode, rank,
        *(Param(name, count=rank) for name in _BOX_PARAMS),
        Param("begin", "int", rank), Param("size", count=rank),
        Param("src_offset"), Param("dst_offset"), Param("count"), *value,
    )


@functools.cache
def triangular_spec(width: int, features: frozenset[str]) -> KernelSpec:
    """Matrices masked by a diagonal."""
    return _spec(
        width, features, "triangular", 0,
        Param("first"), Param("count"), Param("rows"), Param("columns"), Param("upper"),
        Param("diagonal", "int"),
    )


def _spec(
    width: int, features: frozenset[str], mode: str, rank: int, *params: Param
) -> KernelSpec:
    return KernelSpec(
        "copy.comp.j2",
        (elements.buffer("src", width), elements.buffer("dst", width, "w")),
        params,
        options=(("mode", mode), ("rank", rank)),
        features=elements.storage_features(width, features),
    )


def catalogue(features: frozenset[str]) -> Iterator[KernelSpec]:
    """Every kernel of this family."""
    for width in elements.WIDTHS:
        for rank in RANKS:
            yield strided_spec(width, rank, features)
        for rank in PAD_RANKS:
            # Edges and mirrors of a run are no runs, but the other dimensions may hold them.
            for mode in _PAD_MODES:
                yield pad_spec(width, rank, mode, features)
        if width < 16:
            yield triangular_spec(width, features)


# -- planning --------------------------------------------------------------------------------
def plan(node: Node, profile: DeviceProfile) -> list[Dispatch]:
    """Dispatches of a node: one, or one per input or output, more above the binding limit."""
    name = node.operator.name
    if name == "pad":
        return _pad(node, profile)
    if name == "triangular":
        return _triangular(node, profile)
    return [
        dispatch
        for source, target, box in _moves(node)
        for dispatch in move(source, target, box, profile)
    ]


def _moves(node: Node) -> Iterator[tuple[Value, Value, Box]]:
    """(source, destination, box) of every strided copy that a node is made of."""
    if node.operator.name == "concat":
        yield from _concat(node)
        return
    source = node.operands["input"]
    own = strides(source.shape)
    arguments = node.arguments
    if node.operator.name == "split":
        axis, start = arguments["axis"], 0
        for target in node.outputs:
            yield source, target, Box(
                target.shape, own, strides(target.shape), src_offset=start * own[axis]
            )
            start += target.shape[axis]
        return
    target = node.output
    shape, offset = target.shape, 0
    match node.operator.name:
        case "transpose":
            own = tuple(own[axis] for axis in arguments["permutation"])
        case "slice":
            offset = sum(s * n for s, n in zip(arguments["starts"], own, strict=True))
            own = tuple(s * n for s, n in zip(arguments["strides"], own, strict=True))
        case "expand":
            own = broadcast_strides(source.shape, shape)
        case "reverse":
            turned = arguments["axes"]
            offset = sum((shape[axis] - 1) * own[axis] for axis in turned)
            own = tuple(-s if axis in turned else s for axis, s in enumerate(own))
        case "tile":
            pairs = zip(arguments["repetitions"], source.shape, strict=True)
            shape = tuple(n for pair in pairs for n in pair)
            own = tuple(n for stride in own for n in (0, stride))
    yield source, target, Box(shape, own, strides(shape), src_offset=offset)


def _concat(node: Node) -> Iterator[tuple[Value, Value, Box]]:
    axis, target, start = node.arguments["axis"], node.output, 0
    own = strides(target.shape)
    for source in node.sequence("inputs"):
        yield source, target, Box(
            source.shape, strides(source.shape), own, dst_offset=start * own[axis]
        )
        start += source.shape[axis]


def move(source: Value, target: Value, box: Box, profile: DeviceProfile) -> list[Dispatch]:
    """The dispatches that copy a strided box, numbers in elements of the two values."""
    shape, (src, dst) = collapse(box.shape, box.src_strides, box.dst_strides)
    if shape == (1,):
        src = dst = (1,)
    box = replace(box, shape=shape, src_strides=src, dst_strides=dst)
    size = elements.item_size(target)
    whole = source.descriptor.size
    if src == dst == (1,) and shape == (whole,) and whole == target.descriptor.size:
        # Values are padded to 16 bytes, so all of one may be copied with its padding.
        box = replace(box, shape=(-(-whole * size // 16) * (16 // size),))
    return [
        _strided(source, target, width, part, profile)
        for width, wide in [_widened(box, size)]
        for part in _boxes(source, target, width, wide, profile)
    ]


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
            width = elements.widest(size, numbers)
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


def _boxes(
    source: Value, target: Value, width: int, box: Box, profile: DeviceProfile
) -> Iterator[Box]:
    """The box, halved until what each part reads and writes fits a binding."""
    ends = (
        (source, box.src_strides, box.src_span()),
        (target, box.dst_strides, box.dst_span()),
    )
    too_long = [
        own
        for value, own, (first, last) in ends
        if not elements.fits(value, profile, first * width, last * width)
    ]
    if not too_long:
        yield box
        return
    # Halving the dimension that spans most of what is too long shrinks it fastest.
    spans = [
        max(abs(own[axis]) for own in too_long) * n if n > 1 else 0
        for axis, n in enumerate(box.shape)
    ]
    for part in box.halves(spans.index(max(spans))):
        yield from _boxes(source, target, width, part, profile)


def _bound(
    source: Value, target: Value, width: int, box: Box, profile: DeviceProfile
) -> tuple[tuple[Binding, Binding], dict[str, int]]:
    """Bindings for a box, and its offsets from where they begin."""
    (first, last), (low, high) = box.src_span(), box.dst_span()
    src, src_base = elements.bind(source, profile, first * width, last * width)
    dst, dst_base = elements.bind(target, profile, low * width, high * width)
    return (src, dst), {
        "src_offset": (box.src_offset - src_base // width) % 2**32,
        "dst_offset": box.dst_offset - dst_base // width,
        "count": math.prod(box.shape),
    }


def _numbers(box: Box, ranks: tuple[int, ...]) -> tuple[int, dict[str, tuple[int, ...] | int]]:
    """The smallest kernel rank for a box, and its dimensions padded to it in front."""
    rank = next(r for r in ranks if r >= len(box.shape))
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
    return rank, {name: n[0] if rank == 1 else n for name, n in lists.items()}


def _dispatch(
    spec: KernelSpec, bindings: tuple[Binding, Binding], params: dict, width: int,
    profile: DeviceProfile,
) -> Dispatch:
    invocations = elements.workgroup(profile)
    mode, rank = spec.option("mode"), spec.option("rank")
    return Dispatch(
        spec,
        bindings,
        grid(-(-params["count"] // invocations), profile),
        params,
        {"LX": invocations},
        kernel="copy",
        variant=f"{mode}{f' {rank}d' if rank else ''} {8 * width} bit",
        bytes=2 * width * params["count"],
    )


def _strided(
    source: Value, target: Value, width: int, box: Box, profile: DeviceProfile
) -> Dispatch:
    bindings, offsets = _bound(source, target, width, box, profile)
    rank, numbers = _numbers(box, RANKS)
    spec = strided_spec(width, rank, profile.features)
    return _dispatch(spec, bindings, numbers | offsets, width, profile)


# -- pad and triangular ----------------------------------------------------------------------
def _pad(node: Node, profile: DeviceProfile) -> list[Dispatch]:
    source, target, mode = node.operands["input"], node.output, node.arguments["mode"]
    box = _pad_box(source.shape, target.shape, node.arguments["beginning_padding"], mode)
    if all(b == 0 for b in box.begin) and box.shape == box.size:
        return move(source, target, Box((target.descriptor.size,), (1,), (1,)), profile)
    width, box = _widened(box, elements.item_size(target))
    dispatches = []
    for part in _boxes(source, target, width, box, profile):
        bindings, params = _bound(source, target, width, part, profile)
        rank, numbers = _numbers(part, PAD_RANKS)
        params |= numbers
        if mode == "constant":
            value = np.array(node.arguments["value"]).astype(target.descriptor.numpy_dtype)
            words = np.frombuffer(value.tobytes() * (16 // value.itemsize), "<u4")
            params["value"] = tuple(words.tolist())
        spec = pad_spec(width, rank, mode, profile.features)
        dispatches.append(_dispatch(spec, bindings, params, width, profile))
    return dispatches


def _pad_box(
    source: tuple[int, ...], target: tuple[int, ...], begin: tuple[int, ...], mode: str
) -> Box:
    """Padding in few dimensions: unpadded ones join the one before them. A dimension padded with a
    constant may take unpadded ones after it in; an edge or a mirror does not lie whole in a run."""
    dims: list[list[int]] = []  # (extent of the target, begin, extent of the source)
    for n, m, b in zip(target, source, begin, strict=True):
        unpadded = n == m
        if dims and unpadded and (mode == "constant" or dims[-1][0] == dims[-1][2]):
            dims[-1] = [dims[-1][0] * n, dims[-1][1] * n, dims[-1][2] * n]
        else:
            dims.append([n, b, m])
    shape, first, size = (tuple(d[i] for d in dims) or (f,) for i, f in ((0, 1), (1, 0), (2, 1)))
    return Box(shape, strides(size), strides(shape), begin=first, size=size, mode=mode)


def _triangular(node: Node, profile: DeviceProfile) -> list[Dispatch]:
    source, target = node.operands["input"], node.output
    width = elements.item_size(target)
    rows, columns = target.shape[-2:]
    spec = triangular_spec(width, profile.features)
    dispatches = []
    for part in elements.ranges(target.descriptor.size, width, profile):
        bindings = tuple(
            elements.bind_range(value, part, width) for value in (source, target)
        )
        params = {
            "first": part.start, "count": len(part), "rows": rows, "columns": columns,
            "upper": int(node.arguments["upper"]), "diagonal": node.arguments["diagonal"],
        }
        dispatches.append(_dispatch(spec, bindings, params, width, profile))
    return dispatches
