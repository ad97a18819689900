"""Activations that exporters write in several operators become one, which then joins the kernel
that computes its operand: a value with several readers can't be fused into its producer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..ir import Emitter, Value
from .patterns import Constant, Match, OneOf, Op
from .rewrite import Rewrite, rewrite, rewrite_pass


def number(expected: float, tolerance: float = 1e-3) -> Constant:
    """A constant of one element near ``expected``, as rounded in files of any precision."""
    return Constant(where=lambda v: v.data is not None and v.data.size == 1 and math.isclose(
        float(v.data.reshape(-1)[0]), expected, rel_tol=tolerance
    ))


def _product(a: object, b: object, **more: object) -> Op:
    return Op("mul", a=a, b=b, commutative=True, **more)  # type: ignore[arg-type]


def _in_place(match: Match, build: Callable[[Value], Value]) -> Value | None:
    """The result of ``build`` on x; None if x was broadcast on the way."""
    x = match["x"]
    return build(x) if x.shape == match.root.output.shape else None


def _halved(one_more: Op) -> tuple[Op, ...]:
    """x / 2 · (1 + f), in every order of multiplication."""
    half = number(0.5)
    return (
        _product(_product("x", half), one_more),
        _product(_product("x", one_more), half),
        _product("x", _product(one_more, half)),
        Op("div", a=_product("x", one_more), b=number(2)),
        _product("x", Op("div", a=one_more, b=number(2))),
        _product(Op("div", a="x", b=number(2)), one_more),
    )


def _forms(part: Op) -> tuple[Op, ...]:
    """x / 2 · (1 + part), also written as x · (part / 2 + 1 / 2)."""
    half = number(0.5)
    return (
        *_halved(_plus_one(part)),
        _product("x", Op("add", a=_product(part, half), b=half, commutative=True)),
    )


def _plus_one(part: Op) -> Op:
    return Op("add", a=part, b=number(1), commutative=True)


def _rewrites(name: str, patterns: tuple[Op, ...]) -> tuple[Rewrite, ...]:
    def build(match: Match, emit: Emitter) -> Value | None:
        return _in_place(match, getattr(emit, name))

    return tuple(Rewrite(name, pattern, build) for pattern in patterns)


_ROOT = math.sqrt(2)
_SQUARE = _product("x", "x")
_TINY = number(0.044715)
_CUBED = (
    *(_product(cube, _TINY) for cube in (Op("pow", a="x", b=number(3)), _product("x", _SQUARE))),
    _product(_product("x", _TINY), _SQUARE),
    _product("x", _product(_TINY, _SQUARE)),
    _product("x", _product("x", _product("x", _TINY))),
)


def _of_tanh(factor: float) -> OneOf:
    """x + 0.044715 x³, times the factor."""
    root = number(factor)
    return OneOf(
        *(_product(Op("add", a="x", b=part, commutative=True), root) for part in _CUBED),
        *(
            pattern
            for square in (_SQUARE, Op("pow", a="x", b=number(2)))
            for scaled in (_product(square, _TINY), _product("x", _product("x", _TINY)))
            for pattern in (
                _product(_product("x", root), _plus_one(scaled)),
                _product("x", _product(_plus_one(scaled), root)),
                _product(_product("x", _plus_one(scaled)), root),
            )
        ),
    )


_ROOT_2_PI = math.sqrt(2 / math.pi)
GELU = _rewrites("gelu", _forms(Op("erf", input=OneOf(
    Op("div", a="x", b=number(_ROOT)), _product("x", number(1 / _ROOT))
))))
GELU_TANH = _rewrites("gelu_tanh", (
    *_forms(Op("tanh", input=_of_tanh(_ROOT_2_PI))),
    _product("x", Op("sigmoid", input=_of_tanh(2 * _ROOT_2_PI))),
))


@rewrite(_product("x", Op("sigmoid", input="x")))
def swish(match: Match, emit: Emitter) -> Value | None:
    return _in_place(match, emit.swish)


@rewrite(_product("x", Op("sigmoid", input=_product("x", Constant(
    "alpha", where=lambda v: v.data is not None and v.data.size == 1 and bool(v.data == v.data)
)))))
def swish_with_alpha(match: Match, emit: Emitter) -> Value | None:
    alpha = float(match["alpha"].data.reshape(-1)[0])
    return _in_place(match, lambda x: emit.swish(x, alpha=alpha)) if math.isfinite(alpha) else None


_ONE_AND_EXP = _plus_one(Op("exp", input=Op("neg", input="x")))


@rewrite(Op("reciprocal", input=_ONE_AND_EXP))
def sigmoid(match: Match, emit: Emitter) -> Value | None:
    return _in_place(match, emit.sigmoid)


@rewrite(Op("div", a=number(1), b=_ONE_AND_EXP))
def sigmoid_as_quotient(match: Match, emit: Emitter) -> Value | None:
    return _in_place(match, emit.sigmoid)


@rewrite(Op("div", a="x", b=_ONE_AND_EXP))
def swish_as_quotient(match: Match, emit: Emitter) -> Value | None:
    return _in_place(match, emit.swish)


def _near(expected: float) -> Callable[[float], bool]:
    return lambda given: math.isclose(given, expected, rel_tol=1e-3)


def _limited(part: Any, most: float) -> tuple[Op, ...]:
    """``part`` limited to 0 … ``most``."""
    zero = Constant(where=lambda v: v.data is not None and v.data.size == 1 and not v.data.any())
    positive = (
        Op("relu", input=part), Op("max", a=part, b=zero, commutative=True),
        Op("clamp", input=part, min_value=0, max_value=math.inf),
    )
    return (
        Op("clamp", input=part, min_value=0, max_value=most),
        *(Op("min", a=p, b=number(most), commutative=True) for p in positive),
        Op("relu", input=Op("min", a=part, b=number(most), commutative=True)),
    )


_SIXTH = OneOf(Op("div", a="x", b=number(6)), _product("x", number(1 / 6)))
#: x / 6 + 1/2 limited to 0 … 1, as one operator or several.
_HARD_SIGMOID = OneOf(
    Op("hard_sigmoid", input="x", alpha=_near(1 / 6), beta=0.5),
    *_limited(OneOf(
        Op("add", a=_SIXTH, b=number(0.5), commutative=True),
        Op("linear", input="x", alpha=_near(1 / 6), beta=_near(0.5)),
    ), 1),
)
_CLAMPED = OneOf(*_limited(Op("add", a="x", b=number(3), commutative=True), 6))
HARD_SWISH = _rewrites("hard_swish", (
    _product("x", _HARD_SIGMOID),
    _product("x", Op("div", a=_CLAMPED, b=number(6))),
    Op("div", a=_product("x", _CLAMPED), b=number(6)),
    _product(_product("x", _CLAMPED), number(1 / 6)),
    _product("x", _product(_CLAMPED, number(1 / 6))),
    _product(_SIXTH, _CLAMPED),
))

FUSE_ACTIVATIONS = rewrite_pass(
    "fuse_activations", *GELU, *GELU_TANH, *HARD_SWISH, swish, swish_with_alpha, sigmoid,
    sigmoid_as_quotient, swish_as_quotient,
)
