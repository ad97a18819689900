"""Relations of element-wise operators and normalisations."""

from __future__ import annotations

import math
from typing import Any

from tests.conformance.differential.drafting import Draft
from tests.conformance.differential.example import Example
from tests.conformance.differential.relations.record import relation


@relation("clamp")
def _(d: Draft) -> Example:
    bounds = sorted([d.number(), d.number()])
    if d.flag():
        bounds = [math.floor(bounds[0]), math.ceil(bounds[1])]
    given: dict[str, Any] = {}
    for name, value in zip(("min_value", "max_value"), bounds, strict=True):
        kind = d.choose(("value", "absent", "nan", "infinite"))
        if kind == "value":
            given[name] = value
        elif kind == "nan":
            given[name] = math.nan
        elif kind == "infinite":
            given[name] = -math.inf if name == "min_value" else math.inf
    return d.example({"input": d.shape_of("input")}, given)


@relation("quantize_linear", "dequantize_linear")
def _(d: Draft) -> Example:
    shape = d.shape()
    blocks = tuple(d.choose([n for n in range(1, s + 1) if s % n == 0]) for s in shape)
    return d.example({"input": shape, "scale": blocks, "zero_point": blocks}, {})


@relation("decode")
def _(d: Draft) -> Example:
    # Of bfloat16 no array has the carrier's type: tests/device/api/test_low_precision.py.
    d.types["input"] = "uint8"
    data_type = d.choose(["float8e4m3", "float8e5m2"])
    return d.example({"input": d.shape_of("input")}, {"data_type": data_type})


# -- normalisation
@relation("batch_normalization")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    axis = d.integer(0, len(shape) - 1)
    channels = (shape[axis],)
    shapes = {"input": shape, "mean": channels, "variance": channels}
    shapes |= {name: channels if d.present() else None for name in ("scale", "bias")}
    given = {} if axis == 1 and d.flag() else {"axis": axis}
    return d.example(shapes, given | {"epsilon": _epsilon(d)})


def _epsilon(d: Draft) -> float:
    return d.choose((1e-5, 1e-3, 0.25))


@relation("instance_normalization")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    layout = d.choose(("nchw", "nhwc"))
    channels = (shape[1 if layout == "nchw" else 3],)
    shapes = {"input": shape}
    shapes |= {name: channels if d.present() else None for name in ("scale", "bias")}
    return d.example(shapes, {"layout": layout, "epsilon": _epsilon(d)})


@relation("layer_normalization")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    axes = d.axes(len(shape))
    given = {"axes": axes} if d.flag() else {}
    spread = tuple(shape[a] for a in axes) if given else shape[1:]
    shapes = {"input": shape}
    shapes |= {name: spread if d.present() else None for name in ("scale", "bias")}
    return d.example(shapes, given | {"epsilon": _epsilon(d)})


@relation("rms_normalization")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    axes = d.axes(len(shape))
    return d.example({"input": shape}, {"axes": axes, "epsilon": _epsilon(d)})
