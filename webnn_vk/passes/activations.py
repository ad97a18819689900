"""Activations that exporters write in several operators become one, which then joins the kernel
that computes its operand: a value with several readers can't be fused into its producer."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..graph import Emitter, Value
from .patterns import Constant, Match, Op
from .rewrite import Rewrite, rewrite, rewrite_pass


def number(expected: float, tolerance: float = 1e-3) -> Constant:
    """A constant of one element near ``expected``, as rounded in files of any precision."""
    return Constant(where=lambda v: v.data is not None and v.data.size == 1 and math.isclose(
        float(v.data.reshape(-1)[0]), expected, rel_tol=tolerance
    ))


def _product(a: object, b: object, **more: object) -> Op:
    return Op("mul", a=a, b=b, commutative=True, **more)  # type: ignore[arg-type]


def _in_place(match: Match, build: Callable[[Value], Value]) -> Value | None:
    """What ``build`` makes of x, where nothing has been broadcast on the way."""
    x = match["x"]
    return build(x) if x.shape == match.root.output.shape else None


def _halved(one_more: Op) -> tuple[Op, ...]:
    """x / 2 · (1 + f), in the orders in which it is multiplied."""
    half = number(0.5)
    return (
        _product(_product("x", half), one_more),
        _product(_product("x", one_more), half),
        _product("x", _product(one_more, half)),
        Op("div", a=_product("x", one_more), b=number(2)),
    )


def _plus_one(part: Op) -> Op:
    return Op("add", a=part, b=number(1), commutative=True)


def _rewrites(name: str, patterns: tuple[Op, ...]) -> tuple[Rewrite, ...]:
    def build(match: Match, emit: Emitter) -> Value | None:
        return _in_place(match, getattr(emit, name))

    return tuple(Rewrite(name, pattern, build) for pattern in patterns)


_ROOT = math.sqrt(2)
_CUBES = (
    Op("pow", a="x", b=number(3)),
    _product("x", _product("x", "x")),
)
GELU = tuple(
    rule
    for part in (Op("div", a="x", b=number(_ROOT)), _product("x", number(1 / _ROOT)))
    for rule in _rewrites("gelu", _halved(_plus_one(Op("erf", input=part))))
)
GELU_TANH = tuple(
    rule
    for cube in _CUBES
    for rule in _rewrites("gelu_tanh", _halved(_plus_one(Op("tanh", input=_product(
        Op("add", a="x", b=_product(cube, number(0.044715)), commutative=True),
        number(math.sqrt(2 / math.pi)),
    )))))
)


@rewrite(_product("x", Op("sigmoid", input="x")))
def swish(match: Match, emit: Emitter) -> Value | None:
    return _in_place(match, emit.swish)


@rewrite(_product("x", Op("sigmoid", input=_product("x", Constant(
    "alpha", where=lambda v: v.data is not None and v.data.size == 1 and bool(v.data == v.data)
)))))
def swish_with_alpha(match: Match, emit: Emitter) -> Value | None:
    alpha = float(match["alpha"].data.reshape(-1)[0])
    return _in_place(match, lambda x: emit.swish(x, alpha=alpha)) if math.isfinite(alpha) else None


def _near(expected: float) -> Callable[[float], bool]:
    return lambda given: math.isclose(given, expected, rel_tol=1e-3)


def _clamped() -> Op:
    return Op(
        "clamp", input=Op("add", a="x", b=number(3), commutative=True), min_value=0, max_value=6
    )


HARD_SWISH = _rewrites("hard_swish", (
    _product("x", Op("hard_sigmoid", input="x", alpha=_near(1 / 6), beta=0.5)),
    _product("x", Op("div", a=_clamped(), b=number(6))),
    Op("div", a=_product("x", _clamped()), b=number(6)),
    _product(_product("x", _clamped()), number(1 / 6)),
    _product("x", _product(_clamped(), number(1 / 6))),
))

FUSE_ACTIVATIONS = rewrite_pass(
    "fuse_activations", *GELU, *GELU_TANH, *HARD_SWISH, swish, swish_with_alpha
)
