"""Normalisations that an exporter wrote in several operators become one operator: layer
normalisation and normalisation by the root mean square, including casts to float32 around it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..ir import Emitter, Value
from .activations import number
from .patterns import Anything, Constant, Match, Op
from .rewrite import Rewrite, rewrite, rewrite_pass


def _mean(part: Any, bind: str) -> Op:
    return Op("reduce_mean", bind=bind, input=part, keep_dimensions=True)


def _squares(part: Any) -> tuple[Op, ...]:
    return Op("pow", a=part, b=number(2, 0)), Op("mul", a=part, b=part)


def _divided(part: Any, square: Op) -> Iterator[Op]:
    """``part`` / √(mean of ``square`` + epsilon), in every form of the division."""
    variance = Op(
        "add", a=_mean(square, "variance"), commutative=True,
        b=Constant("epsilon", where=lambda v: v.data is not None and v.data.size == 1),
    )
    deviation = Op("sqrt", input=variance)
    yield Op("div", a=part, b=deviation)
    for inverse in (
        Op("reciprocal", input=deviation),
        Op("div", a=number(1, 0), b=deviation),
        Op("pow", a=variance, b=number(-0.5, 0)),
    ):
        yield Op("mul", a=part, b=inverse, commutative=True)
        # The scale of the result, multiplied by the inverse first.
        yield Op(
            "mul", a=part, commutative=True,
            b=Op("mul", a=inverse, b="factor", commutative=True),
        )


def _times_factor(match: Match, emit: Emitter, normal: Value) -> Value | None:
    factor = match.get("factor")
    result = normal if factor is None else emit.mul(normal, factor)
    return result if result.shape == match.root.output.shape else None


def _epsilon(match: Match) -> float | None:
    epsilon = float(match["epsilon"].data.reshape(-1)[0])
    return epsilon if math.isfinite(epsilon) and epsilon >= 0 else None


def _layer(match: Match, emit: Emitter) -> Value | None:
    """(x − mean) / √(mean((x − mean)²) + epsilon)"""
    x, epsilon = match["x"], _epsilon(match)
    axes = match["mean"].arguments["axes"]
    if axes != match["variance"].arguments["axes"] or epsilon is None or not axes:
        return None
    return _times_factor(match, emit, emit.layer_normalization(x, axes=axes, epsilon=epsilon))


def _root_mean_square(match: Match, emit: Emitter) -> Value | None:
    """x / √(mean(x²) + epsilon)"""
    x, epsilon = match["x"], _epsilon(match)
    axes = match["variance"].arguments["axes"]
    if epsilon is None or not axes:
        return None
    return _times_factor(match, emit, emit.rms_normalization(x, axes=axes, epsilon=epsilon))


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


def _rules() -> Iterator[Rewrite]:
    centred = Op("sub", bind="centred", a="x", b=_mean("x", "mean"))
    for part, name, build in (
        (centred, "layer_normalization", _layer), ("x", "rms_normalization", _root_mean_square)
    ):
        for square in _squares(part):
            for pattern in _divided(part, square):
                yield Rewrite(name, pattern, build)


FUSE_NORMS = rewrite_pass("fuse_norms", *_rules(), cast_normalization)
