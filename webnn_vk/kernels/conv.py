"""Convolutions: conv2d and conv_transpose2d in every layout.

Three ways: a 1×1 convolution with stride 1 is a matrix product; ``conv_depthwise`` where each group
has one input channel; ``conv`` for the rest, transposed convolutions in gather form included. All
accumulate in float32.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param

from ..data_types import DATA_TYPES, FLOAT_TYPES
from ..device_profile import DeviceProfile
from ..graph import Node
from . import epilogue as fused
from . import matmul
from .axes import check_iterations
from .dispatch import Dispatch, strides
from .expression import used_features
from .windows import bound, dispatch

EPILOGUE = True

_SIZES = ("N", "IC", "OC", "G", "H", "W", "OH", "OW")
_PARAMS = {
    "conv": _SIZES + ("KH", "KW", "SH", "SW", "DH", "DW", "PH", "PW"),
    "conv_depthwise": _SIZES + ("PH",),
}
_STRIDES = ("xc", "xw", "yc", "ys", "fg", "fo", "fc", "fw")
_CONSTANTS = {
    "conv": ("TC", "TP", "CHANNEL_LANES"),
    "conv_depthwise": ("TP", "KH", "KW", "SH", "SW", "DH", "DW", "PW"),
}
# Loads and multiplications that the depthwise kernel unrolls at most.
_LOADS, _PRODUCTS = 128, 512


@dataclass(frozen=True)
class Geometry:
    """Sizes and strides (in elements) of a convolution, named as in the templates: IC and OC are
    channels of one group, the filter's strides are fg (a group), fo, fc (channels), fw (a tap)."""

    numbers: dict[str, int]
    transposed: bool
    channels_last: bool

    def __getattr__(self, name: str) -> int:
        try:
            return self.numbers[name]
        except KeyError:
            raise AttributeError(name) from None


def geometry(node: Node) -> Geometry:
    """The geometry of a conv2d or conv_transpose2d."""
    arguments = node.arguments
    layout, filter_layout = arguments["input_layout"], arguments["filter_layout"]
    transposed = node.operator.name == "conv_transpose2d"
    groups = arguments["groups"]
    x = dict(zip(layout, node.operands["input"].shape, strict=True))
    y = dict(zip(layout, node.results[0].shape, strict=True))
    w_shape = node.operands["filter"].shape
    w = dict(zip(filter_layout, w_shape, strict=True))
    step = dict(zip(filter_layout, strides(w_shape), strict=True))
    inputs, outputs = x["c"] // groups, y["c"] // groups
    last = layout == "nhwc"
    numbers = {
        "N": x["n"], "IC": inputs, "OC": outputs, "G": groups,
        "H": x["h"], "W": x["w"], "OH": y["h"], "OW": y["w"], "KH": w["h"], "KW": w["w"],
        "SH": arguments["strides"][0], "SW": arguments["strides"][1],
        "DH": arguments["dilations"][0], "DW": arguments["dilations"][1],
        "PH": arguments["padding"][0], "PW": arguments["padding"][2],
        "xc": 1 if last else x["h"] * x["w"], "xw": x["c"] if last else 1,
        "yc": 1 if last else y["h"] * y["w"], "ys": y["c"] if last else 1,
        # A conv's filter holds all output channels, a transposed one's all input channels.
        "fg": inputs * step["i"] if transposed else outputs * step["o"],
        "fo": step["o"], "fc": step["i"], "fw": step["w"],
    }
    return Geometry(numbers, transposed, last)


def plan(node: Node, profile: DeviceProfile) -> list[Dispatch]:
    """Dispatches of a conv2d or conv_transpose2d."""
    g = geometry(node)
    if _is_product(node, g):
        return _product(node, g, profile)
    # Kernels tell positions before the input by their wrapping around to beyond its end. None
    # wraps into it: the record has seen to it that padded and dilated extents are below 2³¹.
    values = {"x": node.operands["input"], "w": node.operands["filter"], "c": node.operand("bias")}
    bounds = [bound(name, v, profile) for name, v in values.items() if v is not None]
    bounds.append(bound("out", node.output, profile, "w"))
    extra = fused.build(node)
    whole = not any(b.constants for b in bounds)
    sizes = [DATA_TYPES[v.data_type].size for v in (node.output, values["x"])]
    # Rows of vectors: neighbours in both, and nothing that can't be stored 4 at a time.
    rows = whole and g.xw == g.ys == 1 and not (g.W % 4 or g.OW % 4) and max(sizes) <= 4
    tall = 0 if g.transposed or g.IC > 1 else _tall(g, rows, profile)
    if tall:
        kernel, vector = "conv_depthwise", rows
        constants, groups = _depthwise_tiles(g, tall, rows)
    else:
        kernel, constants, groups = "conv", *_tiles(g, profile)
        channels = g.IC, g.fg, g.fo, g.fw
        vector = whole and g.xc == g.fc == 1 and not any(n % 4 for n in channels)
    check_iterations(g.KH * (1 + g.KW * (1 + g.IC / (4 if vector else 1))), profile)
    spec = _spec(
        kernel, tuple(b.buffer for b in bounds), g.transposed, values["c"] is not None, vector,
        profile.features, extra,
    )
    return [
        dispatch(
            node, spec, bounds, extra, groups,
            {name: g.numbers[name] for name in _PARAMS[kernel] + _STRIDES}, constants, profile,
            kernel=kernel, variant=f"{'transposed ' * g.transposed}{g.KH}x{g.KW}{' v' * vector}",
            flops=2 * node.results[0].size * g.IC * g.KH * g.KW,
        )
    ]


def _tall(g: Geometry, rows: bool, profile: DeviceProfile) -> int:
    """Outputs below each other that an invocation of the depthwise kernel computes (with ``rows``,
    4 side by side too); 0 when even one takes too much."""
    side = 4 if rows else 1
    across = ((side - 1) * g.SW + (g.KW - 1) * g.DW) // 4 + 2 if rows else g.KW
    # More share more rows. Powers of 2 would leave a part of the usual 7, 14, 28 … rows idle.
    for tall in (7, 4, 1) if profile.is_software else (4, 1):
        loads = ((tall - 1) * g.SH + (g.KH - 1) * g.DH + 1) * across
        if loads <= _LOADS and tall * side * g.KH * g.KW <= _PRODUCTS:
            return tall
    return 0


def _depthwise_tiles(g: Geometry, tall: int, rows: bool) -> tuple[dict[str, int], int]:
    invocations = g.N * g.G * g.OC * -(-g.OH // tall) * (g.OW // 4 if rows else g.OW)
    constants = {"LX": 64, "TP": tall}
    constants |= {n: g.numbers[n] for n in ("KH", "KW", "SH", "SW", "DH", "DW", "PW")}
    return constants, -(-invocations // 64)


def _tiles(g: Geometry, profile: DeviceProfile) -> tuple[dict[str, int], int]:
    """Specialisation constants of the direct kernel and its number of workgroups."""
    pixels = g.N * g.OH * g.OW
    if profile.is_software:
        # One SIMD group of pixels a workgroup; few distinct sizes, each is a compile.
        lanes, (tc, tp), channel_lanes = (8, 1), (8 if g.OC > 4 else 4, 8), False
    else:
        channel_lanes = g.channels_last and g.OC >= 16
        lanes, tc, tp = (16, 8), 4, 4
    lc, lp = lanes if channel_lanes else lanes[::-1]
    constants = {
        "LX": lanes[0], "LY": lanes[1], "TC": tc, "TP": tp, "CHANNEL_LANES": int(channel_lanes),
    }
    return constants, g.G * -(-g.OC // (lc * tc)) * -(-pixels // (lp * tp))


def _is_product(node: Node, g: Geometry) -> bool:
    return (
        (g.G, g.KH, g.KW, g.SH, g.SW) == (1, 1, 1, 1, 1)
        and not any(node.arguments["padding"])
        and (g.H, g.W) == (g.OH, g.OW)
    )


def _product(node: Node, g: Geometry, profile: DeviceProfile) -> list[Dispatch]:
    x, w, bias = node.operands["input"], node.operands["filter"], node.operand("bias")
    # Which channel is the filter's fast dimension: [outputs, inputs] or [inputs, outputs].
    inputs_last = g.fc == 1 and (g.fo != 1 or g.IC == 1)
    width = g.IC if inputs_last else g.OC
    if g.channels_last:
        product = matmul.Product(
            g.N * g.H * g.W, g.OC, g.IC, g.IC, width, b_transposed=inputs_last, c_strides=(0, 1)
        )
        return matmul.plan_product(product, node, x, w, bias, profile)
    pixels = g.H * g.W
    many = g.N > 1
    product = matmul.Product(
        g.OC, pixels, g.IC, width, pixels, a_transposed=not inputs_last,
        batch=(g.N,) * many, a_batch=(0,) * many, b_batch=(g.IC * pixels,) * many, c_strides=(1, 0),
    )
    return matmul.plan_product(product, node, w, x, bias, profile)


def _spec(
    kernel: str, buffers: tuple[Buffer, ...], transposed: bool, addend: bool, vector: bool,
    features: frozenset[str], extra: fused.Epilogue,
) -> KernelSpec:
    if vector:
        wide = ("x", "w") if kernel == "conv" else ("x", "out")
        buffers = tuple(
            Buffer(b.name, b.data_type, b.access, 4) if b.name in wide else b for b in buffers
        )
    buffers += extra.buffers
    options = ("transposed", transposed), ("addend", addend), ("vector", vector)
    return KernelSpec(
        f"{kernel}.comp.j2",
        buffers,
        (*(Param(name) for name in _PARAMS[kernel] + _STRIDES), *extra.params),
        tuple(Constant(name) for name in _CONSTANTS[kernel]),
        (*options, *extra.options),
        used_features(features, buffers, extra.int64),
    )


def catalogue(features: frozenset[str]) -> Iterable[KernelSpec]:
    """Every unfused kernel of the family."""
    flags = (False, True)
    for data_type, addend in itertools.product(FLOAT_TYPES, flags):
        names = ("x", "w", "c") if addend else ("x", "w")
        buffers = (*(Buffer(n, data_type) for n in names), Buffer("out", data_type, "w"))
        extra = fused.nothing(data_type)
        for vector in flags:
            yield _spec("conv_depthwise", buffers, False, addend, vector, features, extra)
            for transposed in flags:
                yield _spec("conv", buffers, transposed, addend, vector, features, extra)
