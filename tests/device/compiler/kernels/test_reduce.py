"""Reduction kernels compared with the NumPy reference, on plans of several kinds of devices."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.comparing import (
    EACH_WAY,
    GPU_WAYS,
    WAYS,
    assert_close,
    profile_for,
    random_array,
    random_shape,
)
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.running import node_of, plan, run
from webnn_vk.compiler.ops import OPERATORS

REDUCTIONS = sorted(n for n, op in OPERATORS.items() if n.startswith("reduce_"))


def _case(rng: np.random.Generator, name: str, data_type: str, shape: tuple[int, ...]) -> tuple:
    # Products near 1; sums whose logarithm exists.
    x = random_array(rng, data_type, shape)
    if np.dtype(data_type).kind == "f":
        if name == "reduce_product":
            x = np.asarray(1 + x / 64, data_type)
        if name == "reduce_log_sum":
            x = np.asarray(np.abs(x) + 0.5, data_type)
    chosen = [int(a) for a in rng.permutation(len(shape))[: rng.integers(len(shape) + 1)]]
    reduced = None if rng.random() < 0.2 else chosen
    return node_of(name, x, axes=reduced, keep_dimensions=bool(rng.integers(2)))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_random(name: str) -> None:
    require_vulkan()
    rng = np.random.default_rng(REDUCTIONS.index(name))
    for turn, data_type in enumerate(OPERATORS[name].limit("input").types):
        shape = (random_shape(rng), (3, 70, 5), (2, 300))[turn % 3]
        node, arrays = _case(rng, name, data_type, shape)
        for way in GPU_WAYS:
            assert_close(node, arrays, profile_for(way), 4e-6)


@EACH_WAY
@pytest.mark.parametrize("name", [*REDUCTIONS, "arg_min", "arg_max"])
def test_rows_of_vectors(name: str, data_type: str, way: str) -> None:
    """Rows that are loaded four elements at once, whole and in chunks whose ends are less than a
    vector apart."""
    require_vulkan()
    profile = profile_for(way, 1 << 15)
    rng = np.random.default_rng([WAYS.index(way), 3])
    for shape in ((9, 4), (5, 132), (2, 40004)):
        x = random_array(rng, data_type, shape)
        if name == "reduce_product":
            # Exact in any order.
            x = np.exp2(rng.choice((-1, 0, 1), shape, p=(0.01, 0.98, 0.01))).astype(data_type)
        if name == "reduce_log_sum":
            x = np.asarray(np.abs(x) + 0.5, data_type)
        if name.startswith("arg"):
            assert_close(*node_of(name, x, 1), profile)
        elif data_type == "float32" or shape[1] < 1000:
            # Sums of 40,004 elements overflow float16.
            exact = name in ("reduce_product", "reduce_max", "reduce_min")
            assert_close(*node_of(name, x, axes=[1]), profile, 0 if exact else 4e-6)


@pytest.mark.parametrize("name", ["arg_min", "arg_max"])
def test_random_positions(name: str) -> None:
    require_vulkan()
    rng = np.random.default_rng(2)
    for turn, data_type in enumerate(OPERATORS[name].limit("input").types):
        shape = (random_shape(rng, 1), (3, 70, 5), (2, 300))[turn % 3]
        # Few different values: ties, of which the first one counts.
        x = (random_array(rng, data_type, shape, 8) // 3).astype(data_type)
        node, arrays = node_of(
            name, x, int(rng.integers(len(shape))), keep_dimensions=bool(rng.integers(2)),
            output_data_type=str(rng.choice(["int32", "int64"])),
        )
        for way in GPU_WAYS:
            assert_close(node, arrays, profile_for(way))


@pytest.mark.parametrize(
    ("name", "data_type"),
    [
        (name, data_type)
        for name in REDUCTIONS
        for data_type in ("float32", "float16", "int32", "int64")
        if data_type in OPERATORS[name].limit("input").types
    ],
)
def test_long_rows_in_chunks(name: str, data_type: str) -> None:
    require_vulkan()
    rng = np.random.default_rng(3)
    profile = profile_for("discrete")
    x = random_array(rng, data_type, (2, 40011))
    if data_type.startswith("float"):
        x = np.abs(x) if name != "reduce_product" else 1 + x / 4096
        # Rows of one kind have nearly the same sums; these don't.
        x *= np.array([[1], [1 if name == "reduce_product" else 0.5]], data_type)
        x = (x / (16 if data_type == "float16" else 1)).astype(data_type)
    node, arrays = node_of(name, x, axes=[1])
    assert [d.variant.split()[0] for d in plan(node, profile)][1:], "two dispatches"
    # 40,000 roundings of a product do not cancel out.
    error = {"reduce_product": 2e-4, "reduce_max": 0, "reduce_min": 0}.get(name, 2e-5)
    assert_close(node, arrays, profile, error)


def test_special_values() -> None:
    require_vulkan()
    nan, inf = np.float32("nan"), np.float32("inf")
    rows = np.array(
        [[1, nan, 3], [-inf, -inf, -inf], [inf, 1, -1], [-0.0, 0.0, -0.0], [1e-40, -1e-40, 0]],
        np.float32,
    )
    expected = {
        "reduce_max": [nan, -inf, inf, 0, 1e-40],
        "reduce_min": [nan, -inf, -1, 0, -1e-40],
        "reduce_log_sum_exp": [nan, -inf, inf, np.log(3), np.log(3)],
        "arg_max": [1, 0, 0, 0, 0],
        "arg_min": [1, 0, 2, 0, 1],
    }
    for way in ("software", "discrete"):
        for name, values in expected.items():
            arguments = {"axis": 1} if name.startswith("arg") else {"axes": [1]}
            (own,) = run(*node_of(name, rows, **arguments), profile_for(way))
            wanted = np.array(values).astype(own.dtype)
            assert_allclose(own, wanted, rtol=1e-6, err_msg=f"{name} {way}")
