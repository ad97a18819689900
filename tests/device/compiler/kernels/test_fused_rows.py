"""Element-wise operators fused into reductions, normalisations, pooling and resampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import webnn_vk as webnn
from tests.support.discriminating import assert_allclose

X = np.random.default_rng(0).uniform(-2, 2, (2, 3, 8, 300)).astype(np.float32)
SIDE = np.random.default_rng(1).uniform(-2, 2, 300).astype(np.float32)
ROWS = SIDE[:8].reshape(8, 1)
WINDOW = {"window_dimensions": [3, 3]}
KEEP = {"keep_dimensions": True}

CASES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sum": lambda b, x, s: b.relu(b.mul(b.reduce_sum(x, axes=[0, 1]), s)),
    "mean": lambda b, x, s: b.add(b.reduce_mean(x, axes=[3], **KEEP), b.constant(ROWS)),
    "max": lambda b, x, s: b.tanh(b.reduce_max(x)),
    "argument": lambda b, x, s: b.cast(b.arg_max(x, 3), "float32"),
    "argument64": lambda b, x, s: b.cast(b.arg_min(x, 3, output_data_type="int64"), "float16"),
    "softmax": lambda b, x, s: b.mul(b.softmax(x, 3), s),
    "softmax of columns": lambda b, x, s: b.mul(b.softmax(x, 2), s),
    "layer": lambda b, x, s: b.gelu(b.add(b.layer_normalization(x, axes=[3]), s)),
    "instance": lambda b, x, s: b.relu(b.instance_normalization(x, bias=b.constant(SIDE[:3]))),
    "batch": lambda b, x, s: b.relu(b.batch_normalization(x, s, b.constant(SIDE**2), axis=3)),
    "average": lambda b, x, s: b.clamp(b.average_pool2d(x, **WINDOW), max_value=0.1),
    "maximum": lambda b, x, s: b.sub(b.max_pool2d(x, window_dimensions=[1, 1]), s),
    "everything": lambda b, x, s: b.neg(b.l2_pool2d(x)),
    "resampled": lambda b, x, s: b.abs(b.resample2d(x, scales=[2, 0.5], mode="linear")),
}


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("data_type", ["float32", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_fused(case: str, data_type: str, vulkan_context: Any, cpu_context: Any) -> None:
    results = []
    for context in (vulkan_context, cpu_context):
        builder = webnn.MLGraphBuilder(context)
        x = builder.input("x", {"data_type": "float32", "shape": X.shape})
        side = builder.input("side", {"data_type": "float32", "shape": SIDE.shape})
        if data_type == "float16":
            x = builder.input("half", {"data_type": "float16", "shape": X.shape})
            side = builder.constant(SIDE.astype(np.float16))
            constant = builder.constant
            builder.constant = lambda a, to=constant: to(a.astype(np.float16))
        graph = builder.build({"y": CASES[case](builder, x, side)}).result()
        feeds = {"x": X, "side": SIDE, "half": X.astype(np.float16)}
        report = graph.report()
        results.append(context.compute(graph, {n: feeds[n] for n in graph.inputs})["y"])
        if context is vulkan_context:
            (step,) = report.steps
            assert step.device == "vulkan" and len(step.operators) > 1
    own, expected = results
    assert own.dtype == expected.dtype and own.shape == expected.shape
    error = 2e-3 if data_type == "float16" else 1e-5
    size = np.abs(expected.astype(np.float64)).mean()
    assert_allclose(own, expected, rtol=error, atol=error * size)
