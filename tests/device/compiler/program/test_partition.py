"""Any set of operators can be forced to the CPU: the rest stays on the device, values cross the
border only if a reader is on the other side, and the results are equal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.conformance.differential.graphs import RandomGraph, Step, assert_equal, graphs
from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from webnn_vk import MLGraphBuilder, OperationError, Settings
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.ops.lowering import View
from webnn_vk.compiler.program import CopyStep, DeviceSegment, HostSegment, Program

EXAMPLES = 25


@pytest.fixture(scope="module")
def forced():
    """``forced(*operators)``: the same context with these operators forced to the CPU."""
    require_vulkan()
    with open_context(skip_passes=("fold", "fuse")) as context:
        plain = context._state.target

        def force(*operators: str):
            context._state.target = replace(plain, force_cpu=operators)
            return context

        yield force


def transfers(program: Program) -> tuple[int, int]:
    """Copies (to the CPU's memory, from it)."""
    copies = [
        step
        for segment in program.segments
        if isinstance(segment, DeviceSegment)
        for step in segment.steps
        if isinstance(step, CopyStep)
    ]
    return (
        sum(program.slots[c.target.slot].kind == "host" for c in copies),
        sum(program.slots[c.source.slot].kind == "host" for c in copies),
    )


def crossings(graph: RandomGraph, operators: frozenset[str]) -> tuple[int, int]:
    """(memories that the CPU reads and did not write, memories that the device or an output reads
    and the CPU wrote), counted on the graph as drawn."""
    first = len(graph.sources)
    needed = set(graph.outputs)
    for i in reversed(range(len(graph.steps))):
        if first + i in needed:
            needed.update(graph.steps[i].reads())
    steps = [(first + i, s) for i, s in enumerate(graph.steps) if first + i in needed]
    on_cpu = {i for i, s in steps if s.operator in operators}
    # A view on the device is its source's memory.
    root = {i: i for i in range(first + len(graph.steps))}
    for i, s in steps:
        if i not in on_cpu and isinstance(OPERATORS[s.operator].lowering, View):
            root[i] = root[s.operands[0]]
    read_by_cpu = {
        root[k] for i, s in steps if i in on_cpu for k in s.reads()
        if root[k] not in on_cpu and root[k] not in graph.constant
    }
    read_by_device = {
        root[k] for i, s in steps if i not in on_cpu and root[i] == i for k in s.reads()
    } | {root[k] for k in graph.outputs}
    return len(read_by_cpu), len(read_by_device & on_cpu)


def test_any_set_of_operators(forced, cpu_context):
    split = 0

    @settings(
        max_examples=max(EXAMPLES, settings.default.max_examples // 4), deadline=None,
        database=None, phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(st.data())
    def check(data):
        nonlocal split
        graph = data.draw(graphs())
        chosen = frozenset(
            data.draw(st.lists(st.sampled_from(graph.operators()), max_size=4), label="forced")
        )
        wanted, _ = graph.run(cpu_context)
        got, program = graph.run(forced(*chosen))
        assert_equal(got, wanted)
        for step in program.report.steps:
            (name,) = {operator.split(" ")[0] for operator in step.operators}
            assert step.device == ("cpu" if name in chosen else "vulkan"), step
            assert step.device == "vulkan" or step.reason == "forced to the CPU"
        assert transfers(program) == crossings(graph, chosen)
        kinds = {type(segment) for segment in program.segments}
        split += kinds == {DeviceSegment, HostSegment}

    check()
    assert split > EXAMPLES // 5  # as the examples fall


@pytest.mark.parametrize("operators", [("gelu",), ("matmul", "softmax"), ("lstm",), ("split",)])
def test_named_operators_and_no_others(forced, cpu_context, operators):
    rng = np.random.default_rng(5)
    feeds = {
        "x": rng.uniform(-1, 1, (3, 2, 4)).astype(np.float32),
        "w": rng.uniform(-1, 1, (1, 20, 4)).astype(np.float32),
        "r": rng.uniform(-1, 1, (1, 20, 5)).astype(np.float32),
    }

    def run(context):
        builder = MLGraphBuilder(context)
        x, w, r = (
            builder.input(name, {"data_type": "float32", "shape": a.shape})
            for name, a in feeds.items()
        )
        hidden, cell = builder.lstm(x, w, r, 3, 5)
        low, high = builder.split(builder.gelu(hidden), [1, 1], axis=1)
        product = builder.matmul(builder.reshape(low, [5, 1]), builder.reshape(high, [1, 5]))
        outputs = {"y": builder.softmax(product, 1), "cell": cell}
        graph = builder.build(outputs).result()
        return context.compute(graph, feeds), graph.report()

    got, report = run(forced(*operators))
    wanted, _ = run(cpu_context)
    assert_equal(got, wanted)
    on_cpu = {o.split(" ")[0] for s in report.steps if s.device == "cpu" for o in s.operators}
    assert on_cpu == set(operators)
    assert report.count("vulkan") > 0


def test_neighbours_on_the_cpu_share_one_segment(forced):
    """Three operators in a row on the CPU: one value in, one value out."""
    x = np.linspace(-1, 1, 6, dtype=np.float32)
    steps = tuple(
        Step(name, (i,)) for i, name in enumerate(("tanh", "abs", "sqrt", "exp", "sigmoid"))
    )
    graph = RandomGraph((x,), frozenset(), steps, (5,))
    got, program = graph.run(forced("abs", "sqrt", "exp"))
    wanted = 1 / (1 + np.exp(-np.exp(np.sqrt(np.abs(np.tanh(x))))))
    assert_allclose(got["y5"], wanted, rtol=1e-5)
    assert transfers(program) == (1, 1)
    assert [type(s) for s in program.segments] == [DeviceSegment, HostSegment, DeviceSegment]


def test_nothing_crosses_without_a_forced_operator(forced):
    x = np.linspace(-1, 1, 6, dtype=np.float32)
    graph = RandomGraph((x,), frozenset(), (Step("tanh", (0,)), Step("abs", (1,))), (2,))
    _, program = graph.run(forced())
    assert transfers(program) == (0, 0) and program.host_size == 0


def test_an_unknown_name_is_an_error(forced):
    builder = MLGraphBuilder(forced("conv3d"))
    x = builder.input("x", {"data_type": "float32", "shape": [1]})
    with pytest.raises(OperationError, match="no operator is called conv3d; did you mean conv2d"):
        builder.build({"y": builder.relu(x)}).result()


def test_by_the_environment():
    require_vulkan()
    chosen = Settings.from_environment({"WEBNN_VK_FORCE_CPU": "relu, abs"})
    assert chosen.force_cpu == ("relu", "abs")
    with open_context(force_cpu=chosen.force_cpu) as context:
        x = np.array([-1, 2], np.float32)
        graph = RandomGraph((x,), frozenset(), (Step("relu", (0,)), Step("neg", (1,))), (2,))
        got, program = graph.run(context)
    assert got["y2"].tolist() == [0, -2]
    assert [step.device for step in program.report.steps] == ["cpu", "vulkan"]
