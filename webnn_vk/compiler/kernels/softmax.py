"""Softmax along one dimension: an invocation, a workgroup or a SIMD group per row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile

from . import rows
from .dispatch import Dispatch
from .epilogue import build
from .family import Family
from .loads import SHUFFLES, SUBGROUP_SUMS, lanes_of_processor, shuffling, texel_bytes
from .multi_binding import bound, dispatch
from .node import KernelNode
from .rows import Rows
from .schedule import Schedule

# Iterations that an element costs: the largest, the sum, the quotient.
_PASSES = 3


class Softmax(Family):
    """See the module's docstring."""

    name = "softmax"
    templates = ("softmax", "softmax_kept")
    fuses = True
    input_loads = 3

    def problem(self, node: KernelNode) -> Rows:
        x, axis = node.operands["input"], node.arguments["axis"]
        length = x.shape[axis]
        contiguous, texels = prod(x.shape[axis + 1 :]) == 1, x.data_type == "float32"
        return Rows(x.size // length, length, contiguous, _PASSES, texels)

    def candidates(self, problem: Rows, profile: DeviceProfile) -> Sequence[Schedule]:
        """Rows that are kept in registers are computed by a SIMD group of a processor, or by
        subgroup operations of a GPU."""
        candidates = rows.schedules(problem, profile)
        candidates += rows.by_subgroups(problem, candidates, profile)
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
        x, axis, lanes = node.operands["input"], node.arguments["axis"], schedule["lanes"]
        subgroup, subgroups = (schedule.kernel == name for name in ("subgroup", "subgroups"))
        vectors = rows.vectors(problem, lanes, subgroups)
        texels = texel_bytes(profile, schedule.load)
        operands = (
            bound("x", x, profile, width=vectors.width, texels=texels),
            bound("out", node.output, profile, "w", width=vectors.width),
        )
        size, groups = (
            rows.launch(lanes * problem.rows, 1, profile) if subgroup
            else rows.launch(problem.rows, lanes, profile)
        )
        params = {"rows": problem.rows, "len": problem.length}
        constants = {"LX": size} | vectors.constants
        options: dict[str, Any] = {}
        if subgroups:
            constants |= rows.kept_constants(problem, lanes, vectors.kept, True, profile)
        else:
            params["inner"] = prod(x.shape[axis + 1 :])
            options = {"group": lanes > 1 and not subgroup, "vectors": vectors.way}
        step = dispatch(
            node, "softmax_kept" if subgroups else "softmax", operands, build(node, texels), groups,
            params, constants, profile, options.items(), kernel="softmax",
            variant=vectors.named(schedule), flops=5 * x.size,
        )
        if not subgroups:
            return [shuffling(step, lanes if subgroup else 0)]
        features = step.spec.features | SUBGROUP_SUMS
        return [replace(step, spec=replace(step.spec, features=features))]
