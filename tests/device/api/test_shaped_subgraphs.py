"""Definitions with named dimensions (webnn#907, webnn#883): each use has its operands' sizes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from webnn_vk import MLDynamicDimension, MLGraphBuilder

ROWS, TOKENS = MLDynamicDimension("rows", 8), MLDynamicDimension("tokens", 16)


@pytest.fixture(params=["cpu", pytest.param("vulkan", marks=pytest.mark.device)])
def context(request):
    if request.param == "vulkan":
        request.getfixturevalue("vulkan")
    drafts = ["dynamic-shapes", "subgraph"]
    with open_context(device=request.param, experimental=drafts) as context:
        yield context


def described(*shape, data_type="float32"):
    return {"data_type": data_type, "shape": list(shape)}


def drawn(*shape):
    return np.random.default_rng(shape).uniform(-1, 1, shape).astype(np.float32)


def heads(context):
    """[rows, tokens, 6] → [rows, 2, tokens, 3], times a constant, and the means of all tokens."""
    builder = MLGraphBuilder(context)
    x = builder.input("x", described(ROWS, TOKENS, 6))
    split = builder.reshape(x, [ROWS, TOKENS, 2, 3], label="split")
    y = builder.transpose(split, permutation=[0, 2, 1, 3])
    weights = builder.constant(np.arange(9, dtype=np.float32).reshape(3, 3))
    return builder.build_subgraph(
        {"y": builder.matmul(y, weights), "mean": builder.reduce_mean(x, axes=[1])}
    )


def expected(x):
    rows, tokens, _ = x.shape
    y = x.reshape(rows, tokens, 2, 3).transpose(0, 2, 1, 3)
    return {"y": y @ np.arange(9, dtype=np.float32).reshape(3, 3), "mean": x.mean(1)}


def same(got, wanted):
    assert got.keys() == wanted.keys()
    for name, array in wanted.items():
        assert got[name].shape == array.shape
        assert_allclose(got[name], array, rtol=1e-5, atol=1e-6)


def test_the_descriptors_have_the_dimensions(context):
    definition = heads(context)
    assert definition.inputs["x"].shape == (ROWS, TOKENS, 6)
    assert [str(d) for d in definition.outputs["y"].shape] == ["rows", "2", "tokens", "3"]


def test_known_sizes_take_the_place_of_names(context):
    definition = heads(context)
    for shape in ((2, 5, 6), (8, 16, 6), (1, 1, 6)):
        builder = MLGraphBuilder(context)
        x = builder.input("x", described(*shape))
        graph = builder.build(builder.subgraph(definition, {"x": x})).result()
        assert graph.outputs["y"].shape == (shape[0], 2, shape[1], 3)
        same(context.compute(graph, {"x": drawn(*shape)}), expected(drawn(*shape)))


def test_other_names_and_sums_take_the_place_of_names(context):
    definition = heads(context)
    builder = MLGraphBuilder(context)
    past, new = MLDynamicDimension("past", 8), MLDynamicDimension("new", 7)
    a = builder.input("a", described(2, past, 6))
    b = builder.input("b", described(2, new, 6))
    graph = builder.build(
        builder.subgraph(definition, {"x": builder.concat([a, b], axis=1)}, label="use")
    ).result()
    assert graph.compute_shapes({"a": (2, 3, 6), "b": (2, 4, 6)})["y"] == (2, 2, 7, 3)
    for n, m in ((1, 1), (8, 7), (3, 4)):
        whole = drawn(2, n + m, 6)
        got = context.compute(graph, {"a": whole[:, :n].copy(), "b": whole[:, n:].copy()})
        same(got, expected(whole))


def test_definitions_nest_and_are_used_twice(context):
    inner = heads(context)
    outer_builder = MLGraphBuilder(context)
    x = outer_builder.input("x", described(1, TOKENS, 6))
    made = outer_builder.subgraph(inner, {"x": x})["y"]
    outer = outer_builder.build_subgraph({"z": outer_builder.tanh(made)})
    builder = MLGraphBuilder(context)
    n = MLDynamicDimension("n", 4)
    first = builder.subgraph(outer, {"x": builder.input("a", described(1, n, 6))})["z"]
    second = builder.subgraph(outer, {"x": builder.input("b", described(1, 5, 6))})["z"]
    graph = builder.build({"a": first, "b": builder.neg(second)}).result()
    for size in (1, 4):
        got = context.compute(graph, {"a": drawn(1, size, 6), "b": drawn(1, 5, 6)})
        same(got, {
            "a": np.tanh(expected(drawn(1, size, 6))["y"]),
            "b": -np.tanh(expected(drawn(1, 5, 6))["y"]),
        })


def test_conditions(context):
    def branch(scale):
        builder = MLGraphBuilder(context)
        x = builder.input("x", described(TOKENS, 3))
        return builder.build_subgraph({"y": builder.mul(x, builder.constant("float32", scale))})

    builder = MLGraphBuilder(context)
    n = MLDynamicDimension("n", 9)
    x = builder.input("x", described(n, 3))
    flag = builder.input("flag", described(data_type="uint8"))
    graph = builder.build(builder.cond(flag, branch(2), branch(-3), {"x": x})).result()
    for size, taken in ((1, 1), (9, 0), (4, 0)):
        got = context.compute(graph, {"x": drawn(size, 3), "flag": np.uint8(taken)})
        same(got, {"y": drawn(size, 3) * (2 if taken else -3)})


@pytest.mark.parametrize("ends", [False, True])
def test_loops(context, ends):
    body_builder = MLGraphBuilder(context)
    state = body_builder.input("s", described(ROWS, 4))
    after = body_builder.add(body_builder.mul(state, body_builder.constant("float32", 0.5)), state)
    if ends:
        largest = body_builder.reduce_max(after)
        going = body_builder.lesser(largest, body_builder.constant("float32", 4))
        results, scan = {"s": after, "going": going}, []
    else:
        item = body_builder.input("item", described(ROWS, 4))
        after = body_builder.add(after, item)
        results, scan = {"s": after, "all": body_builder.neg(after)}, ["item"]
    body = body_builder.build_subgraph(results)
    builder = MLGraphBuilder(context)
    n = MLDynamicDimension("n", 6)
    operands = {"s": builder.input("s", described(n, 4))}
    if scan:
        operands["item"] = builder.input("items", described(5, n, 4))
    made = builder.loop(body, 5, operands, scan=scan, condition="going" if ends else None)
    graph = builder.build(made).result()
    for size in (6, 1, 3):
        state, items = np.abs(drawn(size, 4)) + 1, drawn(5, size, 4)
        given = {"s": state, **({"items": items} if scan else {})}
        kept, active = [], True
        for i in range(5):
            following = state * np.float32(1.5) + (items[i] if scan else 0)
            state = following if active else state
            active = active and not (ends and following.max() >= 4)
            kept.append(-state)
        wanted = {"s": state, **({"all": np.stack(kept)} if scan else {})}
        same(context.compute(graph, given), wanted)


def test_what_does_not_fit_is_refused(context):
    definition = heads(context)
    builder = MLGraphBuilder(context)
    n, wide = MLDynamicDimension("n", 8), MLDynamicDimension("wide", 17)

    def use(*shape, data_type="float32"):
        operand = builder.input("x", described(*shape, data_type=data_type))
        return lambda: builder.subgraph(definition, {"x": operand}, label="use")

    for call, message in (
        (use(2, 17, 6),
         r"^subgraph \[use\]: operand 'x' has 17 elements for dimension 'tokens'; 1 … 16 are"),
        (use(2, wide, 6), r"operand 'x' has wide \(1 … 17\) elements for dimension 'tokens'"),
        (use(2, MLDynamicDimension("z", 4, 0), 6), r"z \(0 … 4\) elements for dimension 'tokens'"),
        (use(n, n, 7), r"operand 'x' is float32\[n, n, 7\], float32\[n, n, 6\] is expected"),
        (use(2, 6), r"operand 'x' is float32\[2, 6\], float32\[rows, tokens, 6\] is expected"),
        (use(2, 3, 6, data_type="int32"), r"is int32\[2, 3, 6\], float32\[2, 3, 6\] is expected"),
    ):
        with pytest.raises(TypeError, match=message):
            call()
    two = MLGraphBuilder(context)
    both = two.build_subgraph({"y": two.add(
        two.input("a", described(TOKENS)), two.input("b", described(TOKENS)))})
    m = MLDynamicDimension("m", 8)
    operands = {"a": builder.input("a", described(n)), "b": builder.input("b", described(m))}
    with pytest.raises(TypeError, match=r"operand 'b' is float32\[m\], float32\[n\] is expected"):
        builder.subgraph(both, operands)


def test_a_dimension_of_no_input_is_refused(context):
    builder = MLGraphBuilder(context)
    builder.input("x", described(TOKENS))
    y = builder.input("y", described(ROWS))
    with pytest.raises(TypeError, match=r"^build_subgraph: no input .* has the dimension 'tokens'"):
        builder.build_subgraph({"z": builder.expand(builder.reshape(y, [ROWS, 1]), [ROWS, TOKENS])})


def test_nothing_takes_the_place_of_a_dimension_that_may_be_empty(context):
    builder = MLGraphBuilder(context)
    some = MLDynamicDimension("some", 5, 0)
    x = builder.input("x", described(2, some))
    definition = builder.build_subgraph({"sum": builder.reduce_sum(x, axes=[1])})
    assert definition.inputs["x"].shape[1].min_size == 0
    for dimension, sizes in ((0, [0]), (MLDynamicDimension("n", 4, 0), [0, 3])):
        builder = MLGraphBuilder(context)
        made = builder.subgraph(definition, {"x": builder.input("a", described(2, dimension))})
        graph = builder.build(made).result()
        for size in sizes:
            same(context.compute(graph, {"a": drawn(2, size)}), {"sum": drawn(2, size).sum(1)})
