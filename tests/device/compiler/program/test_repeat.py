"""Loops on the device: as the reference, from a saved graph, timed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.contexts import open_over
from tests.support.driver_proxy import DriverProxy
from webnn_vk import MLContext, MLGraphBuilder
from webnn_vk.api.loops import loop_over
from webnn_vk.runtime import throttle

STEPS = 13


def build(context: MLContext, data_type: str = "float32", size: int = 7) -> Any:
    """Running maxima of x, backward, beside running minima, forward; slices of odd sizes."""
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": data_type, "shape": [STEPS, 3, size]})
    first = builder.input("first", {"data_type": data_type, "shape": [3, size]})

    def body(states: Any, slices: Any) -> Any:
        low, high = builder.min(states[0], slices[0]), builder.max(states[1], slices[1])
        return [low, high], [high, builder.max(low, slices[1])]

    low, high, highs, others = loop_over(
        builder, body, [first, first], [x, x], [False, True, True, False]
    )
    # Read by further kernels, and as an output.
    return builder.build({
        "low": low, "high": builder.neg(high) if data_type == "float32" else high,
        "highs": highs, "others": builder.transpose(others, permutation=[2, 0, 1]),
    }).result()


def expected(x: np.ndarray, first: np.ndarray) -> dict[str, np.ndarray]:
    forward = [first, *(np.min([first, *x[: t + 1]], axis=0) for t in range(STEPS))]
    backward = [np.max([first, *x[t:]], axis=0) for t in range(STEPS)]
    others = [np.maximum(forward[t + 1], x[STEPS - 1 - t]) for t in range(STEPS)]
    high = backward[0]
    return {
        "low": forward[-1], "high": -high if x.dtype == np.float32 else high,
        "highs": np.stack(backward), "others": np.stack(others).transpose(2, 0, 1),
    }


def feeds(data_type: str, size: int = 7) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(size)
    draw = rng.uniform(-100, 100, (STEPS + 1, 3, size))
    array = (draw if data_type.startswith("float") else np.abs(draw)).astype(data_type)
    return {"x": array[1:].copy(), "first": array[0].copy()}


def check(context: MLContext, graph: Any, given: dict[str, np.ndarray]) -> None:
    found = context.compute(graph, given)
    for name, wanted in expected(**given).items():
        np.testing.assert_array_equal(found[name], wanted, err_msg=name)


@pytest.mark.parametrize("data_type", ["float32", "float16", "uint8", "int64"])
@pytest.mark.parametrize("where", ["vulkan_context", "cpu_context"])
def test_slices_of_all_sizes(data_type: str, where: str, request: Any) -> None:
    context = request.getfixturevalue(where)
    for size in (1, 7, 16):
        with build(context, data_type, size) as graph:
            check(context, graph, feeds(data_type, size))


def test_a_long_loop_is_several_submits(
    vulkan_context: MLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut by its estimated time, between the turns of the loop; each run has all its submits."""
    driver = vulkan_context._state.device.driver
    counts = []
    for seconds in (throttle.BATCH_SECONDS, 4.5e-5):
        monkeypatch.setattr(throttle, "BATCH_SECONDS", seconds)
        with build(vulkan_context) as graph:
            given = feeds("float32")
            check(vulkan_context, graph, given)
            before = driver.submitted()
            check(vulkan_context, graph, given)
            counts.append(driver.submitted() - before)
    assert counts[0] <= 2
    # Once a run was measured, each turn may be a submit, and what comes before them.
    assert counts[0] + STEPS // 2 <= counts[1] <= counts[0] + STEPS + 1


class Hidden(DriverProxy):
    """The host sees transfer memory only."""

    def allocate(self, size: int, **options: Any) -> Any:
        allocation = self.driver.allocate(size, **options)
        if not options.get("host"):
            allocation.mapped = None
        return allocation


def test_the_submits_of_a_loop_copy_inputs_first_and_outputs_last(
    vulkan: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "BATCH_SECONDS", 4.5e-5)
    context, driver = open_over(Hidden)
    with context, build(context) as graph:
        rng = np.random.default_rng(4)
        for _ in range(3):
            given = {name: rng.permuted(array, axis=0) for name, array in feeds("float32").items()}
            before = driver.submitted()
            check(context, graph, given)
        assert driver.submitted() - before >= STEPS // 2


def build_nested(context: MLContext) -> Any:
    """For each row of x from the last one on: the sums of its elements' prefixes and the state."""
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [STEPS, 9, 5]})
    first = builder.input("first", {"data_type": "float32", "shape": [5]})

    def inner(states: Any, slices: Any) -> Any:
        total = builder.add(states[0], slices[0])
        return [total], [builder.max(total, slices[0])]

    def outer(states: Any, slices: Any) -> Any:
        total, prefixes = loop_over(builder, inner, [states[0]], [slices[0]], [False, True])
        return [builder.mul(total, builder.constant("float32", 0.125))], [prefixes]

    last, whole = loop_over(builder, outer, [first], [x], [True, False])
    return builder.build({"last": last, "whole": whole}).result()


def expected_nested(x: np.ndarray, first: np.ndarray) -> dict[str, np.ndarray]:
    state, whole = first, []
    for row in x[::-1]:
        found = []
        for now in row:
            state = state + now
            found.append(np.maximum(state, now))
        whole.append(np.stack(found[::-1]))
        state = state * np.float32(0.125)
    return {"last": state, "whole": np.stack(whole)}


@pytest.mark.parametrize("where", ["vulkan_context", "cpu_context"])
def test_loops_in_loops(where: str, request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one submit, and cut between the turns of the loops inside; saved, too."""
    context = request.getfixturevalue(where)
    rng = np.random.default_rng(2)
    given = {
        "x": rng.integers(-9, 9, (STEPS, 9, 5)).astype(np.float32),
        "first": rng.integers(-9, 9, 5).astype(np.float32),
    }
    wanted = expected_nested(**given)
    submitted = context._state.device.driver.submitted if where == "vulkan_context" else lambda: 0
    submits = []
    for seconds in (throttle.BATCH_SECONDS, 4.5e-5):
        monkeypatch.setattr(throttle, "BATCH_SECONDS", seconds)
        with build_nested(context) as graph:
            context.save_graph("nested", graph).result()
            for made in (graph, context.load_graph("nested").result()):
                before = submitted()
                found = context.compute(made, given)
                submits.append(submitted() - before)
                for name, array in wanted.items():
                    np.testing.assert_array_equal(found[name], array, err_msg=name)
    context.delete_graph("nested").result()
    if where == "vulkan_context":
        assert submits[0] <= 2 and submits[2] > STEPS * 9 // 2


def test_a_saved_graph_has_its_loops(vulkan_context: MLContext) -> None:
    with build(vulkan_context) as graph:
        vulkan_context.save_graph("loops", graph).result()
        lines = graph.report().lines
    try:
        with vulkan_context.load_graph("loops").result() as loaded:
            assert [line.variant for line in loaded.report().lines] == [
                before.variant for before in lines
            ]
            assert sum(line.kernel == "repeat" for line in loaded.report().lines) == 1
            check(vulkan_context, loaded, feeds("float32"))
    finally:
        vulkan_context.delete_graph("loops").result()


def test_a_loop_is_one_line_of_a_profile(vulkan_context: MLContext) -> None:
    given = feeds("float32")
    with build(vulkan_context) as graph:
        with vulkan_context.profile() as profile:
            check(vulkan_context, graph, given)
        (timed,) = (k for k in profile.report.kernels if k.kernel == "repeat")
        lines = graph.report().lines
    assert timed.seconds > 0 and timed.variant == lines[timed.line].variant
    assert len(profile.report.kernels) == len(lines)


@pytest.mark.parametrize("where", ["vulkan_context", "cpu_context"])
def test_a_loop_that_stacks_nothing(where: str, request: Any) -> None:
    context = request.getfixturevalue(where)
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [STEPS, 5]})
    first = builder.constant(np.zeros(5, np.float32))
    (last,) = loop_over(
        builder, lambda states, slices: ([builder.max(states[0], slices[0])], []), [first], [x]
    )
    given = np.random.default_rng(0).uniform(-1, 1, (STEPS, 5)).astype(np.float32)
    with builder.build({"last": last}).result() as graph:
        found = context.compute(graph, {"x": given})["last"]
    np.testing.assert_array_equal(found, np.maximum(given.max(axis=0), 0))
