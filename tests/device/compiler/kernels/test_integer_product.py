"""Products of 8-bit integers on the device are exact, with the instruction and without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.comparing import profile_for
from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from tests.support.running import device_profile, node_of, plan, run, schedules_of
from webnn_vk import MLGraphBuilder

ACCELERATED = {"integer_dot_product", "integer_dot_product_accelerated"}


def case(
    m: int, k: int, n: int, kind: str, zeros: bool, batch: tuple[int, ...] = ()
) -> tuple[Any, dict[Any, np.ndarray], np.ndarray]:
    """A product, its operands, and its exact result."""
    rng = np.random.default_rng(m + k + n)
    limits = np.iinfo(kind)
    a = rng.integers(limits.min, limits.max + 1, (*batch, m, k)).astype(kind)
    b = rng.integers(-128, 128, (n, -(-k // 16) * 16)).astype(np.int8)
    zero_points = rng.integers(-128, 128, n).astype(np.int32)
    wide = b[:, :k].astype(np.int64) - zeros * zero_points[:, None].astype(np.int64)
    arguments: dict[str, Any] = {"a_zero_point": float(limits.min + 3)}
    if zeros:
        arguments["zero_points"] = zero_points
    node, arrays = node_of("integer_matmul", a, b, wide.sum(1).astype(np.int32), **arguments)
    exact = (a.astype(np.int64) - (limits.min + 3)) @ wide.T
    return node, arrays, exact.astype(np.float32)


@pytest.mark.parametrize(("kind", "m", "k", "n", "zeros", "batch"), [
    ("int8", 70, 96, 33, True, ()),
    ("uint8", 5, 16, 7, False, ()),
    ("uint8", 33, 20, 65, True, (2,)),
    ("int8", 3, 1, 1, False, ()),
    ("uint8", 9, 133, 5, True, (2, 3)),
], ids=["vectors", "unsigned vectors", "words", "one", "bytes"])
def test_exact(
    kind: str, m: int, k: int, n: int, zeros: bool, batch: tuple[int, ...], vulkan: None
) -> None:
    """Rows that begin at a vector, a word, or anywhere; edges of tiles; several batches. By every
    schedule (without zero points, by one) if the device has the instruction, and without it."""
    profile = profile_for("discrete")
    node, arrays, expected = case(m, k, n, kind, zeros, batch)
    tilings = schedules_of(node, profile)
    ways = [(profile, s) for s in tilings] if "integer_dot_product" in profile.features else []
    if not zeros:
        ways = ways[-1:]
    if kind == "uint8":
        ways.append((profile.masked(["integer_dot_product"]), tilings[0]))
    for way, schedule in ways:
        (out,) = run(node, arrays, way, schedule)
        np.testing.assert_array_equal(out, expected)


def test_operands_larger_than_a_binding_are_bound_in_portions(vulkan: None) -> None:
    """Both matrices, and the result; rows that begin anywhere."""
    profile = profile_for("discrete").replace(max_storage_buffer_range=2048)
    node, arrays, expected = case(70, 133, 63, "uint8", True)
    (step,) = plan(node, profile)
    portions = {buffer.name: buffer.portions for buffer in step.spec.buffers}
    assert all(portions[name] > 1 for name in ("a", "b", "out")) and portions["sums"] == 1
    (out,) = run(node, arrays, profile)
    np.testing.assert_array_equal(out, expected)


def network(context: Any) -> tuple[Any, dict[str, np.ndarray], np.ndarray]:
    """Quantised at the input and between, as in QDQ models. The graph, its inputs, and its result
    in float64."""
    rng = np.random.default_rng(4)
    b = MLGraphBuilder(context)
    x = b.input("x", {"data_type": "float32", "shape": [2, 20, 52]})
    one = np.full((1, 1, 1), 0.03125, np.float32), np.full((1, 1, 1), 131, np.uint8)
    scale, zero = map(b.constant, one)
    a = b.dequantize_linear(b.quantize_linear(x, scale, zero), scale, zero)
    integers = rng.integers(-128, 128, (52, 30)).astype(np.int8)
    scales = rng.uniform(0.001, 0.01, (1, 30)).astype(np.float32)
    zeros = rng.integers(-9, 9, (1, 30)).astype(np.int8)
    weights = b.dequantize_linear(*map(b.constant, (integers, scales, zeros)))
    bias = rng.uniform(-1, 1, 30).astype(np.float32)
    y = b.relu(b.add(b.matmul(a, weights), b.constant(bias)))
    values = rng.uniform(-3, 3, (2, 20, 52)).astype(np.float32)
    rounded = np.clip(np.rint(values / np.float32(0.03125)) + 131, 0, 255) - 131
    wide = (integers.astype(np.float64) - zeros) * scales.astype(np.float64)
    expected = np.maximum(rounded.astype(np.float64) * 0.03125 @ wide + bias, 0)
    return b.build({"y": y}).result(), {"x": values}, expected


def test_a_network(vulkan: None) -> None:
    """The test device, simulating a GPU with the instruction in hardware."""
    features = device_profile().features
    if "integer_dot_product" not in features:
        pytest.skip("the device has no integer dot products")
    limits = {"device_type": "discrete", "features": features | ACCELERATED}
    with open_context(limits=limits) as context:
        graph, feeds, expected = network(context)
        names = [o for step in graph.report().steps for o in step.operators]
        assert names.count("integer_matmul") == 1 and "matmul" not in names
        result = context.compute(graph, feeds)["y"]
        assert_allclose(result, expected, rtol=1e-6, atol=1e-6)
