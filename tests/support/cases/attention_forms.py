"""Attention as exporters write it: scales, masks, heads and shapes in all combinations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Makes an input with a name, a shape and a data type.
Input = Callable[[str, tuple[int, ...], str], Any]

B, H, D, E = 2, 4, 8, 6
LOWEST = {name: float(np.finfo(name).min) for name in ("float32", "float16")}

SCALES = ("none", "div", "mul", "mul [1]", "mul [1,1,1,1]", "row", "query", "query first", "both")
MASKS = (
    "none", "padding", "padding left", "subtracted", "bias", "where", "fill", "fill wide",
    "causal", "causal where", "causal triangular", "causal ranges", "causal and padding",
    "causal where, padding", "padding, causal where", "half causal",
)
HEADS = ("all", "expand", "tile", "gather", "expand first", "one")
SHAPES = ("heads", "rows", "rows, masks by heads")


@dataclass(frozen=True)
class Form:
    scale: str = "none"
    mask: str = "none"
    heads: str = "all"
    shape: str = "heads"
    turned_twice: bool = False
    data_type: str = "float32"
    wide_softmax: bool = False
    steps: tuple[int, int] = (3, 5)

    @property
    def means(self) -> bool:
        """Whether this combination is possible."""
        masked_by_heads = self.mask not in ("none", "causal", "half causal")
        return (
            (self.shape == "heads" or self.heads == "all")
            and (self.shape != "rows" or not masked_by_heads)
            and (not self.wide_softmax or self.data_type == "float16")
        )


def numbered(emit: Any, form: Form, value: float, *shape: int) -> Any:
    return emit.constant(np.full(shape, value), form.data_type)


def scaled(emit: Any, form: Form, x: Any) -> Any:
    number = D**-0.5
    match form.scale:
        case "div":
            return emit.div(x, numbered(emit, form, math.sqrt(D)))
        case "mul":
            return emit.mul(numbered(emit, form, number), x)
        case "mul [1]":
            return emit.mul(x, numbered(emit, form, number, 1))
        case "mul [1,1,1,1]":
            return emit.mul(x, numbered(emit, form, number, *(1,) * len(x.shape)))
        case "row":
            return emit.mul(x, numbered(emit, form, number, x.shape[-1]))
    return x


def kept(emit: Any, form: Form, y: Any) -> Any:
    """Half of the scale, for each of the two operands."""
    return emit.mul(y, numbered(emit, form, D**-0.25)) if form.scale == "both" else y


def split(emit: Any, form: Form, x: Any, heads: int, keys: bool) -> Any:
    """[batch, steps, heads · size] as [batch, all heads, steps, size], or rows of all heads; as
    [.., size, steps] for keys."""
    batch, steps, hidden = x.shape
    x = emit.reshape(x, (batch, steps, heads, hidden // heads))
    count = H // heads
    if heads != H and form.heads == "expand first":
        x = emit.reshape(x, (batch, steps, heads, 1, hidden // heads))
        x = emit.expand(x, (batch, steps, heads, count, hidden // heads))
        x = emit.reshape(x, (batch, steps, H, hidden // heads))
        heads = H
    repeated = heads != H and form.heads != "one"
    if keys and not form.turned_twice and not repeated and form.shape == "heads":
        return kept(emit, form, emit.transpose(x, permutation=(0, 2, 3, 1)))
    x = emit.transpose(x, permutation=(0, 2, 1, 3))
    size = x.shape[-1]
    if repeated and form.heads == "gather":
        x = emit.gather(x, emit.constant(np.arange(H) // count, "int32"), axis=1)
    elif repeated:
        x = emit.reshape(x, (batch, heads, 1, steps, size))
        x = emit.tile(x, (1, 1, count, 1, 1)) if form.heads == "tile" else emit.expand(
            x, (batch, heads, count, steps, size)
        )
        x = emit.reshape(x, (batch, H, steps, size))
    if form.shape != "heads":
        x = emit.reshape(x, (batch * H, steps, size))
    if keys:
        *order, rows, columns = range(len(x.shape))
        x = kept(emit, form, emit.transpose(x, permutation=(*order, columns, rows)))
    return x


def masked(emit: Any, form: Form, x: Any, make_input: Input) -> Any:
    rows, keys = form.steps
    triangle = np.tri(rows, keys, keys - rows)
    low = LOWEST[form.data_type]

    def given(name: str, shape: tuple[int, ...], data_type: str = form.data_type) -> Any:
        return make_input(name, shape, data_type)

    def causal(x: Any, number: float = -math.inf) -> Any:
        return emit.where(emit.constant(triangle, "uint8"), x, numbered(emit, form, number))

    match form.mask:
        case "padding":
            return emit.add(x, given("m", (B, 1, 1, keys)))
        case "padding left":
            return emit.add(given("m", (B, 1, 1, keys)), x)
        case "subtracted":
            return emit.sub(x, given("m", (B, 1, 1, keys)))
        case "bias":
            return emit.add(emit.add(x, given("m", (H, rows, keys))), given("n", (B, 1, 1, keys)))
        case "where":
            return emit.where(
                given("m", (B, 1, rows, keys), "uint8"), x, numbered(emit, form, low)
            )
        case "fill":
            return emit.where(
                given("m", (B, 1, 1, keys), "uint8"), numbered(emit, form, -math.inf, 1), x
            )
        case "fill wide":
            return emit.where(
                given("m", (1, 1, rows, keys), "uint8"), numbered(emit, form, low, rows, keys), x
            )
        case "causal":
            return emit.add(x, emit.constant(np.where(triangle, 0, -math.inf), form.data_type))
        case "causal where":
            return causal(x, low)
        case "causal triangular":
            if rows != keys:
                return causal(x)
            ones = emit.expand(emit.constant(1, "float32"), (rows, keys))
            seen = emit.cast(emit.triangular(ones, upper=False), "uint8")
            return emit.where(seen, x, numbered(emit, form, -math.inf))
        case "causal ranges":
            places = emit.constant(np.arange(rows)[:, None] + keys - rows, "int32")
            later = emit.greater(emit.constant(np.arange(keys)[None], "int32"), places)
            return emit.where(later, numbered(emit, form, -math.inf), x)
        case "causal and padding":
            x = emit.add(x, emit.constant(np.where(triangle, 0, -math.inf), form.data_type))
            return emit.add(x, given("m", (B, 1, 1, keys)))
        case "causal where, padding":
            return emit.add(causal(x, low), given("m", (B, 1, 1, keys)))
        case "padding, causal where":
            return causal(emit.add(x, given("m", (B, 1, 1, keys))))
        case "half causal":
            return emit.add(x, emit.constant(np.where(triangle, 0, -2), form.data_type))
    return x


def describe(emit: Any, form: Form, make_input: Input) -> Any:
    """The attention [B, rows, H · E] of inputs q, k, v and masks; ``emit`` is an `Emitter`, or an
    object with the same methods."""
    rows, keys = form.steps
    own = {"all": H, "one": 1}.get(form.heads, 2)
    q, k, v = (
        make_input(name, (B, steps, width), form.data_type)
        for name, steps, width in (
            ("q", rows, H * D), ("k", keys, own * D), ("v", keys, own * E)
        )
    )
    if form.scale == "query first":
        q = emit.mul(q, numbered(emit, form, D**-0.5))
    q = split(emit, form, q, H, keys=False)
    if form.scale == "query":
        q = emit.mul(q, numbered(emit, form, D**-0.5))
    scores = emit.matmul(kept(emit, form, q), split(emit, form, k, own, keys=True))
    scores = scaled(emit, form, scores)
    by_heads = form.shape == "rows, masks by heads"
    if by_heads:
        scores = emit.reshape(scores, (B, H, rows, keys))
    scores = masked(emit, form, scores, make_input)
    if form.wide_softmax:
        scores = emit.cast(scores, "float32")
    weights = emit.softmax(scores, len(scores.shape) - 1)
    if form.wide_softmax:
        weights = emit.cast(weights, "float16")
    if by_heads:
        weights = emit.reshape(weights, (B * H, rows, keys))
    y = emit.matmul(weights, split(emit, form, v, own, keys=False))
    y = emit.reshape(y, (B, H, rows, E))
    return emit.reshape(emit.transpose(y, permutation=(0, 2, 1, 3)), (B, rows, H * E))


def masks_that_show(form: Form, feeds: dict[str, np.ndarray]) -> None:
    """Makes every query see its first key, by either meaning of a condition."""
    if "m" in feeds and feeds["m"].dtype == np.uint8:
        feeds["m"] = feeds["m"].copy()
        feeds["m"][..., 0] = form.mask == "where"
