"""Element-wise operators fused into matrix products and convolutions, compared with the CPU device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import webnn_vk as webnn
from tests.support.discriminating import assert_allclose


def _array(*shape: int) -> np.ndarray:
    """The same for each shape."""
    return np.random.default_rng(shape).uniform(-2, 2, shape).astype(np.float32)


A, B, C, ODD, COLUMN = _array(3, 12, 20), _array(20, 24), _array(24), _array(20, 9), _array(20, 1)
X, RESIDUAL = _array(2, 2, 8, 12, 16)
POINT, TAPS, DEPTH = _array(8, 8, 1, 1), _array(8, 8, 3, 3), _array(8, 1, 3, 3)
LAST, ROWS, BETWEEN = _array(4, 3, 3, 16), _array(12, 1), _array(3, 1, 24)
MANY, MANY_SIDES = _array(2, 2, 16, 9, 10)
MANY_TAPS = _array(16, 16, 3, 3) / 8
DEEP = {"padding": [1, 1, 1, 1], "groups": 8}

# Every template, with each kind of output: one type or another, 4 elements a store or one.
CASES: dict[str, Callable[[Any, Callable], Any]] = {
    "product": lambda b, c: b.relu(b.add(b.matmul(b.input_(A), c(B)), c(C))),
    "product of rows": lambda b, c: b.tanh(b.mul(b.matmul(b.input_(A), c(ODD)), c(ROWS))),
    "every other dimension": lambda b, c: b.sub(b.matmul(b.input_(A), c(B)), c(BETWEEN)),
    "vector": lambda b, c: b.clamp(b.matmul(b.input_(A), c(COLUMN)), min_value=-1, max_value=1),
    "gemm": lambda b, c: b.gelu(b.gemm(b.input_(A[0]), c(B), c=c(C), alpha=0.5)),
    "gemm as int64": lambda b, c: b.cast(b.gemm(b.input_(A[0]), c(B), alpha=8.0), "int64"),
    "gemm as uint8": lambda b, c: b.cast(b.abs(b.gemm(b.input_(A[0]), c(B))), "uint8"),
    "compared": lambda b, c: b.greater(b.matmul(b.input_(A), c(B)), c(C)),
    "residual of 1x1": lambda b, c: b.add(
        b.conv2d(b.input_(X), c(POINT), bias=c(C[:8])), c(RESIDUAL)
    ),
    "3x3": lambda b, c: b.clamp(b.conv2d(b.input_(X), c(TAPS)), min_value=0, max_value=6),
    "3x3 residual": lambda b, c: b.relu(
        b.add(b.conv2d(b.input_(X), c(TAPS), padding=[1, 1, 1, 1], bias=c(C[:8])), c(RESIDUAL))
    ),
    "3x3, every other dimension": lambda b, c: b.sub(
        b.conv2d(b.input_(X), c(TAPS), padding=[1, 1, 1, 1]), c(RESIDUAL[:, :1, :, :1])
    ),
    "3x3 of many channels": lambda b, c: b.relu(
        b.add(
            b.conv2d(b.input_(MANY), c(MANY_TAPS), padding=[1, 1, 1, 1], bias=c(C[:16])),
            c(MANY_SIDES),
        )
    ),
    "channels last": lambda b, c: b.add(
        b.conv2d(b.input_(X), c(LAST), input_layout="nhwc", filter_layout="ohwi"), c(C[:4])
    ),
    "depthwise": lambda b, c: b.add(b.conv2d(b.input_(X), c(DEPTH), **DEEP), c(RESIDUAL)),
    "depthwise as int64": lambda b, c: b.cast(b.conv2d(b.input_(X), c(DEPTH), **DEEP), "int64"),
    "depthwise strided": lambda b, c: b.relu(
        b.conv2d(b.input_(X), c(DEPTH), strides=[2, 3], bias=c(C[:8]), **DEEP)
    ),
    "transposed": lambda b, c: b.relu(b.conv_transpose2d(b.input_(X), c(TAPS), strides=[2, 2])),
}


@pytest.mark.sample(0.5)
@pytest.mark.parametrize(("case", "data_type"), [
    *((case, "float32") for case in CASES), *((case, "float16") for case in [*CASES][::2])
])
def test_fused(case: str, data_type: str, vulkan_context: Any, cpu_context: Any) -> None:
    results = []
    for context in (vulkan_context, cpu_context):
        builder = webnn.MLGraphBuilder(context)
        feeds = {}

        def given(array: np.ndarray, builder: Any = builder, feeds: dict = feeds) -> Any:
            feeds["x"] = array.astype(data_type)
            return builder.input("x", {"data_type": data_type, "shape": array.shape})

        builder.input_ = given
        output = CASES[case](builder, lambda a, b=builder: b.constant(a.astype(data_type)))
        graph = builder.build({"y": output}).result()
        results.append(context.compute(graph, feeds)["y"])
        if context is vulkan_context:
            (step,) = graph.report().steps
            assert step.device == "vulkan" and len(step.operators) > 1
    own, expected = results
    assert own.dtype == expected.dtype and own.shape == expected.shape
    if own.dtype.kind != "f":
        # Where the sum is rounded to the other side of an integer, by one.
        assert np.abs(own.astype(np.int64) - expected.astype(np.int64)).max() <= 1
        assert (own != expected).mean() < 0.02
        return
    error = 6e-3 if data_type == "float16" else 2e-5
    assert_allclose(own, expected, rtol=error, atol=error)
