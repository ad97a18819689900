"""Relations of products, convolutions and pooling."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tests.conformance.differential.drafting import Draft
from tests.conformance.differential.example import Example
from tests.conformance.differential.relations.record import relation

_LENGTHS = (1, 2, 3, 4, 5, 8, 16, 17, 33, 64, 100)


@relation("matmul")
def _(d: Draft) -> Example:
    m, k, n = (d.choose(_LENGTHS) for _ in range(3))
    batch = tuple(d.choose((1, 2, 3)) for _ in range(d.integer(0, 6)))
    if math.prod(batch) > 27:
        m, k, n = (min(x, 5) for x in (m, k, n))
    a, b = (*d.broadcast(batch), m, k), (*d.broadcast(batch), k, n)
    return d.example({"a": a, "b": b}, {})


@relation("gemm")
def _(d: Draft) -> Example:
    m, k, n = (d.choose(_LENGTHS) for _ in range(3))
    given = d.arguments(2)
    a = (k, m) if given.get("a_transpose") else (m, k)
    b = (n, k) if given.get("b_transpose") else (k, n)
    return d.example({"a": a, "b": b, "c": d.broadcast((m, n)) if d.present() else None}, given)


@relation("quantized_matmul")
def _(d: Draft) -> Example:
    m, k, n = (d.choose(_LENGTHS) for _ in range(3))
    given = {"zero_point": float(d.integer(-128, 255)), "b_transpose": d.flag()}
    batch = tuple(d.choose((1, 2, 3)) for _ in range(d.integer(0, 3)))
    b = (n, k) if given["b_transpose"] else (k, n)
    return d.example({"a": (*batch, m, k), "b": b}, given)


@relation("block_matmul")
def _(d: Draft) -> Example:
    m, k, n = (d.choose(_LENGTHS) for _ in range(3))
    batch = tuple(d.choose((1, 2, 3)) for _ in range(d.integer(0, 3)))
    bits, block = d.choose((4, 8)), d.choose((8, 16, 32))
    blocks = -(-k // block)
    scale = n, blocks
    return d.example(
        {"a": (*batch, m, k), "b": (n, blocks * block * bits // 32), "scale": scale,
         "offset": scale if d.present() else None},
        {"bits": bits, "zero_point": float(d.integer(0, (1 << bits) - 1))},
    )


@relation("integer_matmul")
def _(d: Draft) -> Example:
    m, k, n = (d.choose(_LENGTHS) for _ in range(3))
    batch = tuple(d.choose((1, 2, 3)) for _ in range(d.integer(0, 3)))
    wide = -(-k // 16) * 16
    zero_points = (n,) if d.present() else None
    made = d.example(
        {"a": (*batch, m, k), "b": (n, wide), "sums": (n,), "zero_points": zero_points},
        {"a_zero_point": float(d.integer(-128, 255))},
    )
    # Zero points have b's type, and the sums follow from the others.
    operands = dict(made.operands)
    weights = operands["b"][:, :k].astype(np.int64)
    if zero_points:
        operands["zero_points"] = np.clip(operands["zero_points"], -128, 127)
        weights -= operands["zero_points"][:, None]
    operands["sums"] = weights.sum(axis=1).astype(np.int32)
    return replace(made, operands=operands)


@relation("attention")
def _(d: Draft) -> Example:
    rows, keys, depth = (d.choose(_LENGTHS) for _ in range(3))
    width = d.choose((1, 4, 7, 16, 32))  # wider ones need other pipelines
    batch = tuple(d.choose((1, 2, 3)) for _ in range(d.integer(0, 3)))
    # With small bindings, softmax binds all portions of the scores at once.
    rows = min(rows, max(1, 7000 // (math.prod(batch) * keys)))
    given = d.arguments(2)
    if given.get("causal"):
        rows = min(rows, keys)
    scores = (*batch, rows, keys)
    length = d.integer(1, keys + 1) if d.present() else None
    made = d.example(
        {
            # Without the other dimensions, the query has the dimensions of the scores.
            "query": (*batch, rows, depth),
            "key": (*d.broadcast(batch), keys, depth),
            "value": (*d.broadcast(batch), keys, width),
            "mask": d.broadcast(scores) if d.present() else None,
            "seen": d.broadcast(scores) if d.present() else None,
            "length": None if length is None else (1,),
        },
        given,
    )
    if length is None:
        return made
    return replace(made, operands={**made.operands, "length": np.array([length], np.uint32)})


# -- convolution and pooling
def _arranged(layout: str, **sizes: int) -> tuple[int, ...]:
    return tuple(sizes[letter] for letter in layout)


def _pair(d: Draft, most: int) -> list[int]:
    return [d.integer(1, most), d.integer(1, most)]


@relation("conv2d", "quantized_conv2d")
def _(d: Draft) -> Example:
    given: dict[str, Any] = {}
    # Ordinary, depthwise and grouped; 1 × 1 has its own kernel.
    groups = d.choose((1, 1, 2, 3))
    per_group = 1 if d.flag() else d.choose((1, 2, 3, 5, 8))
    outputs = groups * d.choose((1, 2, 4, 5))
    taps = [1, 1] if d.flag() else _pair(d, 4)
    strides = _pair(d, 3) if d.flag() else [1, 1]
    dilations = _pair(d, 3) if d.flag() else [1, 1]
    padding = [d.integer(0, 3) for _ in range(4)] if d.flag() else [0] * 4
    sizes = []
    for i in range(2):
        reach = (taps[i] - 1) * dilations[i] + 1
        least = max(1, reach - padding[2 * i] - padding[2 * i + 1])
        sizes.append(least + d.choose((0, 1, 2, 3, 5, 8, 13)))
    for name, value, default in (
        ("strides", strides, [1, 1]), ("dilations", dilations, [1, 1]),
        ("padding", padding, [0] * 4), ("groups", groups, 1),
    ):
        if value != default or d.flag():
            given[name] = value
    given["input_layout"] = d.choose(("nchw", "nhwc"))
    given["filter_layout"] = d.choose(("oihw", "hwio", "ohwi", "ihwo"))
    shapes: dict[str, Any] = {
        "input": _arranged(
            given["input_layout"], n=d.integer(1, 2), c=per_group * groups, h=sizes[0], w=sizes[1]
        ),
        "filter": _arranged(given["filter_layout"], o=outputs, i=per_group, h=taps[0], w=taps[1]),
    }
    if d.record.name == "quantized_conv2d":
        given["zero_point"] = float(d.integer(-128, 255))
    else:
        shapes["bias"] = (outputs,) if d.present() else None
    return d.example(shapes, given)


@relation("conv_transpose2d")
def _(d: Draft) -> Example:
    groups = d.choose((1, 1, 2, 3))
    inputs = groups * d.choose((1, 2, 3))
    per_group = d.choose((1, 2, 3, 5))
    taps, strides = _pair(d, 4), _pair(d, 3)
    dilations = _pair(d, 3) if d.flag() else [1, 1]
    sizes = [d.choose((1, 2, 3, 5, 8)) for _ in range(2)]
    padding, smallest = [], []
    for i in range(2):
        full = (sizes[i] - 1) * strides[i] + (taps[i] - 1) * dilations[i] + 1
        begin = d.integer(0, min(2, full - 1))
        end = d.integer(0, min(2, full - 1 - begin))
        padding += [begin, end]
        smallest.append(full - begin - end)
    given: dict[str, Any] = {"strides": strides, "padding": padding, "groups": groups}
    if dilations != [1, 1]:
        given["dilations"] = dilations
    extra = [d.integer(0, s - 1) for s in strides]
    match d.choose(("plain", "output_padding", "output_sizes")):
        case "output_padding":
            given["output_padding"] = extra
        case "output_sizes":
            given["output_sizes"] = [s + e for s, e in zip(smallest, extra, strict=True)]
    given["input_layout"] = d.choose(("nchw", "nhwc"))
    given["filter_layout"] = d.choose(("iohw", "hwoi", "ohwi"))
    shapes: dict[str, Any] = {
        "input": _arranged(
            given["input_layout"], n=d.integer(1, 2), c=inputs, h=sizes[0], w=sizes[1]
        ),
        "filter": _arranged(given["filter_layout"], i=inputs, o=per_group, h=taps[0], w=taps[1]),
        "bias": (per_group * groups,) if d.present() else None,
    }
    return d.example(shapes, given)


@relation("average_pool2d", "l2_pool2d", "max_pool2d")
def _(d: Draft) -> Example:
    given: dict[str, Any] = {"layout": d.choose(("nchw", "nhwc"))}
    sizes = [d.choose((1, 2, 3, 4, 7, 12)) for _ in range(2)]
    window = list(sizes)
    dilations, padding, strides = [1, 1], [0] * 4, [1, 1]
    if d.flag():
        padding = given["padding"] = [d.integer(0, 2) for _ in range(4)]
    if d.flag():
        strides = given["strides"] = _pair(d, 3)
    if d.flag():
        window, dilations = [], []
        for i in range(2):
            room = sizes[i] + padding[2 * i] + padding[2 * i + 1]
            window.append(d.integer(1, min(room, 5)))
            dilations.append(d.integer(1, max(1, min(3, (room - 1) // max(1, window[i] - 1)))))
        given |= {"window_dimensions": window, "dilations": dilations}
    rounding = d.choose(("floor", "ceil"))
    match d.choose(("absent", "rounding", "sizes")):
        case "rounding":
            given["output_shape_rounding"] = rounding
        case "sizes":
            rooms = [
                sizes[i] + padding[2 * i] + padding[2 * i + 1] - (window[i] - 1) * dilations[i] - 1
                for i in range(2)
            ]
            up = rounding == "ceil"
            given["output_sizes"] = [
                (-(-room // s) if up else room // s) + 1
                for room, s in zip(rooms, strides, strict=True)
            ]
    shape = _arranged(
        given["layout"], n=d.integer(1, 2), c=d.choose((1, 2, 3, 4, 5, 8)), h=sizes[0], w=sizes[1]
    )
    return d.example({"input": shape}, given)


@relation("resample2d")
def _(d: Draft) -> Example:
    shape = d.shape(4, 4)
    axes = d.choose([(i, j) for i in range(4) for j in range(4) if i != j])
    given: dict[str, Any] = {}
    if axes != (2, 3) or d.flag():
        given["axes"] = axes
    if d.flag():
        given["mode"] = d.choose(("nearest-neighbor", "linear"))
    match d.choose(("sizes", "scales", "absent")):
        case "sizes":
            given["sizes"] = [d.integer(1, 12) for _ in axes]
        case "scales":
            given["scales"] = [
                max(s, 1 / shape[a]) for a, s in
                zip(axes, (d.choose((0.5, 1.0, 1.5, 2.0, 2.7)) for _ in axes), strict=True)
            ]
    return d.example({"input": shape}, given)
