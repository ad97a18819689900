"""Running sums along one dimension.

A row is summed by an invocation or a workgroup; few very long rows are cut into chunks: the chunks'
totals are summed and scanned first, and carried into the scan of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from webnn_vk.codegen.spec import Buffer, KernelSpec, Param

from ..data_types import DATA_TYPES
from ..device_profile import DeviceProfile
from ..graph import Node, Value
from ..ops.reduction import ARITHMETIC_TYPES
from . import axes
from .dispatch import Binding, Dispatch, Scratch
from .epilogue import nothing
from .expression import used_features
from .windows import Bound, bound, dispatch

_PARAMS = tuple(
    Param(name)
    for name in ("rows", "len", "inner", "chunk", "chunks", "exclusive", "reversed", "carried")
)


def plan(node: Node, profile: DeviceProfile) -> list[Dispatch]:
    x, axis = node.operands["input"], node.arguments["axis"]
    length, inner = x.shape[axis], prod(x.shape[axis + 1 :])
    rows = x.descriptor.size // length
    row = {
        "rows": rows, "len": length, "inner": inner, "chunks": 1,
        "reversed": int(node.arguments["reversed"]),
        "exclusive": int(node.arguments["exclusive"]),
    }
    chunks = axes.chunks(rows, length, profile)
    if chunks == 1:
        lanes = axes.lanes(rows, length, inner == 1, profile)
        return [_dispatch(node, x, None, node.output, row, lanes, profile)]
    row["chunks"] = chunks
    lanes = axes.lanes(rows * chunks, -(-length // chunks), inner == 1, profile)
    size = rows * chunks * DATA_TYPES[_sum_type(x.data_type)].size
    totals, carries = Scratch(size), Scratch(size)
    of_totals = {
        "rows": rows, "len": chunks, "inner": 1, "chunks": 1, "reversed": 0, "exclusive": 1
    }
    return [
        _dispatch(node, x, None, totals, row, max(32, lanes), profile, stage="totals"),
        _dispatch(
            node, totals, None, carries, of_totals, axes.lanes(rows, chunks, True, profile), profile
        ),
        _dispatch(node, x, carries, node.output, row, lanes, profile),
    ]


def _sum_type(data_type: str) -> str:
    """Floats are summed in float32."""
    return "float32" if data_type == "float16" else data_type


def _dispatch(
    node: Node,
    x: Value | Scratch,
    carry: Scratch | None,
    out: Value | Scratch,
    row: dict[str, int],
    lanes: int,
    profile: DeviceProfile,
    stage: str = "",
) -> Dispatch:
    data_type = node.results[0].data_type
    sum_type = _sum_type(data_type)
    stage = stage or ("group" if lanes > 1 else "invocation")
    # A scratch tensor holds sums; without a carry something is bound that is never read.
    operands = [
        bound("x", x, profile, data_type=sum_type if isinstance(x, Scratch) else data_type),
        bound("carry", carry, profile, data_type=sum_type) if carry
        else Bound(Buffer("carry", sum_type), (Binding(x, 0, 16),), {}),
        bound("out", out, profile, "w", sum_type if isinstance(out, Scratch) else data_type),
    ]
    spec = _spec(tuple(o.buffer for o in operands), stage, profile.features)
    size, groups = axes.launch(row["rows"] * row["chunks"], lanes, profile)
    params = row | {"chunk": -(-row["len"] // row["chunks"]), "carried": int(carry is not None)}
    return dispatch(
        node, spec, operands, nothing(data_type), groups, params, {"LX": size}, profile,
        kernel="scan", variant=stage, flops=row["rows"] * row["len"],
    )


def _spec(buffers: tuple[Buffer, ...], stage: str, features: frozenset[str]) -> KernelSpec:
    return KernelSpec(
        "scan.comp.j2", buffers, _PARAMS, options=(("stage", stage),),
        features=used_features(features, buffers),
    )


def catalogue(features: frozenset[str]) -> Iterator[KernelSpec]:
    for data_type in ARITHMETIC_TYPES:
        sum_type = _sum_type(data_type)
        x, carry = Buffer("x", data_type), Buffer("carry", sum_type)
        for stage in ("invocation", "group"):
            yield _spec((x, carry, Buffer("out", data_type, "w")), stage, features)
        yield _spec((x, carry, Buffer("out", sum_type, "w")), "totals", features)
