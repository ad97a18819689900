"""Movements of elements between strided boxes: transpose, slice, concat, split, expand, tile,
reverse. One template; shapes, strides and offsets are parameters. Where elements that lie side by
side before don't afterwards, another moves them by tiles in shared memory (GPUs)."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from webnn_vk.codegen.spec import KernelSpec, Param
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import ceil_divide

from ..ir import Value
from ..ops.lowering import Join
from ..types.access import Access, collapse, strides
from . import raw_copy, strided_copy
from .dispatch import Dispatch, grid
from .family import Family
from .node import KernelNode
from .schedule import Schedule
from .strided_copy import Box

#: Dimensions of the boxes that kernels exist for. tile makes two of each of 8 dimensions.
RANKS = (1, 2, 3, 4, 6, 16)


@functools.cache
def strided_spec(width: int, rank: int, features: frozenset[str]) -> KernelSpec:
    """Copy between strided boxes of ``rank`` dimensions, elements ``width`` bytes wide."""
    return strided_copy.box_spec(
        width, features, "strided", rank,
        *(Param(name, count=rank) for name in strided_copy.PARAMS),
        Param("src_offset"), Param("dst_offset"), Param("count"),
    )


#: Elements along each side of a tile, and rows of them that a workgroup moves at once.
TILE, _ROWS = 32, 8
_TRANSPOSE_PARAMS = (
    *(Param(name) for name in (
        "across", "down", "src_offset", "dst_offset", "src_stride", "dst_stride"
    )),
    *(Param(name, count=2) for name in ("batches", "src_batch", "dst_batch")),
)


@functools.cache
def transpose_spec() -> KernelSpec:
    """Transposes of 32-bit elements by tiles."""
    return KernelSpec(
        "transpose.comp.j2",
        (raw_copy.buffer("src", 4), raw_copy.buffer("dst", 4, "w")), _TRANSPOSE_PARAMS,
    )


@dataclass(frozen=True)
class Movement:
    """What a node copies: its boxes, and the size of an element in bytes."""

    boxes: tuple[Box, ...]
    itemsize: int


class Copy(Family):
    """See the module's docstring."""

    name = "copy"
    templates = ("copy", "transpose")

    def takes(self, node: KernelNode, operand: str) -> bool:
        return True

    def problem(self, node: KernelNode) -> Movement:
        parts = tuple(moves(node))
        return Movement(tuple(box for _, _, box in parts), raw_copy.item_size(parts[0][1]))

    def candidates(self, problem: Movement, profile: DeviceProfile) -> Sequence[Schedule]:
        schedules = [Schedule("copy")]
        fits = (
            profile.max_workgroup_invocations >= TILE * _ROWS
            and profile.max_workgroup_size[0] >= TILE and profile.max_workgroup_size[1] >= _ROWS
            and profile.max_shared_memory >= 4 * TILE * (TILE + 1)
        )
        if fits and any(_turns(_merged(box)) for box in problem.boxes if problem.itemsize == 4):
            schedules.append(Schedule("transpose"))
        return schedules

    def lower(
        self, node: KernelNode, problem: Movement, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """One dispatch per box, more above the binding limit, none for what is in place."""
        return [
            dispatch
            for number, (source, target, box) in enumerate(moves(node))
            if number not in node.in_place
            for dispatch in move(source, target, box, profile, schedule.kernel == "transpose")
        ]


def moves(node: KernelNode) -> Iterator[tuple[Value, Value, Box]]:
    """The strided copies by which a node can be computed, each as (source, destination, box)."""
    if isinstance(node.lowering, Join):
        inputs = node.sequence("inputs")
        shapes = [access.shape for access in inputs]
        places = node.lowering.places(node.output, shapes, **node.arguments)
        for access, place in zip(inputs, places, strict=True):
            yield access.value, place.value, _box(access, place.strides, place.offset)
        return
    for access, target in zip(sources(node), node.outputs, strict=True):
        # The source's dimensions may be finer than the target's, which lies row by row.
        yield access.value, target.value, _box(access, strides(access.shape), 0)


def sources(node: KernelNode) -> Sequence[Access]:
    """For each output of a node with a `Move` lowering: the access to the input whose copy it
    is."""
    shapes = [output.shape for output in node.outputs]
    return node.lowering.views(node.operands["input"], shapes, **node.arguments)


def _box(source: Access, dst_strides: tuple[int, ...], dst_offset: int) -> Box:
    return Box(source.shape, source.strides, dst_strides, source.offset, dst_offset)


def _merged(box: Box) -> Box:
    """The box with dimensions merged where they lie behind each other on both sides."""
    shape, (src, dst) = collapse(box.shape, box.src_strides, box.dst_strides)
    if shape == (1,):
        src = dst = (1,)
    return replace(box, shape=shape, src_strides=src, dst_strides=dst)


def _turns(box: Box) -> bool:
    """Whether tiles in shared memory are worth it: elements side by side in the source lie apart in
    the destination, and the other way round, in rows and columns that fill half a tile."""
    if not 2 <= len(box.shape) <= 4 or min(*box.src_strides, *box.dst_strides) < 1:
        return False
    if box.dst_strides[-1] != 1 or 1 not in box.src_strides[:-1]:
        return False
    return min(box.shape[-1], box.shape[box.src_strides.index(1)]) >= TILE // 2


def move(
    source: Value, target: Value, box: Box, profile: DeviceProfile, tiled: bool = False
) -> list[Dispatch]:
    """The dispatches that copy a strided box, numbers in elements of the two values. ``tiled``: by
    tiles in shared memory where they are worth it."""
    box = _merged(box)
    shape, src, dst = box.shape, box.src_strides, box.dst_strides
    size = raw_copy.item_size(target)
    whole = source.descriptor.size
    if src == dst == (1,) and shape == (whole,) and whole == target.descriptor.size:
        # Values are padded to 16 bytes, so all of one may be copied with its padding.
        box = replace(box, shape=(ceil_divide(whole * size, 16) * (16 // size),))
    return [
        _transposed(source, target, part, profile) if tiled and width == 4 and _turns(part)
        else _strided(source, target, width, part, profile)
        for width, wide in [strided_copy.widened(box, size)]
        for part in strided_copy.halved(source, target, width, wide, profile)
    ]


def _transposed(
    source: Value, target: Value, box: Box, profile: DeviceProfile
) -> Dispatch:
    bindings, numbers = strided_copy.bound_box(source, target, 4, box, profile)
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
    groups = ceil_divide(across, TILE) * ceil_divide(down, TILE) * prod(batches)
    return Dispatch(
        transpose_spec(), bindings, grid(groups, profile), params, {"LX": TILE, "LY": _ROWS},
        kernel="transpose", variant=f"{TILE}x{TILE} 32 bit", bytes=8 * numbers["count"],
    )


def _strided(
    source: Value, target: Value, width: int, box: Box, profile: DeviceProfile
) -> Dispatch:
    bindings, offsets = strided_copy.bound_box(source, target, width, box, profile)
    rank, numbers = strided_copy.box_numbers(box, RANKS)
    spec = strided_spec(width, rank, profile.features)
    return strided_copy.box_dispatch(spec, bindings, numbers | offsets, width, profile)
