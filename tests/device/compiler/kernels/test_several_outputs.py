"""Kernels that also store intermediate results: each equals the operators one by one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.comparing import profile_for
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.graphs import graph_input, graph_of
from tests.support.running import run
from webnn_vk.compiler.ir import Emitter, Value
from webnn_vk.compiler.kernels import KernelNode
from webnn_vk.compiler.kernels.fusion import fuse
from webnn_vk.compiler.kernels.lower import kernelize


def _numbers(value: Value, seed: int) -> np.ndarray:
    """Sums of a few of these products are exact in every order."""
    rng = np.random.default_rng(seed)
    return (rng.integers(-8, 9, value.shape) * 0.25).astype(value.descriptor.numpy_dtype)


def check(emit: Emitter, inputs: tuple[Value, ...], *outputs: Value) -> None:
    """All nodes become one kernel, whose results equal the reference's."""
    require_vulkan()
    graph = graph_of(emit, {f"y{i}": v for i, v in enumerate(outputs)}, *inputs)
    profile = profile_for("discrete")
    (node,) = fuse(kernelize(graph), profile).nodes
    assert isinstance(node, KernelNode) and len(node.writes) == len(outputs)
    arrays = {value: _numbers(value, seed) for seed, value in enumerate(inputs)}
    arrays |= {v: v.data for v in node.reads if v.data is not None}
    expected = node.evaluate(arrays.__getitem__)
    for own, wanted in zip(run(node, arrays, profile), expected, strict=True):
        tolerance = 2e-6 if own.dtype == np.float32 else 2e-3
        assert_allclose(
            own.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("data_type", ["float32", "float16"])
@pytest.mark.parametrize("columns", [6, 7])
def test_chains_that_meet(data_type: str, columns: int) -> None:
    """The cell of an LSTM; its last vector may be half full."""
    emit = Emitter()
    gates = tuple(graph_input(n, (3, columns), data_type) for n in ("i", "f", "g", "o"))
    i, f, g, o = gates
    before = graph_input("before", (3, columns), data_type)
    cell = emit.add(
        emit.mul(emit.sigmoid(f), before), emit.mul(emit.sigmoid(i), emit.tanh(g))
    )
    check(emit, (*gates, before), cell, emit.mul(emit.sigmoid(o), emit.tanh(cell)))


def test_another_data_type_on_the_way() -> None:
    emit = Emitter()
    a, b = graph_input("a", (5, 6)), graph_input("b", (6,))
    total = emit.add(a, b)
    check(emit, (a, b), total, emit.cast(emit.greater(total, b), "int32"))


@pytest.mark.parametrize("columns", [8, 7])
def test_a_product_and_a_residual(columns: int) -> None:
    emit = Emitter()
    a, b = graph_input("a", (5, 12)), graph_input("b", (12, columns))
    residual = graph_input("residual", (5, columns))
    total = emit.add(emit.matmul(a, b), residual)
    check(emit, (a, b, residual), total, emit.relu(total))


def test_convolutions_and_normalizations() -> None:
    emit = Emitter()
    x, w = graph_input("x", (1, 4, 6, 6)), graph_input("w", (8, 4, 3, 3))
    y = emit.conv2d(x, w, padding=[1, 1, 1, 1])
    check(emit, (x, w), y, emit.relu(y))
    emit = Emitter()
    x = graph_input("x", (3, 20))
    y = emit.layer_normalization(x, axes=[1])
    check(emit, (x,), y, emit.neg(y))
