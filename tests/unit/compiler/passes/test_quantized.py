"""Products and convolutions of dequantised weights: which read the integers, and that the results
are equal."""

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
from webnn_vk.compiler.passes import (
    FUSE_DEQUANTIZE,
    Compilation,
    decompose_nodes,
    remove_dead_code,
    run_passes,
)
from webnn_vk.compiler.program import Program, Target, compile_program
from webnn_vk.compiler.program.verify import verify
from webnn_vk.driver.resources import room_for

GPU, SOFTWARE = stored_profile("nvidia_ampere"), stored_profile("llvmpipe")


def fused(graph: Graph, **options: Any) -> Graph:
    """The graph after the pass, which changes none of its results by more than roundings."""
    compilation = Compilation(**{"profile": GPU, "verify": True} | options)
    done = run_passes([FUSE_DEQUANTIZE], graph, compilation, remove_dead_code)
    feeds = random_feeds(graph)
    expected = evaluate(graph, **feeds)
    for name, array in evaluate(done, **feeds).items():
        largest = np.abs(expected[name].astype(np.float64)).max()
        rounding = 2e-3 if array.dtype == np.float16 else 2e-6
        assert_allclose(array, expected[name], rtol=rounding, atol=rounding * largest)
    return done


def names(graph: Graph) -> list[str]:
    return [node.operator.name for node in graph.nodes]


def weights(
    emit: Emitter, shape: tuple[int, int], scales: tuple[int, int] = (1, 1),
    data_type: str = "int8", zero: Any = 0, kind: str = "float32",
) -> Value:
    """Dequantised integers of a data type, with scales of a shape; ``zero`` is spread over it."""
    rng = np.random.default_rng(5)
    limits = np.iinfo(data_type)
    integers = rng.integers(limits.min, limits.max + 1, shape).astype(data_type)
    scale = rng.uniform(0.01, 0.02, scales).astype(kind)
    zeros = np.broadcast_to(np.asarray(zero, data_type), scales)
    return emit.dequantize_linear(*map(emit.constant, (integers, scale, zeros)))


def product(
    scales: tuple[int, int] = (1, 64), data_type: str = "int8", zero: Any = 0,
    kind: str = "float32",
) -> Graph:
    emit = Emitter()
    x = graph_input("x", (3, 64), kind)
    y = emit.matmul(x, weights(emit, (64, 64), scales, data_type, zero, kind))
    return graph_of(emit, {"y": y}, x)


@pytest.mark.parametrize("scales", [(1, 1), (1, 64), (1, 16)])
@pytest.mark.parametrize(("data_type", "zero"), [("int8", 0), ("int8", -7), ("uint8", 131)])
def test_a_product_reads_the_integers(
    scales: tuple[int, int], data_type: str, zero: int
) -> None:
    done = fused(product(scales, data_type, zero))
    assert names(done) == ["quantized_matmul", "mul"]
    node = done.nodes[0]
    assert node.operands["b"].data_type == data_type and node.arguments["zero_point"] == zero


def test_half_precision_is_rounded_once_at_the_end() -> None:
    assert names(fused(product(kind="float16"))) == ["quantized_matmul", "mul", "cast"]


def test_zero_points_of_columns_are_subtracted_where_8_bits_hold_the_result() -> None:
    rng = np.random.default_rng(1)
    emit = Emitter()
    x = graph_input("x", (3, 64))
    zeros = rng.integers(100, 150, (1, 64)).astype(np.uint8)
    near = (zeros + rng.integers(-60, 60, (64, 64))).astype(np.uint8)
    scale = rng.uniform(0.01, 0.02, (1, 64)).astype(np.float32)
    real = emit.dequantize_linear(*map(emit.constant, (near, scale, zeros)))
    done = fused(graph_of(emit, {"y": emit.matmul(x, real)}, x))
    assert names(done) == ["quantized_matmul", "mul"]
    assert done.nodes[0].operands["b"].data_type == "int8"
    assert done.nodes[0].arguments["zero_point"] == 0
    # Integers of the whole range less different zero points take 9 bits.
    wide = product((1, 64), "uint8", np.arange(64) + 90)
    assert names(fused(wide)) == ["dequantize_linear", "matmul"]


@settings(max_examples=25, deadline=None)
@given(
    a_transpose=st.booleans(), b_transpose=st.booleans(), turned=st.booleans(),
    c=st.sampled_from([None, (), (80,), (6, 1), (6, 80)]), alpha=st.sampled_from([1.0, -0.5]),
    beta=st.sampled_from([1.0, 2.0]), by_column=st.booleans(),
    kind=st.sampled_from(["float32", "float16"]),
)
def test_gemm(
    a_transpose: bool, b_transpose: bool, turned: bool, c: Any, alpha: float, beta: float,
    by_column: bool, kind: str,
) -> None:
    emit = Emitter()
    x = graph_input("x", (64, 6) if a_transpose else (6, 64), kind)
    inputs = [x]
    options: dict[str, Any] = dict(
        alpha=alpha, beta=beta, a_transpose=a_transpose, b_transpose=b_transpose
    )
    if c is not None:
        inputs.append(graph_input("c", c, kind))
        options["c"] = inputs[-1]
    columns_last = b_transpose == turned
    shape = (64, 80) if columns_last else (80, 64)
    scales = (1, 1) if not by_column else (1, 80) if columns_last else (80, 1)
    b = weights(emit, shape, scales, kind=kind)
    if turned:
        b = emit.transpose(b)
    done = fused(graph_of(emit, {"y": emit.gemm(x, b, **options)}, *inputs))
    assert "quantized_matmul" in names(done) and "dequantize_linear" not in names(done)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("data_type", "low", "high", "zero", "bits", "stored_zero"), [
    ("int8", -128, 128, 3, 8, 131), ("uint8", 0, 256, 131, 8, 131), ("uint8", 0, 17, 8, 8, 8),
    ("uint8", 0, 16, 8, 4, 8), ("int8", -8, 8, 0, 4, 8), ("uint8", 0, 16, None, 4, 0),
    ("uint8", 0, 16, 16, 4, 0),
])
@pytest.mark.parametrize("kind", ["float32", "float16"])
@pytest.mark.parametrize("profile", [GPU, SOFTWARE], ids=["gpu", "software"])
def test_weights_with_scales_of_blocks_stay_packed(
    turned: bool, data_type: str, low: int, high: int, zero: int | None, bits: int,
    stored_zero: int, kind: str, profile: Any,
) -> None:
    """In 4 bits if these hold the integers. Zero points of blocks become offsets, and so does one
    that the bits don't hold."""
    rng = np.random.default_rng(2)
    emit = Emitter()
    x = graph_input("x", (3, 128), kind)
    integers = rng.integers(low, high, (72, 128)).astype(data_type)
    integers[0, :2] = low, high - 1
    zeros = rng.integers(0, 16, (72, 4)) if zero is None else np.full((72, 4), zero)
    scale = rng.uniform(0.001, 0.002, (72, 4)).astype(kind)
    given = integers, scale, zeros.astype(data_type)
    real = emit.dequantize_linear(*(emit.constant(v if turned else v.T) for v in given))
    y = emit.matmul(x, emit.transpose(real) if turned else real)
    done = fused(graph_of(emit, {"y": y}, x), profile=profile)
    assert names(done) == ["block_matmul", *["cast"] * (kind == "float16")]
    node = done.nodes[0]
    assert node.operands["b"].shape == (72, 128 * bits // 32)
    assert node.operands["scale"].shape == (72, 4)
    assert node.arguments["bits"] == bits and node.arguments["zero_point"] == stored_zero
    has_offset = zero in (None, 16)
    assert (node.operand("offset") is not None) == has_offset
    assert node.operands["scale"].data_type == ("float32" if has_offset else kind)


def test_the_last_block_may_be_cut() -> None:
    """As MatMulNBits is imported if K is no multiple of the block."""
    rng = np.random.default_rng(4)
    emit = Emitter()
    x = graph_input("x", (3, 120))
    given = rng.integers(0, 16, (72, 128)).astype(np.uint8), np.full((72, 4), 0.1, np.float32)
    real = emit.dequantize_linear(*map(emit.constant, (*given, np.full((72, 4), 8, np.uint8))))
    y = emit.matmul(x, emit.transpose(emit.slice(real, (0, 0), (72, 120))))
    assert names(fused(graph_of(emit, {"y": y}, x))) == ["block_matmul"]


@pytest.mark.parametrize("graph", [
    product((64, 1)),  # the scale changes along the sum
    product((32, 64)),
], ids=["rows", "small blocks"])
def test_what_can_not_be_scaled_after_the_sum_stays(graph: Graph) -> None:
    assert fused(graph) is graph


def test_few_weights_and_weights_given_at_run_time_stay() -> None:
    emit = Emitter()
    x, q = graph_input("x", (3, 16)), graph_input("q", (16, 16), "int8")
    ones, zeros = np.ones((1, 1), np.float32), np.zeros((1, 1), np.int8)
    given_later = emit.dequantize_linear(q, emit.constant(ones), emit.constant(zeros))
    y, z = emit.matmul(x, given_later), emit.matmul(x, weights(emit, (16, 16)))
    graph = graph_of(emit, {"y": y, "z": z}, x, q)
    assert fused(graph) is graph


def test_where_nothing_can_be_fused_behind_a_product_the_pass_is_left_out() -> None:
    graph = product()
    assert fused(graph, has_compiler=False) is graph
    assert fused(graph, force_cpu=frozenset(["matmul"])) is graph
    assert fused(graph, skip=frozenset(["fuse_dequantize"])) is graph


def test_on_software_devices_the_weights_become_floats() -> None:
    emit = Emitter()
    x, ids = graph_input("x", (3, 64)), graph_input("ids", (2,), "int32")
    only, table = weights(emit, (64, 64)), weights(emit, (512, 64))
    turned = emit.transpose(weights(emit, (64, 64)))
    y = emit.matmul(emit.matmul(x, only), turned)
    graph = graph_of(emit, {"y": y, "rows": emit.gather(table, ids)}, x, ids)
    done = fused(graph, profile=SOFTWARE)
    # A gather's weights, of which it reads a few rows, stay small.
    assert names(done) == ["dequantize_linear", "transpose", "matmul", "matmul", "gather"]


def convolution(
    scales: int = 32, data_type: str = "int8", zero: Any = 0, kind: str = "float32",
    bias: bool = True, layout: str = "nchw", filter_layout: str = "oihw", along: str = "o",
    pad: bool = False, taps: int = 3,
) -> Graph:
    """A convolution of 16 channels to 32, whose filter is dequantised with this many scales."""
    rng = np.random.default_rng(5)
    emit = Emitter()
    sizes = {"n": 1, "c": 16, "h": 6, "w": 5}
    x = graph_input("x", tuple(sizes[a] for a in layout), kind)
    given = emit.pad(x, *[[int(a in "hw") for a in layout]] * 2) if pad else x
    own = {"o": 32, "i": 16, "h": taps, "w": taps}
    limits = np.iinfo(data_type)
    integers = rng.integers(limits.min, limits.max + 1, [own[a] for a in filter_layout])
    shape = [scales if a == along else 1 for a in filter_layout]
    real = emit.dequantize_linear(
        emit.constant(integers.astype(data_type)),
        emit.constant(rng.uniform(0.001, 0.002, shape).astype(kind)),
        emit.constant(np.broadcast_to(np.asarray(zero, data_type), shape)),
    )
    options: dict[str, Any] = {"input_layout": layout, "filter_layout": filter_layout}
    if bias:
        options["bias"] = emit.constant(rng.uniform(-1, 1, 32).astype(kind))
    return graph_of(emit, {"y": emit.conv2d(given, real, **options)}, x)


@pytest.mark.parametrize(("layout", "filter_layout"), [
    ("nchw", "oihw"), ("nhwc", "ohwi"), ("nhwc", "hwio"), ("nchw", "ihwo"),
])
@pytest.mark.parametrize("scales", [1, 8, 32])
@pytest.mark.parametrize("bias", [False, True])
def test_convolutions_read_the_integers(
    layout: str, filter_layout: str, scales: int, bias: bool
) -> None:
    for data_type, zero in (("int8", 0), ("uint8", 131)):
        done = fused(convolution(
            scales, data_type, zero, bias=bias, layout=layout, filter_layout=filter_layout
        ))
        assert names(done) == ["quantized_conv2d", "mul", *["add"] * bias]
        node = done.nodes[0]
        assert node.operands["filter"].data_type == data_type
        assert node.arguments["zero_point"] == zero
    done = fused(convolution(scales, kind="float16", bias=bias, layout=layout))
    assert names(done) == ["quantized_conv2d", "mul", *["add"] * bias, "cast"]


def test_a_filter_that_can_not_be_scaled_after_the_sum_becomes_floats() -> None:
    done = fused(convolution(16, along="i"))
    assert names(done) == ["conv2d"]
    assert done.nodes[0].operands["filter"].data is not None


def test_one_kernel_is_left_of_a_pad_and_a_quantized_convolution() -> None:
    report = compiled(convolution(layout="nhwc", filter_layout="ohwi", pad=True)).report
    assert [s.operators for s in report.steps] == [("quantized_conv2d", "mul", "add")]
    assert report.weight_bytes == 32 * 16 * 9 + 2 * 4 * 32


def test_convolutions_on_software_devices_get_floats() -> None:
    done = fused(convolution(), profile=SOFTWARE)
    assert names(done) == ["conv2d"]


def compiled(graph: Graph, **options: Any) -> Program:
    program, _ = compile_program(graph, Target(GPU, **options))
    verify(program)
    return program


def test_the_device_holds_a_quarter() -> None:
    emit = Emitter()
    x = graph_input("x", (40, 1024))
    y = emit.matmul(x, weights(emit, (1024, 1024), (1, 1024)))
    bias = emit.constant(np.ones(1024, np.float32))
    graph = graph_of(emit, {"y": emit.relu(emit.add(y, bias))}, x)
    report = compiled(graph).report
    assert [s.operators for s in report.steps] == [("quantized_matmul", "mul", "add", "relu")]
    assert report.weight_bytes == 1024 * 1024 + 2 * 4096 and report.arena_bytes == 0
    plain = compiled(graph, skip=("fuse_dequantize",)).report
    assert plain.arena_bytes == room_for(4 * 1024 * 1024, GPU) == 4 * 1024 * 1024


def test_without_its_kernel_it_is_what_the_specification_has() -> None:
    program = compiled(
        product(), available=lambda spec: all(p.name != "zero_point" for p in spec.params)
    )
    operators = [o for step in program.report.steps for o in step.operators]
    assert operators == ["dequantize_linear", "matmul", "mul"]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("offset", [False, True])
def test_weights_in_blocks_by_operators_of_the_specification(bits: int, offset: bool) -> None:
    """As they are computed where no kernel can be had; columns beyond the inner dimension are
    left out."""
    rng = np.random.default_rng(bits)
    emit = Emitter()
    x = graph_input("x", (2, 3, 60))
    words = emit.constant(rng.integers(0, 1 << 32, (24, 2 * bits), np.uint32))
    scale, shift = (
        emit.constant(rng.uniform(-0.1, 0.1, (24, 2)).astype(np.float16)) for _ in range(2)
    )
    y = emit.block_matmul(
        x, words, scale, offset=shift if offset else None, bits=bits, zero_point=3.0
    )
    graph = graph_of(emit, {"y": y}, x)
    other = decompose_nodes(graph, lambda node: node.operator.name == "block_matmul")
    assert "block_matmul" not in names(other) and "div" in names(other)
    feeds = random_feeds(graph)
    (expected,), (result,) = (evaluate(g, **feeds).values() for g in (graph, other))
    assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    program = compiled(graph, available=lambda spec: all(b.name != "scale" for b in spec.buffers))
    operators = {o for step in program.report.steps for o in step.operators}
    assert "block_matmul" not in operators and "matmul" in operators
