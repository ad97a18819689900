"""Pooling: an invocation computes outputs at one place. Over the whole input it is a reduction."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from webnn_vk.codegen.spec import Buffer, KernelSpec, Param

from ..data_types import ALL_TYPES, FLOAT_TYPES
from ..device_profile import DeviceProfile
from ..graph import Node
from . import axes, positions, reduce
from .dispatch import Dispatch, Unsupported
from .epilogue import Epilogue, build, nothing
from .expression import used_features
from .windows import bound, dispatch

EPILOGUE = True

_OPERATORS = {"average_pool2d": "average", "l2_pool2d": "l2", "max_pool2d": "max"}
_REDUCTIONS = {"average": ("sum", "mean"), "l2": ("square", "sqrt"), "max": ("order", "")}

# Taps that an invocation goes through at most, those in the padding included: drivers take a device
# away whose shader runs for seconds. Larger windows are rare, and combined axis by axis on the CPU.
_TAPS = 1 << 22

_PARAMS = (
    *positions.PARAMS,
    Param("columns"),
    *(Param(name, "uint", 2) for name in ("size", "window", "stride", "dilation", "before")),
)


def plan(node: Node, profile: DeviceProfile) -> list[Dispatch]:
    x, arguments = node.operands["input"], node.arguments
    op = _OPERATORS[node.operator.name]
    height = 2 if arguments["layout"] == "nchw" else 1
    spatial = x.shape[height : height + 2]
    window, padding = arguments["window_dimensions"], arguments["padding"]
    if window == spatial and arguments["dilations"] == (1, 1) and not any(padding):
        split = axes.split(x.shape, (height, height + 1))
        return reduce.reduction(node, x, *_REDUCTIONS[op], split, profile)
    # Positions before the input wrap around to beyond its end, never into it: the record has seen
    # to it that the extents that padding and windows reach are below 2³¹.
    if window[0] * window[1] > _TAPS:
        raise Unsupported(f"{window[0]} × {window[1]} taps in one invocation; {_TAPS} at most")
    operands = bound("x", x, profile), bound("out", node.output, profile, "w")
    epilogue = build(node)
    spec = _spec(op, tuple(o.buffer for o in operands), epilogue, profile.features)
    rows, columns = arguments["output_sizes"]
    outer, inner = prod(x.shape[:height]), prod(x.shape[height + 2 :])
    shared = positions.share(
        outer, rows * columns, inner, profile, window[0] * (window[1] + 2) + 1
    )
    size, groups = axes.launch(shared.invocations, 1, profile)
    params = {
        "columns": columns,
        "size": spatial,
        "window": window,
        "stride": arguments["strides"],
        "dilation": arguments["dilations"],
        "before": (padding[0], padding[2]),
    }
    return [
        dispatch(
            node, spec, operands, epilogue, groups, shared.params | params,
            {"LX": size} | shared.constants, profile, kernel="pool", variant=op,
            flops=node.results[0].size * window[0] * window[1],
        )
    ]


def _spec(
    op: str, buffers: tuple[Buffer, ...], epilogue: Epilogue, features: frozenset[str]
) -> KernelSpec:
    buffers += epilogue.buffers
    return KernelSpec(
        "pool.comp.j2", buffers, _PARAMS + epilogue.params, positions.CONSTANTS,
        options=(("op", op), *epilogue.options),
        features=used_features(features, buffers, epilogue.int64),
    )


def catalogue(features: frozenset[str]) -> Iterator[KernelSpec]:
    for op in _OPERATORS.values():
        for data_type in ALL_TYPES if op == "max" else FLOAT_TYPES:
            buffers = Buffer("x", data_type), Buffer("out", data_type, "w")
            yield _spec(op, buffers, nothing(data_type), features)
