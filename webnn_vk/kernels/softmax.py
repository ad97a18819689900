"""Softmax along one dimension: an invocation or a workgroup per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from webnn_vk.codegen.spec import Buffer, KernelSpec, Param

from ..data_types import FLOAT_TYPES
from ..device_profile import DeviceProfile
from . import rows
from .dispatch import Dispatch
from .epilogue import Epilogue, build, nothing
from .expression import used_features
from .family import Family
from .node import KernelNode
from .portions import bound, dispatch
from .rows import Rows
from .schedule import Schedule

_PARAMS = (Param("rows"), Param("len"), Param("inner"))
# Iterations that an element costs: the largest, the sum, the quotient.
_PASSES = 3


class Softmax(Family):
    """See the module's docstring."""

    name = "softmax"
    fuses = True

    def problem(self, node: KernelNode) -> Rows:
        x, axis = node.operands["input"], node.arguments["axis"]
        length = x.shape[axis]
        return Rows(x.size // length, length, prod(x.shape[axis + 1 :]) == 1, _PASSES)

    def candidates(self, problem: Rows, profile: DeviceProfile) -> Sequence[Schedule]:
        return rows.schedules(problem, profile)

    def lower(
        self, node: KernelNode, problem: Rows, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        x, axis = node.operands["input"], node.arguments["axis"]
        operands = bound("x", x, profile), bound("out", node.output, profile, "w")
        epilogue = build(node)
        group = schedule["lanes"] > 1
        spec = _spec(tuple(o.buffer for o in operands), group, epilogue, profile.features)
        size, groups = rows.launch(problem.rows, schedule["lanes"], profile)
        params = {
            "rows": problem.rows, "len": problem.length, "inner": prod(x.shape[axis + 1 :])
        }
        return [
            dispatch(
                node, spec, operands, epilogue, groups, params, {"LX": size}, profile,
                kernel="softmax", variant=schedule.kernel, flops=5 * x.size,
            )
        ]

    def catalogue(self, features: frozenset[str]) -> Iterator[KernelSpec]:
        for data_type in FLOAT_TYPES:
            buffers = Buffer("x", data_type), Buffer("out", data_type, "w")
            for group in (False, True):
                yield _spec(buffers, group, nothing(data_type), features)


def _spec(
    buffers: tuple[Buffer, ...], group: bool, epilogue: Epilogue, features: frozenset[str]
) -> KernelSpec:
    buffers += epilogue.buffers
    return KernelSpec(
        "softmax.comp.j2", buffers, _PARAMS + epilogue.params,
        options=(("group", group), *epilogue.options),
        features=used_features(features, buffers, epilogue.int64),
    )
