"""Products with 8-bit weights on the device equal products with the dequantised weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.comparing import assert_close, profile_for
from tests.support.contexts import open_context
from tests.support.drivers import require_vulkan
from tests.support.running import node_of
from webnn_vk import MLGraphBuilder


def network(
    context: Any, rows: int, kind: str
) -> tuple[Any, dict[str, np.ndarray], np.ndarray]:
    """Two layers as quantisers write them: symmetric by column, and asymmetric. The graph, what it
    is fed, and what it is to give, in float64."""
    rng = np.random.default_rng(rows)
    b = MLGraphBuilder(context)

    def constant(array: np.ndarray) -> Any:
        return b.constant({"data_type": array.dtype.name, "shape": array.shape}, array)

    x = b.input("x", {"data_type": kind, "shape": [rows, 96]})
    signed = rng.integers(-127, 128, (96, 72)).astype(np.int8)
    scales = rng.uniform(0.001, 0.01, (1, 72)).astype(kind)
    first = b.dequantize_linear(
        constant(signed), constant(scales), constant(np.zeros((1, 72), np.int8))
    )
    unsigned = rng.integers(0, 256, (84, 72)).astype(np.uint8)
    second = b.dequantize_linear(
        constant(unsigned), constant(np.full((1, 1), 0.005, kind)),
        constant(np.full((1, 1), 119, np.uint8)),
    )
    offsets = rng.uniform(-1, 1, 84).astype(kind)
    hidden = b.relu(b.matmul(x, first))
    y = b.gemm(hidden, second, c=constant(offsets), b_transpose=True)
    feeds = {"x": rng.uniform(-1, 1, (rows, 96)).astype(kind)}
    wide = np.float64
    between = np.maximum(feeds["x"].astype(wide) @ (signed * scales.astype(wide)), 0)
    step = float(np.dtype(kind).type(0.005))
    expected = between @ ((unsigned.astype(wide) - 119) * step).T + offsets
    return b.build({"y": b.neg(y)}).result(), feeds, -expected


def test_as_dequantised() -> None:
    """lavapipe, taken to be a GPU, for which the pass is."""
    limits = {"device_type": "discrete"}
    with (
        open_context(limits=limits) as one,
        open_context(limits=limits, skip_passes=["fuse_dequantize", "fold"]) as other,
        open_context(skip_passes=["fuse_dequantize"]) as software,
    ):
        for kind, rows in (("float32", 1), ("float32", 37), ("float16", 5)):
            errors = []
            for context in (one, other, software):
                graph, feeds, expected = network(context, rows, kind)
                result = context.compute(graph, feeds)["y"].astype(np.float64)
                errors.append(np.abs(result - expected).max())
                names = [o for step in graph.report().steps for o in step.operators]
                assert names.count("quantized_matmul") == 2 * (context is one)
            assert errors[0] <= 1.5 * min(errors[1:]) <= 1e-3 * np.abs(expected).max()


@pytest.mark.parametrize(("layout", "filter_layout", "taps", "groups", "data_type", "zero"), [
    ("nhwc", "ohwi", 3, 1, "int8", 0.0),
    ("nchw", "oihw", 1, 1, "uint8", 119.0),
    ("nhwc", "ihwo", 3, 32, "int8", -5.0),
], ids=["tiles", "product", "depthwise"])
def test_convolutions(
    layout: str, filter_layout: str, taps: int, groups: int, data_type: str, zero: float
) -> None:
    require_vulkan()
    rng = np.random.default_rng(taps + groups)
    sizes = {"n": 1, "c": 32, "h": 9, "w": 8}
    x = rng.uniform(-1, 1, [sizes[a] for a in layout]).astype(np.float32)
    own = {"o": 64, "i": 32 // groups, "h": taps, "w": taps}
    shape = [own[a] for a in filter_layout]
    low = -128 if data_type == "int8" else 0
    filter = rng.integers(low, low + 256, shape).astype(data_type)
    node, arrays = node_of(
        "quantized_conv2d", x, filter, zero_point=zero, groups=groups, padding=[taps // 2] * 4,
        input_layout=layout, filter_layout=filter_layout,
    )
    # Sums of up to 288 terms of up to 128.
    assert_close(node, arrays, profile_for("discrete"), 2e-3)
