"""The recurrent part of LSTMs and GRUs: as many steps in a dispatch as the device's loops allow.

A workgroup computes a few rows of the batch in one direction, which need no others. Very long
sequences are cut: each dispatch goes on from the states that the one before stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import VECTOR_BYTES, ceil_divide

from .dispatch import Dispatch, Unsupported
from .epilogue import NONE
from .family import Family
from .heuristics import device_class
from .loads import lanes_that_shuffle, shuffling, texel_bytes
from .multi_binding import Bound, bound, dispatch, unread
from .node import KernelNode
from .rows import loop_budget
from .schedule import Schedule

_ACTIVATIONS = ("relu", "sigmoid", "tanh")
#: The gates in the kernel's order.
_GATES = {"lstm": "iofg", "gru": "zrn", "gru_before": "zrn"}
#: Rows of a workgroup; invocations that share the sums of the same units.
_ROWS, _PARTS = (1, 2, 4), (1, 4, 8, 16)
#: Multiply-adds of a workgroup in one dispatch, at most: below a second on slow devices.
_MULTIPLY_ADDS = 1 << 28


@dataclass(frozen=True)
class RecurrenceProblem:
    """``steps`` of ``batch`` rows in ``directions`` directions; states of ``size`` units. ``cell``:
    "lstm", "gru", or "gru_before" (the reset comes before the product)."""

    cell: str
    steps: int
    batch: int
    directions: int
    size: int

    @property
    def gates(self) -> int:
        return len(_GATES[self.cell])

    @property
    def vectors(self) -> int:
        """Of a state."""
        return self.size // 4

    @property
    def multiply_adds(self) -> int:
        """Of one row's step."""
        return self.gates * self.size * self.size


class Recurrence(Family):
    """See the module's docstring."""

    name = "recurrence"

    def problem(self, node: KernelNode) -> RecurrenceProblem:
        cell = node.lowering.cell
        if not node.arguments.get("reset_after", True):
            cell = "gru_before"
        steps, batch, directions, _ = node.operands["projected"].shape
        size = node.operands["recurrent_weight"].shape[1]
        return RecurrenceProblem(cell, steps, batch, directions, size)

    def candidates(
        self, problem: RecurrenceProblem, profile: DeviceProfile
    ) -> Sequence[Schedule]:
        if problem.size % 4:
            raise Unsupported(f"{problem.size} units are no whole number of vectors")
        schedules = [*_schedules(problem, profile)]
        if not schedules:
            raise Unsupported(f"states of {problem.size} units exceed a workgroup's limits")
        return schedules

    def lower(
        self, node: KernelNode, problem: RecurrenceProblem, schedule: Schedule,
        profile: DeviceProfile,
    ) -> list[Dispatch]:
        p = problem
        operands = _bound(node, p.cell, schedule, profile)
        options = ("cell", p.cell), ("unrolled", device_class(profile).unrolls_activations)
        arguments, gates = node.arguments, _GATES[p.cell]
        optional = ("initial_hidden_state", "initial_cell_state", _extra(p.cell))
        given = sum(1 << bit for bit, name in enumerate(optional) if name in node.operands)
        params: dict[str, Any] = {
            "steps": p.steps, "batch": p.batch, "directions": p.directions,
            "units": arguments["units"], "backward": int(arguments["direction"] == "backward"),
            "given": given | 8 * int(arguments["return_sequence"]),
            "gate": tuple(arguments["layout"].index(gate) for gate in gates.ljust(4, gates[0])),
        }
        functions = [_ACTIVATIONS.index(name) for name in arguments["activations"]]
        constants = {
            **schedule.constants("LX", "LY", "ROWS"), "VECTORS": p.vectors,
            **{f"ACT{i}": kind for i, kind in enumerate((*functions, 0)[:3])},
        }
        groups = p.directions * ceil_divide(p.batch, schedule["ROWS"])
        most = steps_at_once(p, schedule, profile)
        lanes = lanes_that_shuffle(schedule, profile)
        return [
            shuffling(dispatch(
                node, "recurrence", operands, NONE, groups,
                params | {"first": first, "count": count}, constants, profile, options,
                variant=f"{p.cell} {schedule}".replace("recurrence ", ""),
                flops=2 * count * p.directions * p.batch * p.multiply_adds,
            ), lanes)
            for first in range(0, p.steps, most)
            for count in (min(most, p.steps - first),)
        ]


def steps_at_once(p: RecurrenceProblem, schedule: Schedule, profile: DeviceProfile) -> int:
    """Steps of one dispatch: as many as its workgroups take a moment for and as the device's loops
    allow; 0 where those don't allow one."""
    most = max(1, min(p.steps, _MULTIPLY_ADDS // (schedule["ROWS"] * p.multiply_adds)))
    budget = loop_budget(profile)
    return most if budget is None else min(most, budget // _iterations(p, schedule))


def shared_bytes(p: RecurrenceProblem, schedule: Schedule) -> int:
    """Shared memory of a workgroup: the states of its rows and what its lanes have summed up."""
    rows, lanes = schedule["ROWS"], schedule["LX"]
    sums = (schedule["LY"] - 1) * lanes * rows * p.gates
    return (p.vectors * rows + max(sums, 1)) * VECTOR_BYTES


def _iterations(p: RecurrenceProblem, schedule: Schedule) -> int:
    """Of an invocation's loops in one step."""
    products = ceil_divide(p.vectors, schedule["LY"]) + schedule["LY"]
    return 1 + 2 * (products + 4 * schedule["ROWS"])


def _schedules(p: RecurrenceProblem, profile: DeviceProfile) -> Iterator[Schedule]:
    """Those within the device's limits, the plainest first."""
    loads = ["storage"]
    if 4 * p.directions * p.multiply_adds <= texel_bytes(profile):
        loads.append("texel")
    lanes = 8 * ceil_divide(p.vectors, 8)
    width, height, _ = profile.max_workgroup_size
    for load in loads:
        for parts in _PARTS:
            for rows in _ROWS:
                numbers = (("LX", lanes), ("LY", parts), ("ROWS", rows))
                schedule = Schedule("recurrence", numbers, load)
                if (
                    lanes <= width and parts <= height
                    and lanes * parts <= profile.max_workgroup_invocations
                    and shared_bytes(p, schedule) <= profile.max_shared_memory
                    and rows < 2 * p.batch
                    and steps_at_once(p, schedule, profile) > 0
                ):
                    yield schedule


def _extra(cell: str) -> str:
    return "peephole_weight" if cell == "lstm" else "recurrent_bias"


def _bound(
    node: KernelNode, cell: str, schedule: Schedule, profile: DeviceProfile
) -> list[Bound]:
    """The kernel's buffers. What is absent is bound and not read."""
    texels = texel_bytes(profile, schedule.load)
    projected = node.operands["projected"]

    def read(name: str, operand: str) -> Bound:
        access = node.operands.get(operand)
        if access is None:
            return unread(name, "float32", projected, 4, texels)
        return bound(name, access, profile, width=4, texels=texels)

    operands = [
        read("projected", "projected"), read("weight", "recurrent_weight"),
        read("extra", _extra(cell)), read("hidden0", "initial_hidden_state"),
        *([read("cell0", "initial_cell_state")] if cell == "lstm" else []),
    ]
    names = ["hidden", *["cell"] * (cell == "lstm")]
    for name, access in zip(names, node.outputs, strict=False):
        operands.append(bound(name, access, profile, "rw", width=4))
    if node.arguments["return_sequence"]:
        operands.append(bound("sequence", node.outputs[-1], profile, "w", width=4))
    else:
        # Something has to be bound that no other buffer writes or reads.
        unused = unread("sequence", "float32", node.outputs[0], 4)
        operands.append(replace(unused, buffer=replace(unused.buffer, access="w")))
    return operands
