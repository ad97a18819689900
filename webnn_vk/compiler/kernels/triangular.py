"""triangular: matrices of which one side of a diagonal is kept and the other becomes zero, by
another mode of the template that copies."""

from __future__ import annotations

from collections.abc import Sequence

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass

from . import raw_copy
from .dispatch import Dispatch
from .family import Family
from .node import KernelNode
from .parts import bind_range, ranges
from .schedule import Schedule


@dataclass(frozen=True)
class Mask:
    """The part of ``size`` elements in matrices that stays; an element has ``itemsize`` bytes."""

    size: int
    rows: int
    columns: int
    upper: bool
    diagonal: int
    itemsize: int


class Triangular(Family):
    """See the module's docstring."""

    name = "triangular"
    templates = ("copy",)

    def problem(self, node: KernelNode) -> Mask:
        rows, columns = node.output.shape[-2:]
        return Mask(
            node.output.size, rows, columns, node.arguments["upper"], node.arguments["diagonal"],
            raw_copy.item_size(node.output.value),
        )

    def candidates(self, problem: Mask, profile: DeviceProfile) -> Sequence[Schedule]:
        return [Schedule("copy")]

    def lower(
        self, node: KernelNode, problem: Mask, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """One dispatch per range of elements that a binding can hold."""
        p, width = problem, problem.itemsize
        dispatches = []
        for part in ranges(p.size, width, profile):
            source, target = (
                bind_range(access.value, profile, part, width)
                for access in (node.operands["input"], node.output)
            )
            params = {
                "first": part.start, "count": part.count, "rows": p.rows, "columns": p.columns,
                "upper": int(p.upper), "diagonal": p.diagonal,
            }
            dispatches.append(raw_copy.copy_dispatch(
                "triangular", 0, (source, target), params, width, profile, {"diagonal": "int"}
            ))
        return dispatches
