"""Reductions over any dimensions, arg_min and arg_max.

An output is computed by an invocation or by a workgroup; few very long reductions are cut into
chunks first, whose results are reduced again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from webnn_vk.codegen.spec import Buffer, KernelSpec, Param
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import ceil_divide, round_up

from ..types.access import Access
from ..types.data_types import DATA_TYPES, FLOAT_TYPES
from . import rows
from .dispatch import Dispatch, Scratch
from .epilogue import Epilogue, build, nothing
from .expression import used_features
from .family import Family
from .loads import texel_bytes
from .multi_binding import bound, dispatch
from .node import KernelNode
from .rows import Rows, Split, split
from .schedule import Schedule

_FINISH = {"mean": 1, "log": 2, "sqrt": 3}
# How the results of chunks are put together.
_AGAIN = {"sum": "sum", "l1": "sum", "square": "sum", "product": "product",
          "log_sum_exp": "log_sum_exp", "order": "order"}

_PARAMS = (
    *rows.PARAMS,
    *(Param(name) for name in ("len", "outputs", "chunk", "chunks", "flip", "finish")),
    Param("divisor", "float"),
    Param("words"),
)


@dataclass(frozen=True)
class Reduction:
    """``accumulate`` is applied over the reduced dimensions of ``split``, ``finish`` to the
    result; ``texels`` as in ``Rows``."""

    accumulate: str
    finish: str
    split: Split
    texels: bool = False

    @property
    def passes(self) -> int:
        """Loop iterations per element."""
        return 2 if self.accumulate == "log_sum_exp" else 1

    def rows(self, chunks: int = 1) -> Rows:
        """The rows of the first dispatch: each row is cut into ``chunks`` of them."""
        split, length = self.split, ceil_divide(self.split.length, chunks)
        return Rows(split.rows * chunks, length, split.contiguous, self.passes, self.texels)


class ReduceFamily(Family):
    """See the module's docstring."""

    name = "reduce"
    solves = Reduction
    fuses = True
    input_loads = 1

    def problem(self, node: KernelNode) -> Reduction:
        lowering = node.lowering
        axes = node.arguments[lowering.axes]
        axes = (axes,) if isinstance(axes, int) else axes
        x = node.operands["input"]
        return Reduction(
            lowering.accumulate, lowering.finish, split(x.shape, axes), x.data_type == "float32"
        )

    def candidates(self, problem: Reduction, profile: DeviceProfile) -> Sequence[Schedule]:
        if problem.accumulate == "arg":
            return rows.schedules(problem.rows(), profile, chunks=1)
        return rows.chunked_schedules(problem.rows(), profile)

    def lower(
        self, node: KernelNode, problem: Reduction, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """Two dispatches where rows are cut into chunks."""
        texels = texel_bytes(profile, schedule.load)
        x, op, finish = node.operands["input"], problem.accumulate, problem.finish
        chunks, lanes = schedule["chunks"], schedule["lanes"]
        if chunks == 1:
            return [
                _dispatch(
                    node, x, node.output, op, finish, problem.split, lanes, profile,
                    build(node, texels), texels=texels,
                )
            ]
        # Chunks are summed in float32; their extremes fit in the input's own type.
        kind = DATA_TYPES[x.data_type]
        inner = "float32" if kind.kind == "f" and op != "order" else x.data_type
        partial = Scratch(problem.split.rows * chunks * DATA_TYPES[inner].size)
        again = Reduction(_AGAIN[op], finish, split((problem.split.rows, chunks), (1,)))
        first = _dispatch(
            node, x, partial, op, "reversed" if finish == "reversed" else "", problem.split, lanes,
            profile, nothing(inner), chunks=chunks, out_type=inner, texels=texels,
        )
        second = _dispatch(
            node, partial, node.output, again.accumulate, finish, again.split,
            rows.lanes(again.rows(), profile), profile, build(node), in_type=inner,
            divisor=problem.split.length,
        )
        return [first, second]


def _dispatch(
    node: KernelNode,
    x: Access | Scratch,
    out: Access | Scratch,
    op: str,
    finish: str,
    split: Split,
    lanes: int,
    profile: DeviceProfile,
    epilogue: Epilogue,
    *,
    chunks: int = 1,
    in_type: str | None = None,
    out_type: str | None = None,
    divisor: int | None = None,
    texels: int = 0,
) -> Dispatch:
    if op == "arg" and not node.epilogue:
        out_type = "uint32"
    chunk = ceil_divide(split.length, chunks)
    loaded = in_type or x.data_type if isinstance(x, Access) else in_type
    wide = split.contiguous and split.length % 4 == 0 and loaded in FLOAT_TYPES
    if wide:
        chunk = round_up(chunk, 4)
    operands = [
        bound("x", x, profile, data_type=in_type, width=4 if wide else 1, texels=texels),
        bound("out", out, profile, "w", data_type=out_type),
    ]
    outputs = split.rows * chunks
    spec = _spec(
        op, tuple(o.buffer for o in operands), lanes > 1, wide, epilogue, profile.features
    )
    size, groups = rows.launch(outputs, lanes, profile)
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
    variant = f"{op} {'group' if lanes > 1 else 'invocation'}"
    return dispatch(
        node, spec, operands, epilogue, groups, params, {"LX": size} | split.constants, profile,
        kernel="reduce", variant=variant + " texels" * bool(spec.texels) + " vectors" * wide,
        flops=split.rows * split.length,
    )


def _spec(
    op: str,
    buffers: tuple[Buffer, ...],
    group: bool,
    wide: bool,
    epilogue: Epilogue,
    features: frozenset[str],
) -> KernelSpec:
    # An index may be stored without knowing its type, unless it goes through an epilogue.
    plain_index = op == "arg" and not epilogue.options[0][1]
    buffers += epilogue.buffers
    vectors = "read" if wide else ""
    options = (
        ("op", op), ("group", group), ("vectors", vectors), ("plain_index", plain_index)
    )
    return KernelSpec(
        "reduce.comp.j2", buffers, _PARAMS + epilogue.params, rows.CONSTANTS,
        options=options + (() if plain_index else epilogue.options),
        features=used_features(features, buffers, epilogue.int64),
    )
