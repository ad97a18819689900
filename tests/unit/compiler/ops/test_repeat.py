"""repeat: what its body may be, as a loop on a device, unrolled, on the CPU and in ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from tests.support.graphs import evaluate, graph_input, graph_of
from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.kernels import loops
from webnn_vk.compiler.passes import decompose_nodes
from webnn_vk.compiler.program import CopyStep, DispatchStep, RepeatStep, Target, compile_program
from webnn_vk.compiler.program.hazards import location
from webnn_vk.compiler.program.program import BarrierStep, Program
from webnn_vk.webnn_file.writing import document

STEPS, ROWS, SIZE = 9, 3, 8


def network(
    backward: tuple[bool, ...] = (), nested: bool = False, size: int = SIZE, steps: int = STEPS
) -> Graph:
    """h, g = tanh(g · w + x), h; the h of all steps are stacked."""
    emit = Emitter()
    rng = np.random.default_rng(0)
    x = graph_input("x", (steps, ROWS, size))
    first = graph_input("first", (ROWS, size))
    w = emit.constant(rng.uniform(-0.5, 0.5, (size, size)).astype(np.float32))
    zero = emit.constant(np.zeros((ROWS, size), np.float32))

    def body(inner: Any, states: list[Value], slices: list[Value]) -> Any:
        hidden, other = states
        if nested:
            rows = inner.reshape(slices[0], [ROWS, size])
            (total,) = inner.loop(
                lambda e, s, p: ([e.add(s[0], p[0])], []), [inner.slice(zero, [0, 0], [1, size])],
                [inner.reshape(rows, [ROWS, 1, size])],
            )
            other = inner.add(other, total)
        new = inner.tanh(inner.add(inner.matmul(other, w), slices[0]))
        return [new, hidden], [new]

    h, g, whole = emit.loop(body, [first, zero], [x], backward)
    return graph_of(emit, {"h": h, "g": g, "whole": whole}, x, first)


def expected(x: np.ndarray, first: np.ndarray, w: np.ndarray, backward: bool) -> list[np.ndarray]:
    h, g, whole = first, np.zeros_like(first), []
    for now in x[::-1] if backward else x:
        h, g = np.tanh(g @ w + now), h
        whole.append(h)
    return [h, g, np.stack(whole)]


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        "x": rng.uniform(-1, 1, (STEPS, ROWS, SIZE)).astype(np.float32),
        "first": rng.uniform(-1, 1, (ROWS, SIZE)).astype(np.float32),
    }


@pytest.mark.parametrize("backward", [False, True])
def test_reference_and_unrolled(backward: bool) -> None:
    graph = network(backward=(backward, False))
    graph.verify()
    w = next(c.data for c in graph.constants() if c.shape == (SIZE, SIZE))
    wanted = expected(**arrays(), w=w, backward=backward)
    unrolled = decompose_nodes(graph, lambda node: node.operator.name == "repeat")
    assert len(unrolled.nodes) > 3 * STEPS
    for made in (graph, unrolled):
        found = evaluate(made, **arrays())
        for name, array in zip(("h", "g", "whole"), wanted, strict=True):
            assert_allclose(found[name], array, atol=1e-6)


def compiled(graph: Graph, profile: str = "nvidia_ampere", **options: Any) -> Program:
    return compile_program(graph, Target(stored_profile(profile), **options))[0]


def repeats(program: Program) -> list[RepeatStep]:
    return [step for step in program.device_steps if isinstance(step, RepeatStep)]


def test_the_number_of_steps_costs_no_steps() -> None:
    """Everything but counts is equal, for one step of a recurrence or a thousand."""
    def parts(steps: int) -> tuple[int, int, int]:
        program = compiled(network(steps=steps))
        (repeat,) = repeats(program)
        assert repeat.count == steps
        return len(program.slots), len([*program.dispatches]), len(repeat.steps)

    assert parts(2) == parts(1000)


def test_steps_of_a_repetition_keep_their_order() -> None:
    """Barriers between steps that depend on each other, and before the next repetition; copies
    advance by slices; the states' new values are set aside before one is overwritten."""
    program = compiled(network(backward=(True, False)))
    (repeat,) = repeats(program)
    assert isinstance(repeat.steps[-1], BarrierStep)
    size = 4 * ROWS * SIZE
    strides = [s.strides for s in repeat.steps if isinstance(s, CopyStep) and any(s.strides)]
    assert strides == [(-size, 0), (0, size)]
    reads = [s for s in repeat.steps if isinstance(s, CopyStep) and s.strides[0]]
    assert reads[0].source.offset == (STEPS - 1) * size
    written: list[Any] = []
    for step in repeat.steps:
        if isinstance(step, BarrierStep):
            written.clear()
            continue
        for place, _, write in step.accesses():
            here = location(program.slots, place)
            assert not any(
                here.key == w.key and here.space == w.space
                and here.offset < w.offset + w.size and w.offset < here.offset + here.size
                for w in written
            ), step
            if write:
                written.append(here)
    # h becomes g: g's old value is read by the product, h's by the copy, before h is written.
    assert sum(isinstance(step, CopyStep) for step in repeat.steps) >= 4
    line = next(line for line in program.report.lines if line.kernel == "repeat")
    assert line.variant.startswith(f"{STEPS} × (") and line.repeated == STEPS * len(
        [s for s in repeat.steps if isinstance(s, DispatchStep)]
    )
    assert program.flops >= 2 * STEPS * ROWS * SIZE * SIZE


def test_constants_of_a_body_are_packed_like_others() -> None:
    program = compiled(network(size=128), "llvmpipe")
    (repeat,) = repeats(program)
    dispatches = [step for step in repeat.steps if isinstance(step, DispatchStep)]
    kinds = {program.slots[b.slot].kind for d in dispatches for b in d.bindings}
    assert "packed" in kinds


def test_where_a_part_runs_on_the_cpu_it_is_unrolled() -> None:
    program = compiled(network(), force_cpu=["tanh"])
    assert not repeats(program)
    assert sum(step.operator == "tanh" for step in program.cpu_steps) == STEPS


def test_a_loop_in_a_loop_is_one_of_its_steps() -> None:
    """The report and the sums count each repetition of the loop inside."""
    program, simple = compiled(network(nested=True)), compiled(network())
    (outer,) = repeats(program)
    (inner,) = (step for step in outer.steps if isinstance(step, RepeatStep))
    assert (outer.count, inner.count) == (STEPS, ROWS)
    (added,) = (step for step in inner.steps if isinstance(step, DispatchStep))
    line = next(line for line in program.report.lines if line.kernel == "repeat")
    assert f"{ROWS} × ({added.kernel})" in line.variant
    direct = sum(isinstance(step, DispatchStep) for step in outer.steps)
    assert line.repeated == STEPS * (direct + ROWS)
    assert program.flops - simple.flops >= STEPS * ROWS * SIZE
    assert added in program.dispatches
    # The loop inside begins with the same slice and state in each repetition of the outer one.
    copies = [s.strides for s in inner.steps if isinstance(s, CopyStep) and any(s.strides)]
    assert copies == [(4 * SIZE, 0)]
    assert isinstance(inner.steps[-1], BarrierStep)


def test_loops_in_loops_with_too_many_repetitions_run_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason: each repetition would be recorded."""
    most = STEPS * (1 + ROWS)
    monkeypatch.setattr(loops, "MAX_RECORDED", most)
    assert len(repeats(compiled(network(nested=True)))) == 1
    monkeypatch.setattr(loops, "MAX_RECORDED", most - 1)
    program = compiled(network(nested=True))
    assert not repeats(program)
    (step,) = (step for step in program.cpu_steps if step.operator == "repeat")
    assert f"{most} repetitions" in program.origins[step.origin].reason
    assert len(repeats(compiled(network()))) == 1


def test_a_loop_in_a_loop_that_needs_the_cpu_is_unrolled_with_it() -> None:
    program = compiled(network(nested=True), force_cpu=["tanh"])
    assert not any(step.count == STEPS for step in repeats(program))
    assert sum(step.operator == "tanh" for step in program.cpu_steps) == STEPS


def test_files_of_graphs_have_it_unrolled() -> None:
    text, _ = document(network(), "loop")
    assert text.count("tanh(") == STEPS


@pytest.mark.parametrize(("change", "message"), [
    ({"count": 0}, "count is 0"),
    ({"count": 4}, "4 slices along the first dimension"),
    ({"body": ((), (0,))}, "fewer results than there are states"),
    ({"body": ((), (0, 2))}, "state 1 is .* and the body makes it"),
    ({"body": ((), (0, 9))}, "there is no value 9"),
    ({"body": ((("nothing", "", (), ()),), (0, 1))}, "no call of an operator"),
    ({"body": 5}, r"\(calls, results\) is expected"),
    ({"backward": (True,)}, "backward .* has 1 items; 3 are expected"),
])
def test_rejects(change: dict[str, Any], message: str) -> None:
    emit = Emitter()
    arguments: dict[str, Any] = {"count": STEPS, "body": ((), (0, 1, 2, 2))} | change
    states = [Value(graph_input("s", shape).descriptor) for shape in ((2,), (3,))]
    scanned = [graph_input("x", (STEPS, 4))]
    with pytest.raises(TypeError, match=message):
        emit.repeat(states, scanned, [], **arguments)
