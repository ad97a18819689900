"""Padding, strides, dilations and windows of up to a billion around small inputs, on both devices,
computed without materialising the padded tensor: that would need gigabytes, or take longer than a
test may."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.counting import peak_bytes_of
from tests.support.discriminating import assert_allclose
from webnn_vk import MLContext, MLGraphBuilder

#: Along one axis, and along both: the padded tensor has at most 2³² elements.
FAR, WIDE = 5 * 10**8, 3 * 10**4
X = np.array([[1, 2], [3, 5]], np.float32).reshape(1, 1, 2, 2)
W = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)


def compute(context: MLContext, operator: str, *arrays: np.ndarray, **options: Any) -> np.ndarray:
    builder = MLGraphBuilder(context)
    names = ("x", "filter")[: len(arrays)]
    operands = [
        builder.input(name, {"data_type": array.dtype.name, "shape": array.shape})
        for name, array in zip(names, arrays, strict=True)
    ]
    results = []

    def run() -> None:
        made = builder.build({"y": getattr(builder, operator)(*operands, **options)})
        with made.result() as graph:
            results.append(context.compute(graph, dict(zip(names, arrays, strict=True)))["y"])

    assert peak_bytes_of(run) < 512 << 20  # with staging memory of 64 MiB
    return results[0]


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_conv2d(context: MLContext, layout: str) -> None:
    x = X if layout == "nchw" else X.reshape(1, 2, 2, 1)

    def convolved(weights: np.ndarray, **options: Any) -> list:
        y = compute(context, "conv2d", x, weights, input_layout=layout, **options)
        return y.reshape(y.size // y.shape[3 if layout == "nchw" else 2], -1).tolist()

    # Three places, far apart, in one direction or both: the middle one sees the first element.
    far = {"padding": [FAR, FAR, 0, 0], "strides": [FAR, 1]}
    assert convolved(W[:, :, :1, :1] * 3, **far) == [[0, 0], [3, 6], [0, 0]]
    wide = {"padding": [WIDE] * 4, "strides": [WIDE] * 2}
    assert convolved(W[:, :, :1, :1] * 3, **wide) == [[0, 0, 0], [0, 3, 0], [0, 0, 0]]
    # Each output sees one element of the input in either direction, through the tap in the middle.
    spread = {"padding": [WIDE] * 4, "dilations": [WIDE] * 2}
    assert convolved(W, **spread) == (5 * X[0, 0]).tolist()
    # Padded it would have 3.6·10⁹ elements; the last output starts at the first element.
    assert convolved(W, **wide) == [[0, 0], [0, 1 * 1 + 2 * 2 + 3 * 4 + 5 * 5]]


def test_conv2d_of_several_channels(context: MLContext) -> None:
    x = np.concatenate([X, 10 * X], axis=1)
    w = np.concatenate([W, W[:, :, ::-1]], axis=1)
    far = {"padding": [FAR // 2, FAR // 2, 1, 1], "dilations": [FAR // 2, 1]}
    y = compute(context, "conv2d", x, w, **far)
    own = np.zeros((2, 2), np.float32)
    padded = np.pad(x[0], ((0, 0), (0, 0), (1, 1)))
    for row, column in np.ndindex(2, 2):
        own[row, column] = np.sum(padded[:, row, column : column + 3] * w[0, :, 1])
    assert y[0, 0].tolist() == own.tolist()


def test_conv_transpose2d(context: MLContext) -> None:
    # Outputs far apart; after cropping, the last row, or one element, is left.
    for options, left in (
        ({"strides": [FAR, 1], "padding": [FAR, 0, 0, 0]}, [[9, 15]]),
        ({"strides": [WIDE] * 2, "padding": [WIDE, 0, WIDE, 0]}, [[15]]),
    ):
        y = compute(context, "conv_transpose2d", X, W[:, :, :1, :1] * 3, **options)
        assert y[0, 0].tolist() == left
    # Taps far apart: the middle ones are left.
    options = {"dilations": [WIDE] * 2, "padding": [WIDE] * 4}
    y = compute(context, "conv_transpose2d", X, W, **options)
    assert y[0, 0].tolist() == (5 * X[0, 0]).tolist()


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(
    ("operator", "whole", "rows"),
    [("max_pool2d", 5, [2, 5]), ("average_pool2d", 2.75, [1.5, 4]),
     ("l2_pool2d", 39**0.5, [5**0.5, 34**0.5])],
)
def test_pooling(
    context: MLContext, layout: str, operator: str, whole: float, rows: list[float]
) -> None:
    x = X if layout == "nchw" else X.reshape(1, 2, 2, 1)

    def pooled(**options: Any) -> np.ndarray:
        y = compute(context, operator, x, layout=layout, **options)
        return y.reshape(y.shape[2:] if layout == "nchw" else y.shape[1:3])

    # 9·10⁸ elements in a window, and the same input in each.
    wide = {"window_dimensions": [WIDE] * 2, "padding": [WIDE - 2] * 4, "strides": [WIDE - 2] * 2}
    assert_allclose(pooled(**wide), np.full((2, 2), whole), rtol=1e-6)
    # Through the middle of three taps far apart, whole rows at a time.
    spread = {"window_dimensions": [3, 2], "padding": [FAR, FAR, 0, 0], "dilations": [FAR, 1]}
    assert_allclose(pooled(**spread).ravel(), rows, rtol=1e-6)
    far = {"window_dimensions": [1, 2], "padding": [FAR, FAR, 0, 0], "strides": [FAR, 1]}
    assert_allclose(pooled(**far).ravel(), [0, rows[0], 0], rtol=1e-6)
