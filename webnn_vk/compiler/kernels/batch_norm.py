"""Batch normalisation in two dispatches: the first computes each channel's factor and shift from
the statistics, the second applies them to the elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from webnn_vk.driver.device_profile import DeviceProfile

from ..types.access import Access
from . import indexing, rows
from .dispatch import Dispatch, Scratch
from .epilogue import NONE
from .family import Family
from .indexing import Positions, of_positions
from .multi_binding import Bound, bound, dispatch, unread
from .node import KernelNode
from .schedule import Schedule


class BatchNorm(Family):
    """See the module's docstring."""

    name = "batch_norm"
    templates = ("batch_factors", "batch_norm")
    fuses = True

    def problem(self, node: KernelNode) -> Positions:
        x, axis = node.operands["input"], node.arguments["axis"]
        outer, inner = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
        return Positions(outer, x.shape[axis], inner, x.data_type == "float32")

    def candidates(self, problem: Positions, profile: DeviceProfile) -> Sequence[Schedule]:
        return indexing.schedules(problem, profile)

    def lower(
        self, node: KernelNode, problem: Positions, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        x = node.operands["input"]
        factors = Scratch(3 * 4 * problem.middle)
        operands = [
            bound("x", x, profile),
            bound("factors", factors, profile),
            bound("out", node.output, profile, "w"),
        ]
        apply = of_positions(
            node, "batch_norm", operands, problem, schedule, profile, {}, kernel="norm",
            variant="batch", flops=3 * x.size,
        )
        return [_factors(node, factors, problem.middle, profile), apply]


def _factors(
    node: KernelNode, factors: Scratch, channels: int, profile: DeviceProfile
) -> Dispatch:
    mean = node.operands["mean"]

    def optional(name: str) -> Bound:
        access: Access | None = node.operand(name)
        if access is None:
            return unread(name, mean.data_type, mean)
        return bound(name, access, profile)

    operands = [
        bound("mean", mean, profile),
        bound("variance", node.operands["variance"], profile),
        optional("scale"),
        optional("bias"),
        bound("out", factors, profile, "w"),
    ]
    size, groups = rows.launch(channels, 1, profile)
    params = {
        "channels": channels,
        "epsilon": node.arguments["epsilon"],
        "scaled": int("scale" in node.operands),
        "shifted": int("bias" in node.operands),
    }
    return dispatch(
        node, "batch_factors", operands, NONE, groups, params, {"LX": size}, profile,
        kernel="norm", variant="factors", flops=4 * channels, types={"epsilon": "float"},
    )
