"""A layer normalisation that an exporter wrote in several operators becomes one again."""

from __future__ import annotations

import math
from typing import Any

from ..graph import Emitter, Value
from .activations import number
from .patterns import Constant, Match, Op
from .rewrite import Rewrite, rewrite_pass


def _mean(part: Any, bind: str) -> Op:
    return Op("reduce_mean", bind=bind, input=part, keep_dimensions=True)


def _patterns() -> list[Op]:
    """(x − mean) / √(mean((x − mean)²) + epsilon), in the ways it is squared and divided."""
    centred = Op("sub", bind="centred", a="x", b=_mean("x", "mean"))
    patterns = []
    for square in (
        Op("pow", a=centred, b=number(2, 0)), Op("mul", a=centred, b=centred)
    ):
        deviation = Op("sqrt", input=Op(
            "add", a=_mean(square, "variance"), commutative=True,
            b=Constant("epsilon", where=lambda v: v.data is not None and v.data.size == 1),
        ))
        patterns.append(Op("div", a=centred, b=deviation))
        patterns.append(
            Op("mul", a=centred, b=Op("reciprocal", input=deviation), commutative=True)
        )
    return patterns


def _build(match: Match, emit: Emitter) -> Value | None:
    x, epsilon = match["x"], float(match["epsilon"].data.reshape(-1)[0])
    axes = match["mean"].arguments["axes"]
    if axes != match["variance"].arguments["axes"] or match.root.output.shape != x.shape:
        return None
    if not (math.isfinite(epsilon) and epsilon >= 0 and axes):
        return None
    return emit.layer_normalization(x, axes=axes, epsilon=epsilon)


FUSE_NORMS = rewrite_pass(
    "fuse_norms", *(Rewrite("layer_normalization", p, _build) for p in _patterns())
)
