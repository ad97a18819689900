"""Products that share an operand become one product whose slices are read in place."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.discriminating import assert_allclose
from tests.support.graphs import evaluate, graph_input, graph_of, random_feeds
from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.kernels import DeviceWork, lower_graph
from webnn_vk.compiler.passes import (
    DEVICE_PASSES,
    JOIN_PRODUCTS,
    Compilation,
    remove_dead_code,
    run_passes,
)
from webnn_vk.compiler.types.data_types import MLOperandDescriptor

B, S, K, H, D = 2, 6, 8, 2, 4


def weight(seed: int, *shape: int, key: str | None = None) -> Value:
    data = np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)
    return Value(MLOperandDescriptor("float32", shape), data=data, key=key)


def joined(graph: Graph, **options) -> Graph:
    compilation = Compilation(verify=True, **options)
    done = run_passes([JOIN_PRODUCTS], graph, compilation, remove_dead_code)
    feeds = random_feeds(graph)
    expected = evaluate(graph, **feeds)
    for name, array in evaluate(done, **feeds).items():
        assert_allclose(array, expected[name], rtol=1e-5, atol=1e-5)
    assert bool(compilation.notes.of("join_products")) == (done is not graph)
    return done


def names(graph: Graph) -> list[str]:
    return [n.operator.name for n in graph.nodes]


def attention(emit: Emitter, linear, width: int = H * D) -> tuple[Value, Value]:
    """From x [2, 6, 8]: ``linear(name, x)`` projects it to queries, keys and values."""
    x = graph_input("x", (B, S, K))

    def heads(name: str) -> Value:
        y = emit.reshape(linear(name, x), (B, S, H, width // H))
        return emit.transpose(y, permutation=(0, 2, 1, 3))

    y = emit.attention(heads("q"), heads("k"), heads("v"))
    return x, emit.reshape(emit.transpose(y, permutation=(0, 2, 1, 3)), (B, S, width))


@pytest.mark.parametrize("biased", [False, True])
def test_queries_keys_and_values(biased):
    emit = Emitter()

    def linear(name, x):
        seed = "qkv".index(name)
        y = emit.matmul(x, weight(seed, K, H * D), label=name)
        if not biased:
            return y
        bias = weight(seed + 3, H * D)
        return emit.add(bias, y) if name == "k" else emit.add(y, bias)

    x, y = attention(emit, linear)
    done = joined(graph_of(emit, {"y": y}, x))
    assert names(done).count("matmul") == 1 and names(done).count("slice") == 3
    product = done.nodes[0]
    assert product.operands["b"].shape == (K, 3 * H * D)
    assert [o for o in product.origins if "matmul" in o] == [f"matmul [{n}]" for n in "qkv"]
    # On the device nothing is copied.
    compilation = Compilation(stored_profile("nvidia_ampere"))
    placed = run_passes(
        DEVICE_PASSES, graph_of(emit, {"y": y}, x), compilation, clean=remove_dead_code
    )
    works = [w for w in lower_graph(placed, compilation).works if isinstance(w, DeviceWork)]
    assert [w.dispatches[0].kernel for w in works] == ["matmul_tiled", "attention"]


@pytest.mark.parametrize("data_type", ["float32", "float16"])
@pytest.mark.parametrize("zero", [0, 3])
def test_dequantised_weights_of_queries_keys_and_values(data_type, zero):
    """Scales of columns, or one for all; on the device two kernels are left."""
    wide = 64
    emit = Emitter()
    x = graph_input("x", (B, S, wide), data_type)

    def heads(seed: int) -> Value:
        rng = np.random.default_rng(seed)
        integers = rng.integers(-100, 100, (wide, wide)).astype(np.int8)
        scales = (1, 1) if seed == 1 else (1, wide)
        scale = rng.uniform(0.001, 0.002, scales).astype(data_type)
        zeros = np.full(scales, zero, np.int8)
        weights = emit.dequantize_linear(*map(emit.constant, (integers, scale, zeros)))
        y = emit.matmul(x, weights, label="qkv"[seed])
        y = emit.add(y, emit.constant(rng.uniform(-1, 1, wide).astype(data_type)))
        y = emit.reshape(y, (B, S, 4, wide // 4))
        return emit.transpose(y, permutation=(0, 2, 1, 3))

    y = emit.attention(*map(heads, range(3)))
    y = emit.reshape(emit.transpose(y, permutation=(0, 2, 1, 3)), (B, S, wide))
    graph = graph_of(emit, {"y": y}, x)
    compilation = Compilation(stored_profile("nvidia_ampere"), verify=True)
    placed = run_passes(DEVICE_PASSES, graph, compilation, clean=remove_dead_code)
    assert names(placed).count("quantized_matmul") == 1 and names(placed).count("slice") == 3
    product = placed.nodes[0]
    assert product.operands["b"].data_type == "int8" and product.arguments["zero_point"] == zero
    works = [w for w in lower_graph(placed, compilation).works if isinstance(w, DeviceWork)]
    assert [w.titles[0].split()[0] for w in works] == ["quantized_matmul", "attention"]
    feeds = random_feeds(graph)
    (expected,), (result,) = (evaluate(g, **feeds).values() for g in (graph, placed))
    tolerance = 1e-5 if data_type == "float32" else 4e-3
    assert_allclose(
        result.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("blocks", [(2, 2), (2, 4)])
def test_scales_of_blocks_lie_below_each_other(blocks):
    emit = Emitter()
    x = graph_input("x", (4, 16))
    rng = np.random.default_rng(3)
    parts = [
        emit.block_matmul(
            x, emit.constant(rng.integers(0, 1 << 32, (4 * i, 4), np.uint32)),
            weight(i, 4 * i, count), offset=weight(i + 9, 4 * i, count), bits=8, zero_point=128.0,
        )
        for i, count in enumerate(blocks, 1)
    ]
    graph = graph_of(emit, {"y": emit.matmul(emit.transpose(parts[0]), parts[1])}, x)
    if blocks[0] != blocks[1]:
        assert joined(graph) is graph
    else:
        product = joined(graph).nodes[0]
        assert product.operands["scale"].shape == product.operands["offset"].shape == (12, 2)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_gemm(turned, biased):
    emit = Emitter()
    x = graph_input("x", (S, K))
    parts = [
        emit.gemm(
            x, weight(i, *((4 * i, K) if turned else (K, 4 * i))), b_transpose=turned,
            c=weight(i + 9, 4 * i) if biased else None,
        )
        for i in (1, 2)
    ]
    y = emit.matmul(emit.transpose(parts[0]), parts[1])
    done = joined(graph_of(emit, {"y": y}, x))
    assert names(done) == ["gemm", "slice", "slice", "transpose", "matmul"]


def test_keys_of_the_constants():
    def key(first, second):
        emit = Emitter()
        x = graph_input("x", (4, K))
        a = emit.matmul(x, weight(0, K, 4, key=first))
        y = emit.matmul(a, emit.matmul(x, weight(1, K, 4, key=second)))
        return joined(graph_of(emit, {"y": y}, x)).nodes[0].operands["b"].key

    assert key("a", None) is None
    assert key("a", "b") == key("a", "b") != key("b", "a")


def pair(first, second=None, change=lambda emit, y: y, rows=4):
    """Two products of x, which are multiplied by each other."""
    emit = Emitter()
    x = graph_input("x", (rows, K))
    a, b = first(emit, x), (second or first)(emit, x)
    y = emit.matmul(emit.transpose(change(emit, a)), b)
    return graph_of(emit, {"y": y}, x)


def plain(emit, x):
    return emit.matmul(x, weight(0, K, 4))


SHARED = weight(0, K, 4)


@pytest.mark.parametrize("graph", [
    # Rows of 6 elements would not begin at multiples of 4.
    pair(lambda e, x: e.matmul(x, weight(0, K, 6))),
    # A weight with two readers would exist twice.
    pair(lambda e, x: e.matmul(x, SHARED)),
    pair(lambda e, x: e.matmul(e.neg(x), weight(0, K, 4))),
    pair(lambda e, x: e.gemm(x, weight(0, K, 4), alpha=0.5)),
    pair(lambda e, x: e.gemm(x, weight(0, K, 4), c=weight(1, 4, 4))),
    pair(plain, lambda e, x: e.gemm(x, weight(1, K, 4))),
    pair(plain, lambda e, x: e.add(e.matmul(x, weight(1, K, 4)), weight(2, 4))),
    pair(plain, lambda e, x: e.mul(e.matmul(x, weight(1, K, 4)), weight(2, 4))),
    # Rows in which each element of the result has another number.
    pair(lambda e, x: e.mul(e.matmul(x, weight(1, K, 4)), weight(2, 4, 1))),
    # Integers less different zero points.
    pair(*(lambda e, x, z=z: e.quantized_matmul(
        x, e.constant(np.ones((K, 4), np.int8)), zero_point=z) for z in (0, 1))),
    # Operators on the product alone would be a separate kernel.
    pair(plain, change=lambda e, y: e.relu(y)),
])
def test_refuses(graph):
    assert joined(graph) is graph


def test_an_output_and_operators_on_the_cpu_are_left_alone():
    emit = Emitter()
    x = graph_input("x", (4, K))
    a, b = plain(emit, x), plain(emit, x)
    graph = graph_of(emit, {"y": emit.matmul(a, b), "a": a}, x)
    assert joined(graph) is graph
    graph = pair(plain)
    assert joined(graph) is not graph
    for name in ("matmul", "slice"):
        assert joined(graph, force_cpu=frozenset({name})) is graph


@st.composite
def projections(draw):
    """Some products of x with and without bias, some of which can be read as slices."""
    emit = Emitter()
    x = graph_input("x", (4, K))
    made = []
    for seed in range(draw(st.integers(2, 5))):
        columns = draw(st.sampled_from([4, 4, 8, 6]))
        if draw(st.booleans()):
            y = emit.matmul(x, weight(seed, K, columns))
            if draw(st.booleans()):
                y = emit.add(y, weight(seed, columns))
        elif draw(st.booleans()):
            y = emit.gemm(x, weight(seed, K, columns), c=weight(seed, columns))
        else:
            integers = np.random.default_rng(seed).integers(-9, 9, (K, columns)).astype(np.int8)
            y = emit.quantized_matmul(
                x, emit.constant(integers), zero_point=draw(st.sampled_from([0, 0, 2]))
            )
            row = draw(st.sampled_from([(), (columns,), (1, columns)]))
            y = emit.mul(y, weight(seed, *row))
        if draw(st.integers(0, 4)) == 0:
            y = emit.relu(y)
        made.append(y)
    outputs = {}
    for i, (a, b) in enumerate(zip(made, made[1:], strict=False)):
        outputs[f"y{i}"] = emit.matmul(emit.transpose(a), b)
    return graph_of(emit, outputs, x)


def test_the_meaning_is_kept():
    hits = 0

    # Few of the graphs have products that can be joined.
    @settings(max_examples=3 * settings.default.max_examples, deadline=None)
    @given(projections())
    def check(graph):
        nonlocal hits
        hits += joined(graph) is not graph

    check()
    assert hits > 5
