"""Suggestions in messages: the option that was probably meant, and the axis or size that a negative
number means in other libraries."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from webnn_vk.support.errors import nearest

from .record import AXES

#: Names of options in ONNX, NumPy and PyTorch, and ours.
_ELSEWHERE = {
    "pads": "padding", "perm": "permutation", "dims": "permutation", "dim": "axis",
    "keepdims": "keep_dimensions", "keepdim": "keep_dimensions", "eps": "epsilon",
    "kernel_shape": "window_dimensions", "kernel_size": "window_dimensions",
}


def option_hint(name: str, known: Collection[str]) -> str:
    """A hint which known option an unknown one may mean; empty for a known one."""
    if name in known:
        return ""
    if (other := _ELSEWHERE.get(name)) in known:
        return f"; did you mean {other}?"
    return nearest(name, known)


def negative_hint(
    operator: str, name: str, value: Any, operands: Mapping[str, Any]
) -> str:
    """A hint for a negative axis or size, which other libraries accept (the IDL's are unsigned).
    ``operands`` are the operands converted so far, which have a ``shape``."""
    first = next(iter(operands.values()), None)
    input = first[0] if isinstance(first, list) and first else first
    if not hasattr(input, "shape"):
        return ""
    # Only built-in types, so that no code of the caller runs.
    numbers = list(value) if type(value) in (list, tuple) else [value]
    if not all(type(n) is int for n in numbers):
        return ""
    rank = len(input.shape)
    if name in AXES and any(n < 0 for n in numbers):
        if not all(-rank <= n < rank for n in numbers):
            return f"; {input!r} has the axes 0 … {rank - 1}" if rank else ""
        counted = ", ".join(str(n % rank) for n in numbers)
        return f"; axes count from 0: of {input!r} that is {counted}"
    if operator == "reshape" and numbers.count(-1) == 1:
        known = -math.prod(numbers)
        size = math.prod(input.shape)
        fits = known > 0 and size % known == 0
        would = f": here it would be {size // known}" if fits else ""
        return f"; WebNN infers no dimension{would}"
    return ""
