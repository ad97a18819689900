"""Reductions over any dimensions, arg_min and arg_max.

An output is computed by an invocation or by a workgroup; few very long reductions are cut into
chunks first, whose results are reduced again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import ceil_divide, round_up

from ..types.access import Access
from ..types.data_types import DATA_TYPES, FLOAT_TYPES
from . import rows
from .dispatch import Dispatch, Scratch
from .epilogue import Epilogue, build, nothing
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
        p, x, texels = problem, node.operands["input"], texel_bytes(profile, schedule.load)
        chunks, lanes = schedule["chunks"], schedule["lanes"]
        if chunks == 1:
            epilogue = build(node, texels)
            return [_dispatch(node, x, node.output, p, lanes, profile, epilogue, texels=texels)]
        # Chunks are summed in float32; their extremes fit in the input's own type.
        floats = DATA_TYPES[x.data_type].kind == "f" and p.accumulate != "order"
        inner = "float32" if floats else x.data_type
        partial = Scratch(p.split.rows * chunks * DATA_TYPES[inner].size, inner)
        of_chunks = replace(p, finish="reversed" if p.finish == "reversed" else "")
        again = Reduction(_AGAIN[p.accumulate], p.finish, split((p.split.rows, chunks), (1,)))
        few = rows.combining(again.rows(), profile)
        return [
            _dispatch(
                node, x, partial, of_chunks, lanes, profile, nothing(inner), chunks=chunks,
                texels=texels,
            ),
            _dispatch(
                node, partial, node.output, again, few, profile, build(node),
                divisor=p.split.length,
            ),
        ]


def _dispatch(
    node: KernelNode,
    x: Access | Scratch,
    out: Access | Scratch,
    p: Reduction,
    lanes: int,
    profile: DeviceProfile,
    epilogue: Epilogue,
    *,
    chunks: int = 1,
    divisor: int | None = None,
    texels: int = 0,
) -> Dispatch:
    op, split = p.accumulate, p.split
    chunk = ceil_divide(split.length, chunks)
    wide = split.contiguous and split.length % 4 == 0 and x.data_type in FLOAT_TYPES
    if wide:
        chunk = round_up(chunk, 4)
    index = "uint32" if op == "arg" and not node.epilogue else None
    operands = [
        bound("x", x, profile, width=4 if wide else 1, texels=texels),
        bound("out", out, profile, "w", data_type=index),
    ]
    outputs = split.rows * chunks
    if index:  # it may be stored without knowing its type
        epilogue = replace(epilogue, options=())
    size, groups = rows.launch(outputs, lanes, profile)
    params = split.params | {
        "len": split.length,
        "outputs": outputs,
        "chunk": chunk,
        "chunks": chunks,
        "flip": 0xFFFFFFFF if p.finish == "reversed" else 0,
        "finish": _FINISH.get(p.finish, 0),
        "divisor": divisor or split.length,
        "words": DATA_TYPES[node.results[0].data_type].size // 4 or 1,
    }
    by_texels = any(b.load == "texel" for b in (operands[0].buffer, *epilogue.buffers))
    variant = f"{op} {'group' if lanes > 1 else 'invocation'}{' texels' * by_texels}"
    return dispatch(
        node, "reduce", operands, epilogue, groups, params, {"LX": size} | split.constants, profile,
        (("op", op), ("group", lanes > 1), ("vectors", "read" if wide else ""),
         ("plain_index", index is not None)),
        variant=variant + " vectors" * wide, flops=split.rows * split.length,
        types={"divisor": "float"},
    )
