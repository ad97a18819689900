"""Integers that float32 can't represent: results are exact."""

from decimal import Decimal, localcontext
from math import ceil, isqrt

import numpy as np
import pytest
from onnx import ValueInfoProto, helper

from tests.support.onnx_models import info, model
from tests.support.onnx_nodes import Node, runtime
from webnn_vk.onnx import Session
from webnn_vk.onnx.ops.byte_products import cuts

pytest.importorskip("onnxruntime")
TYPES = ("int32", "uint32", "int64", "uint64")


def towards_zero(numerator, denominator):
    whole = abs(numerator) // denominator
    return whole if numerator >= 0 else -whole


def log_sum_exp(numbers):
    most = max(numbers)
    near = [n for n in numbers if most - n < 200]
    return int(most + sum((Decimal(n - most)).exp() for n in near).ln())


#: The result of each for a row, in integers of any size.
REDUCTIONS = {
    "ReduceMean": lambda row: towards_zero(sum(row), len(row)),
    "ReduceL2": lambda row: isqrt(sum(n * n for n in row)),
    "ReduceLogSum": lambda row: int(Decimal(sum(row)).ln()),
    "ReduceLogSumExp": log_sum_exp,
}


def rows_of(operator, kind):
    """Rows of four: around the limit of float32, around the wrapping point of sums, both signs."""
    limits = np.iinfo(kind)
    high = int(limits.max)
    rows = [
        [2**30, 2**30 + 1, 2**30 + 2, 2**30 + 3], [2**24, 2**24 + 1, 2**24 + 3, 2**24 + 5],
        [high // 2 - i for i in range(4)], [high - i for i in range(4)],
        [high // 3, 7, 1, high // 3 - 5], [1, 2, 3, 5], [0, 0, 0, 1], [high, 0, 0, 0],
    ]
    if limits.min:
        rows += [[-n for n in row] for row in rows] + [
            [high, -high, -3, -4], [-high, high, 2, 5], [-7, 0, 0, 0], [high, high, -high, -2],
        ]
    if operator == "ReduceL2":  # results that the type can represent; for 64 bits those below 2³²
        most = min(high, 2**32 - 2**13)
        rows = [r for r in rows if isqrt(sum(n * n for n in r)) <= most]
        rows += [[n, 0, 0, 0] for n in (3, 2**16 + 1, 46341, 2**24 + 1, most, most - 1)]
        rows += [[n, 1, 0, 0] for n in (3, 2**16 + 1, 46341, 2**24 + 1, most, most - 1)]
    if operator == "ReduceLogSum":
        rows = [r for r in rows if 0 < sum(r) <= np.iinfo("int64").max * 0.9]
        edges = [ceil(Decimal(k).exp()) for k in range(1, 44 if high > 2**32 else 21)]
        rows += [[n - by, 0, 0, 0] for n in edges for by in (0, 1)]
    if operator == "ReduceLogSumExp":
        rows = [r for r in rows if max(r) < high - 4]
        if limits.min:
            rows += [[-5, -5, -6, -9], [-1, -1, -1, -1], [-3, -19, -5, -2**20],
                     [limits.min, 3, 5, 5], [high - 9, limits.min, -high, 4]]
    return rows


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("operator", REDUCTIONS)
def test_reductions(cpu_context, operator, kind):
    rows = rows_of(operator, kind)
    node = Node(operator, [np.array(rows, kind), np.array([1])], {"keepdims": 0}, domain="",
                opset=18)
    with localcontext() as decimal:
        decimal.prec = 60
        expected = [REDUCTIONS[operator](row) for row in rows]
    (got,) = node.here(cpu_context)
    assert got.dtype == kind
    assert got.tolist() == expected


@pytest.mark.parametrize("operator", REDUCTIONS)
def test_as_the_runtime(cpu_context, operator):
    """For int32, ONNX Runtime's double holds everything, in operators that it computes itself."""
    draws = np.random.default_rng(0).integers(-(2**31), 2**31, (200, 3)).astype(np.int32)
    if operator != "ReduceMean":
        draws = np.abs(draws // 4)
    node = Node(operator, [draws, np.array([1])], {"keepdims": 0}, domain="", opset=18)
    got, expected = node.results(cpu_context)
    np.testing.assert_array_equal(got[0], expected[0])


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_each_by_itself(cpu_context, kind):
    """Without an axis elements are reduced alone."""
    numbers = np.array([1, 2, 3, 21, 2**24 + 1, 2**30 + 1], kind)
    for operator, expected in {
        "ReduceMean": numbers, "ReduceL2": numbers, "ReduceLogSumExp": numbers,
        "ReduceLogSum": [0, 0, 1, 3, 16, 20], "ReduceSum": numbers, "ReduceL1": numbers,
    }.items():
        node = Node(operator, [numbers, np.array([], np.int64)], {"noop_with_empty_axes": 1},
                    domain="", opset=18)
        (got,) = node.here(cpu_context)
        np.testing.assert_array_equal(got, expected, operator)


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_float_exponents(cpu_context, kind):
    """3¹⁹ has 31 bits."""
    most = 19 if kind == "int32" else 39
    bases = np.array([3, -3, 7, -1, -1, 0, 2, 10, 5, 1, -1], kind)
    exponents = np.array([most, most, 11, 65, 1000001, 0, 30, 9, 13, -2, -3], np.float32)
    node = Node("Pow", [bases, exponents], domain="", opset=15)
    got, runtimes = node.results(cpu_context)
    expected = [int(Decimal(int(b)) ** int(e)) if b else 1
                for b, e in zip(bases, exponents, strict=True)]
    assert got[0].tolist() == expected
    if kind == "int32":
        assert runtimes[0].tolist() == expected


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("bias", "bound"), [(0.0, 0.5), (1.5, 2.5), (3.0, 3.0), (-2.25, 0.0)])
def test_shrink(cpu_context, kind, bias, bound):
    limits = np.iinfo(kind)
    numbers = [limits.max // 2 + i for i in range(4)] + list(range(8)) + [2**24 + 1, limits.max - 5]
    if limits.min:
        numbers += [-n for n in numbers]
    steps = Decimal(bias)

    def shrunk(n):
        return int(n - steps) if n > bound else int(n + steps) if n < -bound else 0

    node = Node("Shrink", [np.array(numbers, kind)], {"bias": bias, "lambd": bound}, domain="")
    assert node.here(cpu_context)[0].tolist() == [shrunk(n) for n in numbers]


@pytest.mark.parametrize("kind", TYPES)
def test_nearest_elements(cpu_context, kind):
    numbers = (np.iinfo(kind).max - np.arange(12, dtype=kind)).reshape(1, 1, 3, 4)
    scales = np.array([1, 1, 2, 2], np.float32)
    node = Node("Resize", [numbers, None, scales], {"mode": "nearest"}, domain="")
    np.testing.assert_array_equal(
        node.here(cpu_context)[0], numbers.repeat(2, axis=2).repeat(2, axis=3)
    )


def test_ranges(cpu_context):
    """ONNX Runtime's Range is not folded."""
    start = np.array([2**60], np.int64)
    node = Node("Add", [start, np.array([0])], domain="")
    graph = node.model()
    graph.graph.node.append(helper.make_node(
        "Range", ["first", "last"], ["range"], domain="com.microsoft"
    ))
    for name, number in (("first", 2**60), ("last", 2**60 + 3)):
        graph.graph.initializer.append(helper.make_tensor(name, 7, [], [number]))
    graph.graph.output.append(ValueInfoProto(name="range"))
    graph.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    made = Session(graph, cpu_context).run(["range"], {"i0": start})[0]
    assert made.tolist() == [2**60, 2**60 + 1, 2**60 + 2]


# -- products of bytes -----------------------------------------------------------------------------
def drawn(*shape, kind="uint8", seed=0):
    limits = np.iinfo(kind)
    draws = np.random.default_rng([seed, *shape])
    return draws.integers(limits.min, limits.max, shape, endpoint=True).astype(kind)


def convolved(x, w, padding):
    """The integer convolution with stride 1."""
    size = w.shape[2]
    x = np.pad(x.astype(np.int64), [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    w = w.astype(np.int64)
    height, width = x.shape[2] - size + 1, x.shape[3] - size + 1
    total = np.zeros((x.shape[0], w.shape[0], height, width), np.int64)
    for i in range(size):
        for j in range(size):
            part = x[:, :, i : i + height, j : j + width]
            total += np.einsum("nchw,oc->nohw", part, w[:, :, i, j])
    return total


@pytest.mark.parametrize("zero", [0, 128])
@pytest.mark.parametrize(("channels", "size"), [(16, 3), (28, 3), (64, 3), (300, 1)])
def test_convolutions(cpu_context, channels, size, zero):
    """Convolutions for Winograd have no fractions."""
    x, w = drawn(1, channels, 20, 20), drawn(32, channels, size, size)
    node = Node(
        "ConvInteger", [x, w, np.array(3, np.uint8), np.array(zero, np.uint8)],
        {"pads": [size // 2] * 4}, domain="",
    )
    expected = convolved(x.astype(int) - 3, w.astype(int) - zero, size // 2)
    np.testing.assert_array_equal(node.here(cpu_context)[0], expected)


@pytest.mark.parametrize("channels", [16, 300])
def test_quantised_convolutions(cpu_context, channels):
    """Not beside ONNX Runtime, whose sums of two products saturate on processors without VNNI."""
    x, w = drawn(1, channels, 12, 12), drawn(16, channels, 3, 3, kind="int8")
    bias = np.arange(16, dtype=np.int32) * 2**20 + 1
    scales = [np.array(v, np.float32) for v in (0.125, 2.0**-16, 1.0)]
    node = Node(
        "QLinearConv",
        [x, scales[0], np.array(128, np.uint8), w, scales[1], np.array(0, np.int8), scales[2],
         np.array(9, np.uint8), bias], {"pads": [1] * 4}, domain="",
    )
    total = convolved(x.astype(int) - 128, w, 1) + bias.reshape(1, -1, 1, 1)
    expected = np.clip(np.rint(total.astype(np.float32) * 2.0**-19) + 9, 0, 255)
    np.testing.assert_array_equal(node.here(cpu_context)[0], expected)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("depth", [258, 259, 3000])
def test_matrices(cpu_context, depth, known):
    """All bytes at their maximum, and random ones."""
    for a, b in ((np.full((2, depth), 255, np.uint8), np.full((depth, 3), 255, np.uint8)),
                 (drawn(2, depth), drawn(depth, 3))):
        made = [helper.make_node("MatMulInteger", ["a", "b"], ["y"])]
        inputs = [info("a", a.shape, 2)] + [info("b", b.shape, 2)] * (not known)
        feeds = {"a": a} | ({} if known else {"b": b})
        graph = model(made, inputs, [info("y", (2, 3), 6)], {"b": b} if known else {})
        (got,) = Session(graph, cpu_context).run(None, feeds)
        np.testing.assert_array_equal(got, a.astype(np.int64) @ b)
        np.testing.assert_array_equal(got, runtime(graph).run(None, feeds)[0])


def test_quantised_matrices(cpu_context):
    """Sums above 2²⁴ that intermediate rounding would move to another step."""
    a, b = drawn(64, 3000), drawn(3000, 8)
    zero = np.array(128, np.uint8)
    steps = [np.array(v, np.float32) for v in (2.0**-6, 2.0**-7, 1.0)]
    node = Node("QLinearMatMul", [a, steps[0], zero, b, steps[1], zero, steps[2], zero], domain="")
    total = (a.astype(np.int64) - 128) @ (b.astype(np.int64) - 128)
    expected = np.clip(np.rint(total * 2.0**-13) + 128, 0, 255)
    got, theirs = node.results(cpu_context)
    np.testing.assert_array_equal(got[0], expected)
    np.testing.assert_array_equal(got[0], theirs[0])
    gemm = Node(
        "QGemm", [a, steps[0], zero, b, steps[1], zero, np.full(8, 2**28 + 1, np.int32)], {},
    )
    exact = (total + 2**28 + 1).astype(np.float32) * np.float32(2.0**-13)
    np.testing.assert_array_equal(gemm.here(cpu_context)[0], exact)


def test_parts_of_a_sum():
    """As few as float32 sums exactly, and no sum that it rounds."""
    assert cuts(None, 600, 1, 255, 255) == [258, 258, 84]
    assert cuts(None, 5, 9, 255, 255) == [5]
    sizes = np.random.default_rng(0).integers(0, 256, (7, 5000))
    made = cuts(sizes, 5000, 1, 255, 255)
    assert sum(made) == 5000 and len(made) < 5000 / 258
    ends = np.cumsum(made)
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        assert sizes[:, start:end].sum(1).max() * 255 <= 2**24
        assert end == 5000 or sizes[:, start : end + 1].sum(1).max() * 255 > 2**24
    assert cuts(np.zeros((3, 9000), int), 9000, 1, 255, 255) == [9000]
