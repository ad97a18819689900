"""Products of two dequantised tensors: which are summed as integers, and that the result is the
same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.discriminating import assert_allclose
from tests.support.graphs import evaluate, graph_input, graph_of, random_feeds
from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.kernels import lower_graph
from webnn_vk.compiler.passes import INTEGER_PRODUCTS, Compilation, remove_dead_code, run_passes
from webnn_vk.compiler.program import Target, compile_program

GPU, SOFTWARE = stored_profile("nvidia_ampere"), stored_profile("llvmpipe")


def rewritten(graph: Graph, **options: Any) -> Graph:
    """The graph after the pass, whose results are at most as inaccurate as before, compared with
    float64."""
    compilation = Compilation(**{"profile": GPU, "verify": True} | options)
    done = run_passes([INTEGER_PRODUCTS], graph, compilation, remove_dead_code)
    feeds = random_feeds(graph)
    expected = evaluate(graph, **feeds)
    for name, array in evaluate(done, **feeds).items():
        largest = np.abs(expected[name].astype(np.float64)).max()
        rounding = 2e-3 if array.dtype == np.float16 else 2e-6
        assert_allclose(array, expected[name], rtol=rounding, atol=rounding * largest)
    return done


def names(graph: Graph) -> list[str]:
    return [node.operator.name for node in graph.nodes]


def integers(shape: tuple[int, ...], data_type: str) -> np.ndarray:
    limits = np.iinfo(data_type)
    rng = np.random.default_rng(3)
    return rng.integers(limits.min, limits.max + 1, shape).astype(data_type)


def spread(value: Any, shape: tuple[int, ...], data_type: str) -> np.ndarray:
    return np.broadcast_to(np.asarray(value, data_type), shape)


def activations(
    emit: Emitter, shape: tuple[int, ...] = (24, 40), data_type: str = "uint8", zero: int = 120,
    kind: str = "float32", scales: tuple[int, ...] | None = None,
) -> tuple[Value, Value]:
    """An integer input, and the same input dequantised."""
    x = graph_input("x", shape, data_type)
    scales = scales or (1,) * len(shape)
    scale = np.linspace(0.02, 0.03, int(np.prod(scales))).reshape(scales).astype(kind)
    zeros = spread(zero, scales, data_type)
    return x, emit.dequantize_linear(x, emit.constant(scale), emit.constant(zeros))


def weights(
    emit: Emitter, shape: tuple[int, int] = (40, 12), data_type: str = "int8", zero: Any = 0,
    scales: tuple[int, int] = (1, 1), kind: str = "float32",
) -> Value:
    count = int(np.prod(scales))
    scale = np.linspace(0.01, 0.02, count).reshape(scales).astype(kind)
    zeros = spread(zero, scales, data_type)
    return emit.dequantize_linear(
        *map(emit.constant, (integers(shape, data_type), scale, zeros))
    )


def product(left: dict[str, Any], right: dict[str, Any]) -> Graph:
    emit = Emitter()
    x, a = activations(emit, **left)
    return graph_of(emit, {"y": emit.matmul(a, weights(emit, **right))}, x)


@pytest.mark.parametrize("left", [("uint8", 120), ("int8", -3), ("int8", 0)])
@pytest.mark.parametrize("right", [("int8", 0), ("uint8", 128), ("uint8", 7), ("int8", -128)])
@pytest.mark.parametrize("scales", [(1, 1), (1, 12), (1, 4)])
def test_a_product_is_one_of_integers(
    left: tuple[str, int], right: tuple[str, int], scales: tuple[int, int]
) -> None:
    done = rewritten(product(
        {"data_type": left[0], "zero": left[1]},
        {"data_type": right[0], "zero": right[1], "scales": scales},
    ))
    assert names(done) == ["integer_matmul", "mul"]
    symmetric = right in (("int8", 0), ("uint8", 128))
    assert (done.nodes[0].operand("zero_points") is None) == symmetric


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.integers(1, 3), max_size=2), st.integers(1, 70), st.integers(1, 9), st.data()
)
def test_zero_points_of_columns(
    batch: list[int], inner: int, columns: int, data: st.DataObject
) -> None:
    kinds = st.sampled_from(["int8", "uint8"])
    right = data.draw(kinds)
    limits = np.iinfo(right)
    zero = data.draw(st.lists(
        st.integers(int(limits.min), int(limits.max)), min_size=columns, max_size=columns
    ))
    done = rewritten(product(
        {"shape": (*batch, 16, inner), "data_type": data.draw(kinds)},
        {"shape": (inner, columns), "data_type": right, "zero": zero, "scales": (1, columns)},
    ))
    assert names(done) == ["integer_matmul", "mul"]


def test_half_floats_are_cast_to() -> None:
    done = rewritten(product({"kind": "float16"}, {"kind": "float16"}))
    assert names(done) == ["integer_matmul", "mul", "cast"]


def test_a_transposed_constant() -> None:
    emit = Emitter()
    x, a = activations(emit)
    b = emit.transpose(weights(emit, (12, 40), scales=(12, 1)), permutation=(1, 0))
    assert names(rewritten(graph_of(emit, {"y": emit.matmul(a, b)}, x))) == [
        "integer_matmul", "mul",
    ]


def test_gemm() -> None:
    emit = Emitter()
    x, a = activations(emit)
    c = emit.constant(np.linspace(-1, 1, 12).astype(np.float32))
    b = weights(emit, (12, 40), scales=(12, 1))
    y = emit.gemm(a, b, c=c, alpha=0.5, beta=2.0, b_transpose=True)
    done = rewritten(graph_of(emit, {"y": y}, x))
    assert names(done) == ["mul", "integer_matmul", "mul", "add"]


def test_one_tensor_of_several_products() -> None:
    emit = Emitter()
    x, a = activations(emit)
    outputs = {f"y{i}": emit.matmul(a, weights(emit, zero=i)) for i in range(2)}
    assert names(rewritten(graph_of(emit, outputs, x))) == ["integer_matmul", "mul"] * 2


@pytest.mark.parametrize(("left", "right"), [
    ({"shape": (15, 40)}, {}),
    ({"shape": (16, 33026)}, {"shape": (33026, 2)}),
    ({"scales": (24, 1)}, {}),
    ({}, {"scales": (40, 1)}),
    ({}, {"scales": (2, 12)}),
], ids=["few rows", "sums too long", "scales of rows", "scales along K", "blocks"])
def test_what_stays(left: dict[str, Any], right: dict[str, Any]) -> None:
    graph = product(left, right)
    compilation = Compilation(profile=GPU, verify=True)
    assert run_passes([INTEGER_PRODUCTS], graph, compilation, remove_dead_code) is graph


def test_the_longest_sum_is_exact() -> None:
    """All products are maximal: their sum is just below 2³¹."""
    inner = 33025
    emit = Emitter()
    x, a = activations(emit, (16, inner), zero=0)
    ones = np.ones((1, 1), np.float32)
    b = emit.dequantize_linear(
        emit.constant(np.full((inner, 1), 255, np.uint8)), emit.constant(ones),
        emit.constant(np.zeros((1, 1), np.uint8)),
    )
    graph = graph_of(emit, {"y": emit.matmul(a, b)}, x)
    compilation = Compilation(profile=GPU, verify=True)
    done = run_passes([INTEGER_PRODUCTS], graph, compilation, remove_dead_code)
    assert names(done) == ["integer_matmul", "mul"]
    feeds = {"x": np.full((16, inner), 255, np.uint8)}
    scale = np.float32(0.02)
    expected = np.float32(inner * 255 * 255) * scale
    assert_allclose(evaluate(done, **feeds)["y"], expected, rtol=1e-7)


def test_on_which_devices() -> None:
    graph = product({}, {})
    slow = GPU.masked(["integer_dot_product_accelerated"])
    for options in (
        {"profile": SOFTWARE}, {"profile": None}, {"profile": slow}, {"has_compiler": False},
        {"profile": GPU.masked(["integer_dot_product"])}, {"skip": frozenset(["integer_products"])},
        {"force_cpu": frozenset(["matmul"])},
    ):
        assert rewritten(graph, **options) is graph, options


@pytest.mark.parametrize("name", ["nvidia_ampere", "amd_navi31", "intel_dg2"])
def test_it_is_one_kernel_with_what_follows(name: str) -> None:
    emit = Emitter()
    x, a = activations(emit)
    y = emit.relu(emit.add(
        emit.matmul(a, weights(emit)), emit.constant(np.ones(12, np.float32))
    ))
    program, _ = compile_program(graph_of(emit, {"y": y}, x), Target(stored_profile(name)))
    (step,) = program.report.steps
    assert step.operators == ("integer_matmul", "mul", "add", "relu")


def test_without_its_shader_the_product_is_one_of_floats() -> None:
    """A compiler without instructions by number."""
    emit = Emitter()
    x, a = activations(emit)
    y = emit.relu(emit.matmul(a, weights(emit, zero=5)))
    graph = graph_of(emit, {"y": y}, x)

    def kernels(available: Any) -> list[str]:
        compilation = Compilation(profile=GPU, available=available)
        placed = run_passes([INTEGER_PRODUCTS], graph, compilation, remove_dead_code)
        lowered = lower_graph(placed, compilation)
        return [d.kernel for work in lowered.works for d in getattr(work, "dispatches", ())]

    assert kernels(lambda spec: True) == ["matmul_dot"]
    floats = kernels(lambda spec: "integer_dot_product" not in spec.features)
    assert "matmul_tiled" in floats and "matmul_dot" not in floats
