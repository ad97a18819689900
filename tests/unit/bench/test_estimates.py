"""Drivers' estimates of cycles: how they are scaled to a dispatch, and what is compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.estimates import FAMILIES, Alternative, _scale, compared, summary, update
from bench.isa.execution import Loop, Undetermined
from webnn_vk.compiler.kernels.schedule import Schedule


def module(*inner: Loop, work: int = 2) -> Loop:
    return Loop(0, list(inner), turns=1, entered=1, work=(work, 0, 0))


@pytest.mark.parametrize(("loops", "left", "turns", "expected"), [
    # 40 turns of 5 beside the 2 before; drivers count 10 turns, or one.
    ([Loop(1, turns=40, entered=1, work=(200, 0, 0))], 1, 10, 202 / 52),
    ([Loop(1, turns=40, entered=1, work=(200, 0, 0))], 1, 1, 202 / 7),
    # Unrolled, all its turns are counted: by request, or since the compiler kept no loop.
    ([Loop(1, turns=4, entered=1, work=(20, 0, 0), unrolled=True)], 0, 10, 1),
    ([Loop(1, turns=4, entered=1, work=(20, 0, 0))], 0, 10, 1),
    # Of two loops one is left: the longer.
    ([Loop(1, turns=3, entered=1, work=(6, 0, 0)), Loop(2, turns=30, entered=1, work=(60, 0, 0))],
     1, 10, 68 / 28),
    # An unrolled loop in a kept one: 8 turns of each of its 20.
    ([Loop(1, [Loop(2, turns=160, entered=20, work=(0, 160, 0), unrolled=True)],
           turns=20, entered=1, work=(0, 0, 20))], 1, 10, 182 / 92),
])
def test_estimates_are_scaled_by_what_is_done(
    loops: list[Loop], left: int, turns: int, expected: float
) -> None:
    assert _scale(module(*loops), left, turns) == pytest.approx(expected)


def test_of_a_loop_that_does_not_turn_nothing_is_known() -> None:
    with pytest.raises(Undetermined, match="does not turn"):
        _scale(module(Loop(1)), 1, 10)


def alternative(cycles: float | None, invocations: int = 64, **more: object) -> Alternative:
    made = Alternative("matmul", "a product", 3, Schedule("matmul"), False, ())
    for name, value in {"cycles": cycles, "invocations": invocations, **more}.items():
        setattr(made, name, value)
    return made


def test_a_choice_is_compared_with_what_is_as_parallel_and_spills_nothing() -> None:
    chosen = alternative(100, chosen=True)
    best = alternative(80)
    others = [
        alternative(10, 32), alternative(20, spills=1), alternative(None, why="its loops"),
        alternative(30, problem="another"),
    ]
    assert list(compared([chosen, *others, best], 4096)) == [(chosen, best)]
    # 32 invocations are enough here.
    assert list(compared([chosen, *others, best], 32)) == [(chosen, others[0])]
    unknown = alternative(None, chosen=True, why="its loops")
    assert list(compared([unknown, best], 4096)) == []


def test_lines_and_what_was_chosen_before(tmp_path: Path) -> None:
    pairs = [(alternative(100, chosen=True), alternative(80)), (alternative(50), alternative(40))]
    (row,) = summary("dg2", pairs)
    assert row == {
        "chip": "dg2", "family": "matmul", "problems": 2, "chosen": 450, "best": 360, "ratio": 1.25
    }
    path = tmp_path / "estimates.json"
    update(path, [row])
    update(path, [row | {"chosen": 360, "ratio": 1.0}, row | {"chip": "m1"}])
    first, second = json.loads(path.read_text())
    assert (first["before"], first["chosen"], second["before"]) == (450, 360, 450)
    assert first["date"] and {row["family"]} <= {*FAMILIES}
