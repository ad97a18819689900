"""Movements of elements between strided boxes: transpose, slice, concat, split, expand, tile,
reverse. One template; shapes, strides and offsets are parameters. Where elements that lie side by
side before don't afterwards, another moves them by tiles in shared memory (GPUs)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass

from ..ir import Value
from ..ops.lowering import Join
from ..types.access import Access, strides
from . import raw_copy
from .dispatch import Dispatch
from .family import Family
from .node import KernelNode
from .raw_copy import Box
from .schedule import Schedule


@dataclass(frozen=True)
class Movement:
    """The boxes that a node copies, and the size of an element in bytes."""

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
        boxes = map(raw_copy.merged, problem.boxes)
        words = problem.itemsize == 4
        if words and raw_copy.has_tiles(profile) and any(map(raw_copy.turns, boxes)):
            schedules.append(Schedule("transpose"))
        return schedules

    def lower(
        self, node: KernelNode, problem: Movement, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """One dispatch per box, more above the binding limit, none for what is in place."""
        tiled = schedule.kernel == "transpose"
        return [
            dispatch
            for number, (source, target, box) in enumerate(moves(node))
            if number not in node.in_place
            for dispatch in raw_copy.move(source, target, box, profile, tiled=tiled)
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
