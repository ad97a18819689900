"""Running sums along one dimension.

An invocation or a workgroup goes along a row. Few very long rows are cut into chunks, in three
dispatches: the total of each chunk, the running sums of the totals, and the scan of each chunk,
which begins with the sum of those before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import ceil_divide

from ..types.access import Access
from ..types.data_types import DATA_TYPES
from . import rows
from .dispatch import Dispatch, Scratch
from .epilogue import NONE
from .family import Family
from .multi_binding import bound, dispatch, unread
from .node import KernelNode
from .rows import Rows
from .schedule import Schedule


class Scan(Family):
    """See the module's docstring."""

    name = "scan"

    def problem(self, node: KernelNode) -> Rows:
        x, axis = node.operands["input"], node.arguments["axis"]
        length = x.shape[axis]
        return Rows(x.size // length, length, prod(x.shape[axis + 1 :]) == 1)

    def candidates(self, problem: Rows, profile: DeviceProfile) -> Sequence[Schedule]:
        return rows.chunked_schedules(problem, profile)

    def lower(
        self, node: KernelNode, problem: Rows, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        x, axis = node.operands["input"], node.arguments["axis"]
        chunks, lanes = schedule["chunks"], schedule["lanes"]
        row = {
            "rows": problem.rows, "len": problem.length, "inner": prod(x.shape[axis + 1 :]),
            "chunks": chunks, "reversed": int(node.arguments["reversed"]),
            "exclusive": int(node.arguments["exclusive"]),
        }
        if chunks == 1:
            return [_dispatch(node, x, None, node.output, row, lanes, profile)]
        sum_type = _sum_type(x.data_type)
        size = problem.rows * chunks * DATA_TYPES[sum_type].size
        totals, carries = Scratch(size, sum_type), Scratch(size, sum_type)
        of_totals = {
            "rows": problem.rows, "len": chunks, "inner": 1, "chunks": 1, "reversed": 0,
            "exclusive": 1,
        }
        few = rows.combining(Rows(problem.rows, chunks, True), profile)
        return [
            _dispatch(node, x, None, totals, row, max(32, lanes), profile, stage="totals"),
            _dispatch(node, totals, None, carries, of_totals, few, profile),
            _dispatch(node, x, carries, node.output, row, lanes, profile),
        ]


def _sum_type(data_type: str) -> str:
    """Floats are summed in float32."""
    return "float32" if data_type == "float16" else data_type


def _dispatch(
    node: KernelNode,
    x: Access | Scratch,
    carry: Scratch | None,
    out: Access | Scratch,
    row: dict[str, int],
    lanes: int,
    profile: DeviceProfile,
    stage: str = "",
) -> Dispatch:
    data_type = node.results[0].data_type
    stage = stage or ("group" if lanes > 1 else "invocation")
    operands = [
        bound("x", x, profile),
        bound("carry", carry, profile) if carry else unread("carry", _sum_type(data_type), x),
        bound("out", out, profile, "w"),
    ]
    size, groups = rows.launch(row["rows"] * row["chunks"], lanes, profile)
    chunk = ceil_divide(row["len"], row["chunks"])
    params = row | {"chunk": chunk, "carried": int(carry is not None)}
    return dispatch(
        node, "scan", operands, NONE, groups, params, {"LX": size}, profile, (("stage", stage),),
        variant=stage, flops=row["rows"] * row["len"],
    )
