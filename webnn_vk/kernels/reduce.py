"""Reductions over any dimensions, arg_min and arg_max.

An output is computed by an invocation or by a workgroup; few very long reductions are cut into
chunks first, whose results are reduced again.
"""

from __future__ import annotations

from collections.abc import Iterator

from webnn_vk.codegen.spec import Buffer, KernelSpec, Param

from ..data_types import ALL_TYPES, DATA_TYPES, FLOAT_TYPES
from ..device_profile import DeviceProfile
from ..graph import Node, Value
from ..ops.reduction import ARITHMETIC_TYPES
from . import axes
from .dispatch import Dispatch, Scratch
from .epilogue import Epilogue, build, nothing
from .expression import used_features
from .windows import bound, dispatch

EPILOGUE = True

# What an operator accumulates and how it finishes.
_OPERATORS = {
    "reduce_l1": ("l1", ""),
    "reduce_l2": ("square", "sqrt"),
    "reduce_log_sum": ("sum", "log"),
    "reduce_log_sum_exp": ("log_sum_exp", ""),
    "reduce_max": ("order", ""),
    "reduce_mean": ("sum", "mean"),
    "reduce_min": ("order", "reversed"),
    "reduce_product": ("product", ""),
    "reduce_sum": ("sum", ""),
    "reduce_sum_square": ("square", ""),
    "arg_max": ("arg", ""),
    "arg_min": ("arg", "reversed"),
}
_FINISH = {"mean": 1, "log": 2, "sqrt": 3}
# How the results of chunks are put together.
_AGAIN = {"sum": "sum", "l1": "sum", "square": "sum", "product": "product",
          "log_sum_exp": "log_sum_exp", "order": "order"}

_PARAMS = (
    *axes.PARAMS,
    *(Param(name) for name in ("len", "outputs", "chunk", "chunks", "flip", "finish")),
    Param("divisor", "float"),
    Param("words"),
)


def plan(node: Node, profile: DeviceProfile) -> list[Dispatch]:
    x = node.operands["input"]
    op, finish = _OPERATORS[node.operator.name]
    reduced = (node.arguments["axis"],) if op == "arg" else node.arguments["axes"]
    return reduction(node, x, op, finish, axes.split(x.shape, reduced), profile)


def reduction(
    node: Node, x: Value, op: str, finish: str, split: axes.Split, profile: DeviceProfile
) -> list[Dispatch]:
    """Dispatches that reduce ``x`` to the node's output, epilogue included."""
    chunks = 1 if op == "arg" else axes.chunks(split.rows, split.length, profile)
    if chunks == 1:
        return [_dispatch(node, x, node.output, op, finish, split, profile, build(node))]
    # Chunks are summed in float32; their extremes fit in the input's own type.
    kind = DATA_TYPES[x.data_type]
    inner = "float32" if kind.kind == "f" and op != "order" else x.data_type
    partial = Scratch(split.rows * chunks * DATA_TYPES[inner].size)
    again = axes.split((split.rows, chunks), (1,))
    first = _dispatch(
        node, x, partial, op, "reversed" if finish == "reversed" else "", split, profile,
        nothing(inner), chunks=chunks, out_type=inner,
    )
    second = _dispatch(
        node, partial, node.output, _AGAIN[op], finish, again, profile, build(node),
        in_type=inner, divisor=split.length,
    )
    return [first, second]


def _dispatch(
    node: Node,
    x: Value | Scratch,
    out: Value | Scratch,
    op: str,
    finish: str,
    split: axes.Split,
    profile: DeviceProfile,
    epilogue: Epilogue,
    *,
    chunks: int = 1,
    in_type: str | None = None,
    out_type: str | None = None,
    divisor: int | None = None,
) -> Dispatch:
    if op == "arg" and not node.epilogue:
        out_type = "uint32"
    operands = [
        bound("x", x, profile, data_type=in_type),
        bound("out", out, profile, "w", data_type=out_type),
    ]
    chunk = -(-split.length // chunks)
    outputs = split.rows * chunks
    passes = 2 if op == "log_sum_exp" else 1
    lanes = axes.lanes(outputs, chunk, split.contiguous, profile, passes)
    spec = _spec(
        op, tuple(o.buffer for o in operands), lanes > 1, epilogue, profile.features
    )
    size, groups = axes.launch(outputs, lanes, profile)
    params = split.params | {
        "len": split.length,
        "outputs": outputs,
        "chunk": chunk,
        "chunks": chunks,
        "flip": 0xFFFFFFFF if finish == "reversed" else 0,
        "finish": _FINISH.get(finish, 0),
        "divisor": float(divisor or split.length),
        "words": DATA_TYPES[node.results[0].data_type].size // 4 or 1,
    }
    return dispatch(
        node, spec, operands, epilogue, groups, params, {"LX": size} | split.constants, profile,
        kernel="reduce", variant=f"{op} {'group' if lanes > 1 else 'invocation'}",
        flops=split.rows * split.length,
    )


def _spec(
    op: str,
    buffers: tuple[Buffer, ...],
    group: bool,
    epilogue: Epilogue,
    features: frozenset[str],
) -> KernelSpec:
    # An index may be stored without knowing its type, unless it goes through an epilogue.
    plain_index = op == "arg" and not epilogue.options[0][1]
    buffers += epilogue.buffers
    options = (("op", op), ("group", group), ("plain_index", plain_index))
    return KernelSpec(
        "reduce.comp.j2", buffers, _PARAMS + epilogue.params, axes.CONSTANTS,
        options=options + (() if plain_index else epilogue.options),
        features=used_features(features, buffers, epilogue.int64),
    )


def catalogue(features: frozenset[str]) -> Iterator[KernelSpec]:
    def spec(op: str, x: str, out: str, group: bool) -> KernelSpec:
        buffers = (Buffer("x", x), Buffer("out", out, "w"))
        return _spec(op, buffers, group, nothing(out), features)

    types = {"log_sum_exp": FLOAT_TYPES, "order": ALL_TYPES, "arg": ALL_TYPES}
    for op in dict.fromkeys(op for op, _ in _OPERATORS.values()):
        for group in (False, True):
            for x in types.get(op, ARITHMETIC_TYPES):
                yield spec(op, x, "uint32" if op == "arg" else x, group)
            # Results of chunks are float32.
            if op in set(_AGAIN.values()) - {"order"}:
                yield spec(op, "float32", "float16", group)
        if op in _AGAIN and op != "order":
            yield spec(op, "float16", "float32", True)
