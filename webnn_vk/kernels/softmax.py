"""Softmax along one dimension: an invocation or a workgroup per row."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from webnn_vk.codegen.spec import Buffer, KernelSpec, Param

from ..data_types import FLOAT_TYPES
from ..device_profile import DeviceProfile
from ..graph import Node
from . import axes
from .dispatch import Dispatch
from .epilogue import Epilogue, build, nothing
from .expression import used_features
from .windows import bound, dispatch

EPILOGUE = True

_PARAMS = (Param("rows"), Param("len"), Param("inner"))


def plan(node: Node, profile: DeviceProfile) -> list[Dispatch]:
    x, axis = node.operands["input"], node.arguments["axis"]
    length, inner = x.shape[axis], prod(x.shape[axis + 1 :])
    rows = x.descriptor.size // length
    operands = bound("x", x, profile), bound("out", node.output, profile, "w")
    epilogue = build(node)
    lanes = axes.lanes(rows, length, inner == 1, profile, 3)
    spec = _spec(tuple(o.buffer for o in operands), lanes > 1, epilogue, profile.features)
    size, groups = axes.launch(rows, lanes, profile)
    return [
        dispatch(
            node, spec, operands, epilogue, groups,
            {"rows": rows, "len": length, "inner": inner}, {"LX": size}, profile,
            kernel="softmax", variant="group" if lanes > 1 else "invocation",
            flops=5 * rows * length,
        )
    ]


def _spec(
    buffers: tuple[Buffer, ...], group: bool, epilogue: Epilogue, features: frozenset[str]
) -> KernelSpec:
    buffers += epilogue.buffers
    return KernelSpec(
        "softmax.comp.j2", buffers, _PARAMS + epilogue.params,
        options=(("group", group), *epilogue.options),
        features=used_features(features, buffers, epilogue.int64),
    )


def catalogue(features: frozenset[str]) -> Iterator[KernelSpec]:
    for data_type in FLOAT_TYPES:
        buffers = Buffer("x", data_type), Buffer("out", data_type, "w")
        for group in (False, True):
            yield _spec(buffers, group, nothing(data_type), features)
