"""Definitions used like operators, conditions and loops (experimental "subgraph")."""

import copy
import math

import numpy as np
import pytest

from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from webnn_vk import MLGraphBuilder, MLOperandDescriptor


@pytest.fixture(scope="module", params=["cpu", pytest.param("vulkan", marks=pytest.mark.device)])
def context(request):
    with open_context(request.param, experimental=("subgraph",)) as opened:
        yield opened


@pytest.fixture
def builder(context):
    return MLGraphBuilder(context)


def given(builder, name, shape=(2, 3), kind="float32"):
    return builder.input(name, MLOperandDescriptor(kind, shape))


def drawn(*shape):
    return np.random.default_rng(math.prod(shape)).normal(size=shape).astype(np.float32)


def computed(builder, outputs, **inputs):
    graph = builder.build(outputs).result()
    return builder._context.compute(graph, inputs)


def gelu(builder, shape):
    """Gelu as exporters write it, as a definition."""
    x = given(builder, "x", shape)
    part = builder.erf(x * (1 / math.sqrt(2)), label="erf") + 1
    return builder.build_subgraph({"y": x * part * 0.5})


def test_a_definition_is_used_like_an_operator(builder):
    x = given(builder, "input")
    e = builder.exp(x * 2)
    tanh = builder.build_subgraph({"output": (e - 1) / (e + 1)})
    assert tanh.inputs == {"input": MLOperandDescriptor("float32", (2, 3))}
    assert tanh.outputs == {"output": MLOperandDescriptor("float32", (2, 3))}
    y = given(builder, "y")
    once = builder.subgraph(tanh, {"input": y})
    twice = builder.subgraph(tanh, {"input": once["output"]})
    data = drawn(2, 3)
    result = computed(builder, {"out": twice["output"] + y}, y=data)["out"]
    assert_allclose(result, np.tanh(np.tanh(data)) + data, rtol=1e-5, atol=1e-6)


def test_a_definition_serves_all_builders_of_a_context(context):
    definition = gelu(MLGraphBuilder(context), (2, 3))
    results = []
    for scale in (1, 2):
        builder = MLGraphBuilder(context)
        found = builder.subgraph(definition, {"x": given(builder, "a") * scale})
        results.append(computed(builder, {"y": found["y"] + 0}, a=drawn(2, 3) / scale)["y"])
    assert_allclose(results[0], results[1], rtol=1e-6)
    x = drawn(2, 3).astype(np.float64)
    expected = x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    assert_allclose(results[0], expected, rtol=1e-5, atol=1e-6)


def test_what_the_device_has_a_kernel_for_stays_whole(context):
    builder = MLGraphBuilder(context)
    definition = gelu(builder, (4, 8))
    y = builder.subgraph(definition, {"x": given(builder, "a", (4, 8))}, label="act")["y"]
    graph = builder.build({"y": y}).result()
    titles = [title for step in graph.report().steps for title in step.operators]
    if context.device_info.is_vulkan:
        assert titles == ["gelu [act]"]
    else:  # which computes a graph as it is given
        assert "erf [act/erf]" in titles


def test_warnings_leave_out_inputs_of_definitions(builder, recwarn):
    definition = gelu(builder, (2, 3))
    y = builder.subgraph(definition, {"x": given(builder, "a")})["y"]
    builder.build({"y": y}).result()
    assert not [w for w in recwarn if "no output depends" in str(w.message)]


def branches(builder):
    a, b = given(builder, "a"), given(builder, "b")
    return (
        builder.build_subgraph({"y": builder.sqrt(a)}),
        builder.build_subgraph({"y": builder.log(b) * 2}),
    )


@pytest.mark.parametrize("shape", [(), (1,)])
def test_cond_chooses(context, shape):
    """The branch that isn't taken gives NaN here, which must not be seen."""
    for flag in (0, 1, 7):
        builder = MLGraphBuilder(context)
        then, otherwise = branches(builder)
        operands = {"a": given(builder, "a"), "b": given(builder, "b")}
        result = builder.cond(given(builder, "p", shape, "uint8"), then, otherwise, operands)
        good, bad = np.abs(drawn(2, 3)) + 1, -np.ones((2, 3), np.float32)
        found = computed(
            builder, {"y": builder.identity(result["y"])}, p=np.full(shape, flag, np.uint8),
            a=good if flag else bad, b=bad if flag else good,
        )["y"]
        assert_allclose(found, np.sqrt(good) if flag else np.log(good) * 2, rtol=1e-5)


def test_cond_of_a_constant_has_one_branch(context):
    builder = MLGraphBuilder(context)
    then, otherwise = branches(builder)
    operands = {"a": given(builder, "a"), "b": given(builder, "b")}
    result = builder.cond(builder.constant("uint8", 0), then, otherwise, operands)
    with pytest.warns(RuntimeWarning, match="no output depends on the inputs 'a'"):
        graph = builder.build({"y": result["y"]}).result()
    assert list(graph.inputs) == ["b"]


def recurrence(builder):
    """s ← s / 2 + x, and s plus the iteration's number."""
    s, x, i = given(builder, "s"), given(builder, "x"), given(builder, "i", (), "int32")
    after = s * 0.5 + x
    return builder.build_subgraph({"s": after, "y": after + builder.cast(i, "float32")})


def test_a_loop_passes_scans_and_stacks(builder):
    body = recurrence(builder)
    operands = {"s": given(builder, "s0"), "x": given(builder, "xs", (5, 2, 3))}
    result = builder.loop(body, 5, operands, scan=["x"], iteration="i", label="rnn")
    state, xs = drawn(2, 3), drawn(5, 2, 3)
    found = computed(builder, {"s": result["s"], "y": result["y"]}, s0=state, xs=xs)
    stacked = []
    for i, x in enumerate(xs):
        state = state / 2 + x
        stacked.append(state + i)
    assert_allclose(found["s"], state, rtol=1e-5)
    assert_allclose(found["y"], stacked, rtol=1e-5)


def test_the_number_of_iterations_costs_no_steps(context):
    steps = []
    for count in (3, 300):
        builder = MLGraphBuilder(context)
        body = recurrence(builder)
        operands = {"s": given(builder, "s0"), "x": given(builder, "xs", (count, 2, 3))}
        result = builder.loop(body, count, operands, scan=["x"], iteration="i")
        graph = builder.build({"y": result["y"]}).result()
        steps.append(len(graph.report().steps))
    assert steps[0] == steps[1]


def test_a_loop_ends_with_its_condition(context):
    """Doubles until all is above a limit. What is computed afterwards overflows, unseen."""
    builder = MLGraphBuilder(context)
    x, limit = given(builder, "x"), given(builder, "limit", ())
    doubled = x * x
    small = builder.lesser(builder.reduce_max(doubled), limit)
    body = builder.build_subgraph({"x": doubled, "small": small})
    operands = {"x": given(builder, "x0"), "limit": given(builder, "top", ())}
    result = builder.loop(body, 12, operands, condition="small")
    data = np.full((2, 3), 1.5, np.float32)
    data[0, 0] = 1.25
    assert list(result) == ["x"]
    graph = builder.build({"y": result["x"]}).result()
    for top in (2, 100, 1e5):
        expected = data
        while True:
            expected = expected * expected
            if expected.max() >= top:
                break
        found = context.compute(graph, {"x0": data, "top": np.float32(top)})["y"]
        assert_allclose(found, expected, rtol=1e-5)
    if context.device_info.is_vulkan:
        assert {step.device for step in graph.report().steps} == {"vulkan"}


def test_definitions_nest(builder):
    x = given(builder, "x")
    inner = builder.build_subgraph({"y": builder.tanh(x, label="t")})
    outer = builder.build_subgraph({"z": builder.subgraph(inner, {"x": x}, label="in")["y"] * 3})
    result = builder.subgraph(outer, {"x": given(builder, "a")}, label="out")
    data = drawn(2, 3)
    graph = builder.build({"z": result["z"]}).result()
    titles = [title for step in graph.report().steps for title in step.operators]
    assert "tanh [out/in/t]" in titles
    found = builder._context.compute(graph, {"a": data})["z"]
    assert_allclose(found, np.tanh(data) * 3, rtol=1e-5)


def refusals(builder, other):
    x = given(builder, "x")
    definition = builder.build_subgraph({"x": x + 1})
    wide = given(builder, "wide", (2, 4))
    flag = given(builder, "flag", (2,), "uint8")
    scalar = given(builder, "scalar", (), "uint8")
    typed = builder.build_subgraph({"x": builder.cast(x, "int32")})
    plain = builder.build_subgraph({"y": x + 1})
    foreign = MLGraphBuilder(other)
    elsewhere = foreign.build_subgraph({"x": given(foreign, "x") + 1})
    yield lambda: builder.subgraph(x, {}), "definition: an MLSubgraph is expected"
    yield lambda: builder.subgraph(definition, {}), r"operands \[\] were given, \['x'\]"
    yield lambda: builder.subgraph(definition, {"x": wide}), r"\[2, 4\], float32\[2, 3\] is expect"
    yield lambda: builder.subgraph(definition, {"x": 3}), "operand 'x': an MLOperand is expected"
    yield lambda: builder.subgraph(definition, [x]), "a mapping of names to operands"
    yield lambda: builder.subgraph(elsewhere, {"x": x}), "belongs to another context"
    yield lambda: builder.subgraph(definition, {"x": x}, label=3), "label has to be a str"
    yield lambda: builder.build_subgraph({"x": x}), "build_subgraph: output 'x' is an input"
    yield lambda: builder.build_subgraph({}), "build_subgraph: at least one output"
    yield lambda: builder.cond(flag, plain, plain, {"x": x}), "predicate is uint8"
    yield lambda: builder.cond(scalar, definition, typed, {"x": x}), "the same names, data types"
    yield lambda: builder.loop(definition, 0, {"x": x}), "0 iterations"
    yield lambda: builder.loop(definition, 2**14 + 1, {"x": x}), "16385 iterations"
    yield lambda: builder.loop(definition, -1, {"x": x}), "count"
    yield lambda: builder.loop(typed, 2, {"x": x}), "output 'x' of the body is int32"
    yield lambda: builder.loop(definition, 2, {"x": x}, scan="x"), "scan: a sequence of names"
    yield lambda: builder.loop(definition, 2, {"x": x}, scan=["x"]), "can't be passed"
    yield lambda: builder.loop(plain, 2, {"x": x}, scan=["z"]), "'z' is not an input"
    yield lambda: builder.loop(plain, 2, {"x": x}, scan=["x"]), r"float32\[2, 2, 3\] is expected"
    yield lambda: builder.loop(definition, 2, {"x": x}, iteration="x"), "not a scalar input"
    yield lambda: builder.loop(definition, 2, {"x": x}, condition="go"), "not an output"
    yield lambda: builder.loop(plain, 2, {"x": x}, condition="y"), "condition is float32"


def test_what_does_not_fit_is_refused(context):
    with open_context("cpu", experimental=("subgraph",)) as other:
        for call, message in refusals(MLGraphBuilder(context), other):
            with pytest.raises(TypeError, match=message):
                call()


def test_messages_begin_with_the_call_and_its_label(builder):
    definition = gelu(builder, (2, 3))
    with pytest.raises(TypeError, match=r"^subgraph \[act\]: operands"):
        builder.subgraph(definition, {}, label="act")
    with pytest.raises(TypeError, match="can't be made"):
        copy.copy(definition)


def test_other_contexts_have_no_subgraphs(cpu_context):
    builder = MLGraphBuilder(cpu_context)
    with pytest.raises(TypeError, match=r"build_subgraph: .*experimental=\['subgraph'\]"):
        builder.build_subgraph({"y": given(builder, "x") + 1})
