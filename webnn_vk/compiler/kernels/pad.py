"""Padding with a constant, the nearest edge or the mirrored input, by other modes of the template
that copies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass

from ..types.access import strides
from . import raw_copy
from .dispatch import Dispatch
from .family import Family
from .node import KernelNode
from .raw_copy import Box, move
from .schedule import Schedule


@dataclass(frozen=True)
class Padding:
    """The box of the whole output, and the size of an element in bytes."""

    box: Box
    itemsize: int


class Pad(Family):
    """See the module's docstring."""

    name = "pad"
    templates = ("copy",)

    def problem(self, node: KernelNode) -> Padding:
        source, arguments = node.operands["input"], node.arguments
        box = _pad_box(
            source.shape, node.output.shape, arguments["beginning_padding"], arguments["mode"]
        )
        if box.shape == box.size:
            box = Box((source.size,), (1,), (1,))
        return Padding(box, raw_copy.item_size(node.output.value))

    def candidates(self, problem: Padding, profile: DeviceProfile) -> Sequence[Schedule]:
        return [Schedule("copy")]

    def lower(
        self, node: KernelNode, problem: Padding, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """One dispatch, more above the binding limit; a copy where nothing is added."""
        source, target = node.operands["input"].value, node.output.value
        value: tuple[int, ...] = ()
        if problem.box.mode == "constant":
            number = np.array(node.arguments["value"]).astype(target.descriptor.numpy_dtype)
            value = tuple(np.frombuffer(number.tobytes() * (16 // number.itemsize), "<u4").tolist())
        return move(source, target, problem.box, profile, value=value)


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
