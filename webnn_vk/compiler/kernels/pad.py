"""Padding with a constant, the nearest edge or the mirrored input, by other modes of the template
that copies."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from webnn_vk.codegen.spec import KernelSpec, Param
from webnn_vk.driver.device_profile import DeviceProfile

from ..types.access import strides
from . import raw_copy, strided_copy
from .copy import move
from .dispatch import Dispatch
from .family import Family
from .node import KernelNode
from .schedule import Schedule
from .strided_copy import Box

RANKS = (2, 3, 4, 8)


@functools.cache
def pad_spec(width: int, rank: int, mode: str, features: frozenset[str]) -> KernelSpec:
    """Padding of ``rank`` dimensions."""
    value = (Param("value", count=4),) if mode == "constant" else ()
    return strided_copy.box_spec(
        width, features, mode, rank,
        *(Param(name, count=rank) for name in strided_copy.PARAMS),
        Param("begin", "int", rank), Param("size", count=rank),
        Param("src_offset"), Param("dst_offset"), Param("count"), *value,
    )


@dataclass(frozen=True)
class Padding:
    """What is padded: the box of the whole output, and the size of an element in bytes."""

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
        return Padding(box, raw_copy.item_size(node.output.value))

    def candidates(self, problem: Padding, profile: DeviceProfile) -> Sequence[Schedule]:
        return [Schedule("copy")]

    def lower(
        self, node: KernelNode, problem: Padding, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """One dispatch, more above the binding limit; a copy where nothing is added."""
        source, target, box = node.operands["input"].value, node.output.value, problem.box
        if all(b == 0 for b in box.begin) and box.shape == box.size:
            return move(source, target, Box((target.descriptor.size,), (1,), (1,)), profile)
        width, box = strided_copy.widened(box, problem.itemsize)
        dispatches = []
        for part in strided_copy.halved(source, target, width, box, profile):
            bindings, params = strided_copy.bound_box(source, target, width, part, profile)
            rank, numbers = strided_copy.box_numbers(part, RANKS)
            params |= numbers
            if box.mode == "constant":
                value = np.array(node.arguments["value"]).astype(target.descriptor.numpy_dtype)
                words = np.frombuffer(value.tobytes() * (16 // value.itemsize), "<u4")
                params["value"] = tuple(words.tolist())
            spec = pad_spec(width, rank, box.mode, profile.features)
            dispatches.append(strided_copy.box_dispatch(spec, bindings, params, width, profile))
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
