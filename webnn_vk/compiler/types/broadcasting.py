"""Broadcasting of shapes."""

from __future__ import annotations

from collections.abc import Sequence

from .sizes import Size


def broadcast_shapes(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | None:
    """The shape both broadcast to (§ "bidirectionally broadcast"), or None."""
    rank = max(len(a), len(b))
    a = (1,) * (rank - len(a)) + tuple(a)
    b = (1,) * (rank - len(b)) + tuple(b)
    shape = tuple(_broadcast(x, y) for x, y in zip(a, b, strict=True))
    return None if None in shape else shape  # type: ignore[return-value]


def _broadcast(x: int, y: int) -> int | None:
    """The dimension that both broadcast to, or None. A size that is known at dispatch is compared
    only where the result depends on it."""
    if _is_one(y):
        return x
    if _is_one(x) or x == y:
        return y
    return x if y == 1 else y if x == 1 else None


def _is_one(dimension: int) -> bool:
    return not isinstance(dimension, Size) and dimension == 1


def broadcastable_to(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Whether ``shape`` is unidirectionally broadcastable to ``target``."""
    if len(shape) > len(target):
        return False
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return all(_is_one(s) or s == t or s == 1 for s, t in pairs)
