"""Activations that exporters write in several operators become one, which then joins the kernel
that computes its operand: a value with several readers can't be fused into its producer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..ir import Emitter, Value
from .patterns import Constant, Match, OneOf, Op
from .rewrite import Rewrite, rewrite, rewrite_pass


def single(bind: str = "", where: Callable[[float], bool] = lambda number: True) -> Constant:
    """A constant of one element for which ``where`` holds."""
    return Constant(bind, where=lambda v: (
        v.data is not None and v.data.size == 1 and where(float(v.data.reshape(-1)[0]))
    ))


def number(expected: float) -> Constant:
    """A constant of one element that is ``expected``, as rounded in files of any precision."""
    return single(where=_near(expected))


def element(value: Value) -> float:
    """The element of a constant of one element."""
    assert value.data is not None
    return float(value.data.reshape(-1)[0])


def _near(expected: float) -> Callable[[float], bool]:
    # bfloat16 has 8 bits: no file rounds what fits them.
    is_exact = math.frexp(expected)[0] % 2.0**-8 == 0
    return lambda given: math.isclose(given, expected, rel_tol=0.0 if is_exact else 1e-3)


def _product(a: object, b: object, **more: object) -> Op:
    return Op("mul", a=a, b=b, commutative=True, **more)  # type: ignore[arg-type]


def _scaled(part: object, factor: float) -> OneOf:
    """``part`` multiplied by a number, or divided by its inverse."""
    return OneOf(_product(part, number(factor)), Op("div", a=part, b=number(1 / factor)))


def _in_place(match: Match, build: Callable[[Value], Value]) -> Value | None:
    """The result of ``build`` on x; None if x was broadcast on the way."""
    x = match["x"]
    return build(x) if x.shape == match.root.output.shape else None


def _forms(part: Op) -> tuple[Op | OneOf, ...]:
    """x / 2 · (1 + part), in every order of multiplication, or x · (part / 2 + 1 / 2)."""
    one_more, half = _plus_one(part), number(0.5)
    return (
        _product(_scaled("x", 0.5), one_more),
        _scaled(_product("x", one_more), 0.5),
        _product("x", _scaled(one_more, 0.5)),
        _product("x", Op("add", a=_product(part, half), b=half, commutative=True)),
    )


def _plus_one(part: Op) -> Op:
    return Op("add", a=part, b=number(1), commutative=True)


def _activation(name: str, *patterns: Op | OneOf) -> Rewrite:
    """The patterns become the operator ``name`` of x."""
    return Rewrite(
        name, OneOf(*patterns), lambda match, emit: _in_place(match, getattr(emit, name))
    )


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
_ERF = Op("erf", input=_scaled("x", math.sqrt(0.5)))
GELU = _activation("gelu", *_forms(_ERF))
GELU_TANH = _activation(
    "gelu_tanh",
    *_forms(Op("tanh", input=_of_tanh(_ROOT_2_PI))),
    _product("x", Op("sigmoid", input=_of_tanh(2 * _ROOT_2_PI))),
)
_ONE_AND_EXP = _plus_one(Op("exp", input=Op("neg", input="x")))
SIGMOID = _activation(
    "sigmoid", Op("reciprocal", input=_ONE_AND_EXP), Op("div", a=number(1), b=_ONE_AND_EXP)
)
SWISH = _activation(
    "swish", _product("x", Op("sigmoid", input="x")), Op("div", a="x", b=_ONE_AND_EXP)
)


@rewrite(_product("x", Op("sigmoid", input=_product("x", single("alpha", math.isfinite)))))
def swish_with_alpha(match: Match, emit: Emitter) -> Value | None:
    return _in_place(match, lambda x: emit.swish(x, alpha=element(match["alpha"])))


def _limited(part: Any, most: float) -> tuple[Op, ...]:
    """``part`` limited to 0 … ``most``."""
    positive = (
        Op("relu", input=part), Op("max", a=part, b=number(0), commutative=True),
        Op("clamp", input=part, min_value=0, max_value=math.inf),
    )
    return (
        Op("clamp", input=part, min_value=0, max_value=most),
        *(Op("min", a=p, b=number(most), commutative=True) for p in positive),
        Op("relu", input=Op("min", a=part, b=number(most), commutative=True)),
    )


_SIXTH = _scaled("x", 1 / 6)
#: x / 6 + 1/2 limited to 0 … 1, as one operator or several.
_HARD_SIGMOID = OneOf(
    Op("hard_sigmoid", input="x", alpha=_near(1 / 6), beta=0.5),
    *_limited(OneOf(
        Op("add", a=_SIXTH, b=number(0.5), commutative=True),
        Op("linear", input="x", alpha=_near(1 / 6), beta=_near(0.5)),
    ), 1),
)
_CLAMPED = OneOf(*_limited(Op("add", a="x", b=number(3), commutative=True), 6))
HARD_SWISH = _activation(
    "hard_swish",
    _product("x", _HARD_SIGMOID),
    _product("x", _scaled(_CLAMPED, 1 / 6)),
    _scaled(_product("x", _CLAMPED), 1 / 6),
    _product(_SIXTH, _CLAMPED),
)

FUSE_ACTIVATIONS = rewrite_pass(
    "fuse_activations", GELU, GELU_TANH, HARD_SWISH, SWISH, swish_with_alpha, SIGMOID
)
