"""Resampling along two dimensions. An invocation computes the outputs at one position of the two,
of several images or channels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass

from . import indexing
from .dispatch import Dispatch
from .family import Family
from .indexing import Positions, of_positions
from .multi_binding import bound
from .node import KernelNode
from .schedule import Schedule

_MODES = {"nearest-neighbor": "nearest", "linear": "linear"}


@dataclass(frozen=True)
class Resampling:
    """Two dimensions of ``size`` become ``new_size``; ``between`` elements lie between them."""

    mode: str
    positions: Positions
    between: int
    size: tuple[int, int]
    new_size: tuple[int, int]


class ResampleFamily(Family):
    """See the module's docstring."""

    name = "resample"
    fuses = True

    def problem(self, node: KernelNode) -> Resampling:
        x, new_shape = node.operands["input"].shape, node.results[0].shape
        texels = node.operands["input"].data_type == "float32"
        # Which of the two axes comes first does not matter to the result.
        first, second = sorted(node.arguments["axes"])
        between = prod(x[first + 1 : second])
        new_size = new_shape[first], new_shape[second]
        return Resampling(
            _MODES[node.arguments["mode"]],
            Positions(prod(x[:first]), prod(new_size) * between, prod(x[second + 1 :]), texels),
            between, (x[first], x[second]), new_size,
        )

    def candidates(self, problem: Resampling, profile: DeviceProfile) -> Sequence[Schedule]:
        return indexing.schedules(problem.positions, profile)

    def lower(
        self, node: KernelNode, problem: Resampling, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        p = problem
        operands = (
            bound("x", node.operands["input"], profile), bound("out", node.output, profile, "w")
        )
        params = {"between": p.between, "size": p.size, "new_size": p.new_size}
        return [
            of_positions(
                node, "resample", operands, p.positions, schedule, profile, params,
                options=[("mode", p.mode)], variant=p.mode,
                flops=(8 if p.mode == "linear" else 0) * node.results[0].size,
            )
        ]
