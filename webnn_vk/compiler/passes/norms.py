"""Normalisations that an exporter wrote in several operators become one operator: layer
normalisation and normalisation by the root mean square, including casts to float32 around it."""

from __future__ import annotations

import math
from typing import Any

from ..ir import Emitter, Value
from .activations import element, number, single
from .patterns import Anything, Match, OneOf, Op
from .rewrite import rewrite, rewrite_pass


def _mean(part: Any, bind: str) -> Op:
    return Op("reduce_mean", bind=bind, input=part, keep_dimensions=True)


def _divided(part: Any) -> OneOf:
    """``part`` / √(mean of its squares + epsilon), in every form of the division."""
    square = OneOf(Op("pow", a=part, b=number(2)), Op("mul", a=part, b=part))
    variance = Op(
        "add", a=_mean(square, "variance"), commutative=True,
        b=single("epsilon", lambda epsilon: 0 <= epsilon < math.inf),
    )
    deviation = Op("sqrt", input=variance)
    inverse = OneOf(
        Op("reciprocal", input=deviation),
        Op("div", a=number(1), b=deviation),
        Op("pow", a=variance, b=number(-0.5)),
    )
    return OneOf(
        Op("div", a=part, b=deviation),
        Op("mul", a=part, b=inverse, commutative=True),
        # The scale of the result, multiplied by the inverse first.
        Op(
            "mul", a=part, commutative=True,
            b=Op("mul", a=inverse, b="factor", commutative=True),
        ),
    )


def _times_factor(match: Match, emit: Emitter, normal: Value) -> Value | None:
    factor = match.get("factor")
    result = normal if factor is None else emit.mul(normal, factor)
    return result if result.shape == match.root.output.shape else None


@rewrite(_divided(Op("sub", bind="centred", a="x", b=_mean("x", "mean"))))
def layer_normalization(match: Match, emit: Emitter) -> Value | None:
    """(x − mean) / √(mean((x − mean)²) + epsilon)"""
    axes = match["mean"].arguments["axes"]
    if axes != match["variance"].arguments["axes"] or not axes:
        return None
    epsilon = element(match["epsilon"])
    normal = emit.layer_normalization(match["x"], axes=axes, epsilon=epsilon)
    return _times_factor(match, emit, normal)


@rewrite(_divided("x"))
def rms_normalization(match: Match, emit: Emitter) -> Value | None:
    """x / √(mean(x²) + epsilon)"""
    axes = match["variance"].arguments["axes"]
    if not axes:
        return None
    epsilon = element(match["epsilon"])
    normal = emit.rms_normalization(match["x"], axes=axes, epsilon=epsilon)
    return _times_factor(match, emit, normal)


@rewrite(Op("cast", input=Op(
    "rms_normalization", "layer_normalization", bind="norm", single_use=True,
    where=lambda node: node.operands.keys() == {"input"},
    input=Op("cast", input=Anything("x", where=lambda v: v.data_type == "float16")),
)))
def cast_normalization(match: Match, emit: Emitter) -> Value | None:
    """The kernel computes in float32 for all data types, so the casts are not needed."""
    if (match["norm"].output.data_type, match.root.output.data_type) != ("float32", "float16"):
        return None
    return emit.like(match["norm"], input=match["x"])


FUSE_NORMS = rewrite_pass(
    "fuse_norms", layer_normalization, rms_normalization, cast_normalization
)
