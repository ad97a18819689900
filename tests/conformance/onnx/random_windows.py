"""Random nodes with windows (convolutions, pooling), sampling and quantisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.onnx.drawing import Draw, node
from tests.support.onnx_nodes import Node


def window(d: Draw, rank: int) -> tuple[list[int], list[int], dict[str, Any]]:
    """Kernel, spatial sizes and attributes. No dilation with automatic padding, and no strides
    longer than the kernel."""
    kernel = [d.up_to(3) for _ in range(rank)]
    strides, dilations = ([d.up_to(n) for _ in kernel] for n in (3, 2))
    attributes = d.some(strides=strides, dilations=dilations)
    if d.chance(0.3):
        attributes["auto_pad"] = d.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
        attributes.pop("dilations", None)
        if "strides" in attributes:
            attributes["strides"] = [min(a, b) for a, b in zip(strides, kernel, strict=True)]
    elif d.coin():
        attributes["pads"] = [d.between(0, k - 1) for k in kernel * 2]
    dilated = attributes.get("dilations", [1] * rank)
    sizes = [d.between((k - 1) * n + 1, 9) for k, n in zip(kernel, dilated, strict=True)]
    return kernel, sizes, attributes


def convolution(d: Draw) -> Node:
    kernel, sizes, attributes = window(d, d.choice([1, 2, 2, 3]))
    groups = d.choice([1, 1, 2])
    inputs, outputs = groups * d.up_to(3), groups * d.up_to(3)
    bias = [d.floats([outputs])] if d.coin() else []
    return node("Conv", [
        d.floats([d.up_to(2), inputs, *sizes]), d.floats([outputs, inputs // groups, *kernel]),
        *bias,
    ], attributes | {"group": groups} | d.some(kernel_shape=kernel))


def transposed(d: Draw) -> Node:
    kernel, sizes, attributes = window(d, d.choice([1, 2]))
    groups = d.choice([1, 1, 2])
    inputs, outputs = groups * d.up_to(3), groups * d.up_to(3)
    if "auto_pad" not in attributes:
        attributes |= d.some(output_padding=[
            d.between(0, s - 1) for s in attributes.get("strides", [1] * len(kernel))
        ])
    # Larger than what padding cuts off.
    sizes = [max(n, 3) for n in sizes]
    return node("ConvTranspose", [
        d.floats([d.up_to(2), inputs, *sizes]), d.floats([inputs, outputs // groups, *kernel]),
    ], attributes | {"group": groups} | d.some(kernel_shape=kernel))


def pooling(d: Draw) -> Node:
    kernel, sizes, attributes = window(d, d.choice([1, 2, 2, 3]))
    operator = d.choice(["MaxPool", "AveragePool", "LpPool"])
    attributes |= {"kernel_shape": kernel} | d.some(ceil_mode=1)
    if operator == "AveragePool":
        attributes |= d.some(count_include_pad=1)
    if operator == "LpPool":
        attributes |= d.some(p=d.up_to(3))
    indices = operator == "MaxPool" and "ceil_mode" not in attributes and d.coin()
    return node(operator, [d.floats([d.up_to(2), d.up_to(4), *sizes])], attributes,
                2 if indices else 1, opset=19)


def sampling(d: Draw) -> Node:
    if d.coin():
        attributes = {
            "mode": d.choice(["linear", "nearest", "cubic"]),
            "padding_mode": d.choice(["zeros", "border", "reflection"]),
            "align_corners": d.between(0, 1),
        }
        return node("GridSample", [d.floats([2, 2, *d.shape(2, 2)]), d.floats([2, 3, 4, 2])],
                    attributes, opset=20)
    corners = 3 * np.abs(d.floats([3, 4]))
    corners[:, 2:] += corners[:, :2]
    attributes = {"output_height": d.up_to(3), "output_width": d.up_to(3),
                  "spatial_scale": d.choice([1.0, 0.5]), "mode": d.choice(["avg", "max"])}
    attributes |= d.some(coordinate_transformation_mode="output_half_pixel")
    if attributes["mode"] == "avg":
        attributes |= d.some(sampling_ratio=d.up_to(3))
    else:
        attributes["sampling_ratio"] = 1
    return node("RoiAlign", [d.floats([2, 2, 6, 7]), corners, d.integers(0, 2, [3])], attributes,
                opset=16)


def quantised(d: Draw) -> Node:
    kind = d.choice(["uint8", "int8"])
    low, high = (0, 256) if kind == "uint8" else (-128, 128)
    point = d.integers(low, high, [], kind)
    scale, steps, scaled = np.float32(0.1), np.float32(0.2), np.float32(0.7)
    shape = d.shape(1, 4)
    axis = d.axis(shape)
    of_axis = d.coin()
    count = [shape[axis]] if of_axis else []
    scales = np.exp2(d.integers(-3, 2, count)).astype(np.float32)
    points, where = d.integers(low, high, count, kind), {"axis": axis} if of_axis else {}
    m, k, n = d.up_to(5), d.up_to(9), d.up_to(5)
    # Seven bits: with eight, ONNX Runtime's sums of two products saturate on some processors.
    right, filters = d.integers(-64, 64, [k, n], "int8"), d.integers(-64, 64, [3, 2, 2, 3], "int8")
    zero = np.zeros((), np.int8)
    left = d.integers(low, high, [m, k], kind)
    image = d.integers(low, high, [1, 2, 5, 5], kind)
    padding = {"pads": [1, 0, 1, 1], "strides": d.choice([[1, 1], [1, 2]])}
    return d.choice([
        node("QuantizeLinear", [20 * d.floats(shape), scales, points], where, opset=19, bound=1),
        node("DequantizeLinear", [d.integers(low, high, shape, kind), scales, points], where,
             opset=19),
        node("DynamicQuantizeLinear", [d.choice([1, 100, 1e-3]) * d.floats(shape)], outputs=3,
             bound=1),
        node("MatMulInteger", [left, right, point, zero]),
        node("QLinearMatMul", [left, scale, point, right, steps, zero, scaled, point], bound=1),
        node("ConvInteger", [image.astype(np.uint8), filters.astype(np.uint8) % 128,
                             np.array(7, np.uint8), np.array(3, np.uint8)], padding),
        node("QLinearConv", [image, scale, point, filters, steps, zero, scaled, point], padding,
             bound=1),
    ])


KINDS = (convolution, transposed, pooling, sampling, quantised)
