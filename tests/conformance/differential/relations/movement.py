"""Relations of operators that move elements."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from tests.conformance.differential.drafting import Draft
from tests.conformance.differential.example import Example
from tests.conformance.differential.relations.record import relation
from webnn_vk.compiler.types.data_types import MAX_RANK


def _permutation(d: Draft, items: list[Any]) -> list[Any]:
    return d.draw(st.permutations(items)) if len(items) > 1 else items


@relation("reshape")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    factors = [f for n in shape for f in _prime_factors(n)]
    new = [1] * d.integer(0 if not factors else 1, MAX_RANK)
    for factor in factors:
        new[d.integer(0, len(new) - 1)] *= factor
    return d.example({"input": shape}, {"new_shape": new})


def _prime_factors(n: int) -> list[int]:
    found, p = [], 2
    while n > 1:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return found


@relation("transpose")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    permutation = _permutation(d, list(range(len(shape))))
    return d.example({"input": shape}, {"permutation": permutation} if d.flag() else {})


@relation("slice")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    starts = [d.integer(0, n - 1) for n in shape]
    sizes = [d.integer(1, n - s) for n, s in zip(shape, starts, strict=True)]
    given: dict[str, Any] = {"starts": starts, "sizes": sizes}
    if d.flag():
        given["strides"] = [d.integer(1, n) for n in sizes]
    return d.example({"input": shape}, given)


@relation("concat")
def _(d: Draft) -> Example:
    shape = list(d.shape(*d.record.limit("inputs").rank))
    axis = d.integer(0, len(shape) - 1)
    shapes = []
    for _ in range(d.integer(1, 4)):
        shape[axis] = d.choose((1, 2, 3, 4, 5, 8))
        shapes.append(tuple(shape))
    return d.example({"inputs": shapes}, {"axis": axis})


@relation("split")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    axis = d.integer(0, len(shape) - 1)
    size = shape[axis]
    splits: int | list[int]
    if d.flag():
        splits = d.choose([n for n in range(1, min(size, 9) + 1) if size % n == 0])
    else:
        cuts = sorted({d.integer(1, size) for _ in range(3)} | {size})
        splits = [b - a for a, b in zip([0, *cuts], cuts, strict=False)]
    given = {} if axis == 0 and d.flag() else {"axis": axis}
    return d.example({"input": shape}, {"splits": splits, **given})


@relation("expand")
def _(d: Draft) -> Example:
    target = d.shape()
    return d.example({"input": d.broadcast(target)}, {"new_shape": target})


@relation("tile")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    room = 20_000 // math.prod(shape)
    repetitions = []
    for _ in shape:
        repetitions.append(d.integer(1, max(1, min(3, room))))
        room //= repetitions[-1]
    return d.example({"input": shape}, {"repetitions": repetitions})


@relation("pad")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    given: dict[str, Any] = {"mode": d.choose(("constant", "edge", "reflection"))}
    room = 20_000 // math.prod(shape)
    ends: list[list[int]] = [[], []]
    for n in shape:
        most = 3 if len(shape) < 5 else 1
        most = min(most, n - 1) if given["mode"] == "reflection" else most
        for padding in ends:
            padding.append(d.integer(0, most if room > 1 else 0))
        room = room * n // (n + ends[0][-1] + ends[1][-1])
    if d.flag():
        given["value"] = d.draw(
            st.sampled_from([0, 1, -1, 7, 300, 2.5, math.inf, -math.inf])
        )
    return d.example(
        {"input": shape}, {"beginning_padding": ends[0], "ending_padding": ends[1], **given}
    )


@relation("triangular")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    given: dict[str, Any] = {"upper": d.flag()} if d.flag() else {}
    if d.flag():
        given["diagonal"] = d.integer(-shape[-2] - 1, shape[-1] + 1)
    return d.example({"input": shape}, given)


# -- gather and scatter
@relation("gather")
def _(d: Draft) -> Example:
    shape = d.shape(1, 5)
    axis = d.integer(0, len(shape) - 1)
    indices = d.shape(0, MAX_RANK + 1 - len(shape))
    while math.prod(indices) * math.prod(shape) // shape[axis] > 50_000:
        indices = tuple(min(n, 3) for n in indices[1:])
    given = {} if axis == 0 and d.flag() else {"axis": axis}
    return d.example({"input": shape, "indices": indices}, given)


def _along_axis(d: Draft) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    shape = d.shape_of("input")
    axis = d.integer(0, len(shape) - 1)
    count = d.choose((1, 2, 3, 5, shape[axis]))
    given = {} if axis == 0 and d.flag() else {"axis": axis}
    return shape, (*shape[:axis], count, *shape[axis + 1 :]), given


@relation("gather_elements")
def _(d: Draft) -> Example:
    shape, indices, given = _along_axis(d)
    return d.example({"input": shape, "indices": indices}, given)


@relation("scatter_elements")
def _(d: Draft) -> Example:
    shape, indices, given = _along_axis(d)
    return d.example({"input": shape, "indices": indices, "updates": indices}, given)


def _coordinates(d: Draft) -> tuple[tuple[int, ...], ...]:
    """Shapes of the input, of the indices and of the selection."""
    shape = d.shape_of("input")
    count = d.integer(1, len(shape))
    kept = shape[count:]
    leading = tuple(
        d.choose((1, 2, 3, 5)) for _ in range(d.integer(0, min(3, MAX_RANK - len(kept))))
    )
    return shape, (*leading, count), (*leading, *kept)


@relation("gather_nd")
def _(d: Draft) -> Example:
    shape, indices, _ = _coordinates(d)
    return d.example({"input": shape, "indices": indices}, {})


@relation("scatter_nd")
def _(d: Draft) -> Example:
    shape, indices, updates = _coordinates(d)
    return d.example({"input": shape, "indices": indices, "updates": updates}, {})
