"""Softmax along one dimension: an invocation, a workgroup or a SIMD group per row."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from webnn_vk.driver.device_profile import DeviceProfile

from . import rows
from .dispatch import Dispatch
from .epilogue import build
from .family import Family
from .loads import SHUFFLES, lanes_of_processor, shuffling, texel_bytes
from .multi_binding import bound, dispatch
from .node import KernelNode
from .rows import Rows
from .schedule import Schedule

# Iterations that an element costs: the largest, the sum, the quotient.
_PASSES = 3


class Softmax(Family):
    """See the module's docstring."""

    name = "softmax"
    fuses = True
    input_loads = 3

    def problem(self, node: KernelNode) -> Rows:
        x, axis = node.operands["input"], node.arguments["axis"]
        length = x.shape[axis]
        contiguous, texels = prod(x.shape[axis + 1 :]) == 1, x.data_type == "float32"
        return Rows(x.size // length, length, contiguous, _PASSES, texels)

    def candidates(self, problem: Rows, profile: DeviceProfile) -> Sequence[Schedule]:
        """Rows that a SIMD group of a processor keeps in registers are computed by one."""
        candidates = rows.schedules(problem, profile)
        lanes = lanes_of_processor(profile, SHUFFLES)
        if lanes and rows.vectors(problem, lanes).kept:
            candidates += [
                Schedule("subgroup", (("lanes", lanes),), load)
                for load in dict.fromkeys(c.load for c in candidates)
            ]
        return candidates

    def lower(
        self, node: KernelNode, problem: Rows, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        x, axis = node.operands["input"], node.arguments["axis"]
        vectors = rows.vectors(problem, schedule["lanes"])
        texels = texel_bytes(profile, schedule.load)
        operands = (
            bound("x", x, profile, width=vectors.width, texels=texels),
            bound("out", node.output, profile, "w", width=vectors.width),
        )
        lanes, subgroup = schedule["lanes"], schedule.kernel == "subgroup"
        size, groups = (
            rows.launch(lanes * problem.rows, 1, profile) if subgroup
            else rows.launch(problem.rows, lanes, profile)
        )
        params = {
            "rows": problem.rows, "len": problem.length, "inner": prod(x.shape[axis + 1 :])
        }
        step = dispatch(
            node, "softmax", operands, build(node, texels), groups, params,
            {"LX": size} | vectors.constants, profile,
            (("group", lanes > 1 and not subgroup), ("vectors", vectors.way)),
            variant=vectors.named(schedule), flops=5 * x.size,
        )
        return [shuffling(step, lanes if subgroup else 0)]
