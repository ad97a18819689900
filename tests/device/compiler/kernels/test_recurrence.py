"""The recurrence kernel: its schedules, sequences in one dispatch or several, against the
reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.comparing import WAYS, profile_for
from tests.support.discriminating import assert_allclose
from tests.support.running import node_of, run, schedules_of
from webnn_vk.compiler.kernels import KernelNode
from webnn_vk.compiler.kernels.family import solver_of
from webnn_vk.compiler.kernels.recurrence import steps_at_once

GATES = {"lstm": 4, "gru": 3}


def case(
    cell: str, steps: int, batch: int, size: int, **arguments: Any
) -> tuple[Any, dict[Any, np.ndarray], list[np.ndarray]]:
    """A recurrence with all its operands, and its results by the reference."""
    rng = np.random.default_rng(steps + batch + size)
    directions = 2 if arguments.get("direction") == "both" else 1
    width, states = GATES[cell] * size, (directions, batch, size)

    def numbers(*shape: int) -> np.ndarray:
        return rng.uniform(-0.5, 0.5, shape).astype(np.float32)

    given = [numbers(steps, batch, directions, width), numbers(directions, size, width)]
    named: dict[str, Any] = {"initial_hidden_state": numbers(*states)}
    if cell == "lstm":
        named["initial_cell_state"] = numbers(*states)
        named["peephole_weight"] = numbers(directions, 3 * size)
    elif arguments.get("reset_after", True):
        named["recurrent_bias"] = numbers(directions, width)
    node, arrays = node_of(
        f"{cell}_recurrence", *given, return_sequence=True, **named, **arguments
    )
    return node, arrays, node.evaluate(arrays.__getitem__)


CASES = [
    ("lstm", 3, 5, 36, {"direction": "both", "layout": "ifgo"}),
    ("lstm", 5, 1, 8, {"activations": ["tanh", "relu", "sigmoid"], "direction": "backward"}),
    ("gru", 4, 3, 36, {"direction": "both", "layout": "rzn"}),
    ("gru", 3, 2, 40, {"reset_after": False, "direction": "both", "units": 37}),
]


@pytest.mark.parametrize(("kind", "cell", "steps", "batch", "size", "arguments"), [
    (WAYS[turn in (1, 2)], *each) for turn, each in enumerate(CASES)
])
def test_schedules(
    kind: str, cell: str, steps: int, batch: int, size: int, arguments: dict, vulkan: None
) -> None:
    """Rows of the batch that share weights, lanes that share sums, both ways to load."""
    profile = profile_for(kind)
    node, arrays, expected = case(cell, steps, batch, size, **arguments)
    schedules = schedules_of(node, profile)
    assert {s["LY"] for s in schedules} > {1} and {s.load for s in schedules} == {
        "storage", "texel"
    }
    # With a step that meets every number of rows and lanes, and both loads; a device has every
    # other one of these.
    for schedule in schedules[5 * (kind == "discrete") :: 10]:
        got = run(node, arrays, profile, schedule)
        for own, wanted in zip(got, expected, strict=True):
            assert_allclose(own, wanted, atol=2e-6, err_msg=str(schedule))


@pytest.mark.parametrize("cell", GATES)
def test_long_sequences_take_several_dispatches(cell: str, vulkan: None) -> None:
    node, arrays, expected = case(cell, 11, 3, 12, direction="both")
    profile = profile_for("software").replace(max_loop_iterations=15_000 + 150)
    schedule = schedules_of(node, profile)[0]
    family, problem = solver_of(KernelNode.of(node))
    at_once = steps_at_once(problem, schedule, profile)
    assert 1 < at_once < 11
    dispatches = family.lowered(KernelNode.of(node), problem, schedule, profile)
    assert len(dispatches) == -(-11 // at_once)
    for own, wanted in zip(run(node, arrays, profile, schedule), expected, strict=True):
        assert_allclose(own, wanted, atol=2e-6)
