"""Movements of elements between strided boxes: transpose, slice, concat, split, expand, tile,
reverse. One template; shapes, strides and offsets are parameters."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from webnn_vk.codegen.spec import KernelSpec, Param

from ..access import Access, collapse, strides
from ..device_profile import DeviceProfile
from ..graph import Value
from ..integers import ceil_divide
from ..ops.lowering import Join
from . import boxes, elements
from .boxes import Box
from .dispatch import Dispatch
from .family import Family
from .node import KernelNode
from .schedule import Schedule

#: Dimensions of the boxes that kernels exist for. tile makes two of each of 8 dimensions.
RANKS = (1, 2, 3, 4, 6, 16)


@functools.cache
def strided_spec(width: int, rank: int, features: frozenset[str]) -> KernelSpec:
    """Copy between strided boxes of ``rank`` dimensions, elements ``width`` bytes wide."""
    return boxes.box_spec(
        width, features, "strided", rank,
        *(Param(name, count=rank) for name in boxes.PARAMS),
        Param("src_offset"), Param("dst_offset"), Param("count"),
    )


@dataclass(frozen=True)
class Movement:
    """What a node copies: its boxes, and the size of an element in bytes."""

    boxes: tuple[Box, ...]
    itemsize: int


class Copy(Family):
    """See the module's docstring."""

    name = "copy"

    def takes(self, node: KernelNode, operand: str) -> bool:
        return True

    def problem(self, node: KernelNode) -> Movement:
        parts = tuple(moves(node))
        return Movement(tuple(box for _, _, box in parts), elements.item_size(parts[0][1]))

    def candidates(self, problem: Movement, profile: DeviceProfile) -> Sequence[Schedule]:
        return [Schedule("copy")]

    def lower(
        self, node: KernelNode, problem: Movement, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """One dispatch per box, more above the binding limit, none for what is in place."""
        return [
            dispatch
            for number, (source, target, box) in enumerate(moves(node))
            if number not in node.in_place
            for dispatch in move(source, target, box, profile)
        ]

    def catalogue(self, features: frozenset[str]) -> Iterator[KernelSpec]:
        for width in elements.WIDTHS:
            for rank in RANKS:
                yield strided_spec(width, rank, features)


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
        box = replace(box, shape=(ceil_divide(whole * size, 16) * (16 // size),))
    return [
        _strided(source, target, width, part, profile)
        for width, wide in [boxes.widened(box, size)]
        for part in boxes.halved(source, target, width, wide, profile)
    ]


def _strided(
    source: Value, target: Value, width: int, box: Box, profile: DeviceProfile
) -> Dispatch:
    bindings, offsets = boxes.bound_box(source, target, width, box, profile)
    rank, numbers = boxes.box_numbers(box, RANKS)
    spec = strided_spec(width, rank, profile.features)
    return boxes.box_dispatch(spec, bindings, numbers | offsets, width, profile)
