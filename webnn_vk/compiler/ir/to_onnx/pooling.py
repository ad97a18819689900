"""Pooling. Padding at the end makes the extents divisible, so that every division is exact. Padding
that ONNX's operators don't take (as large as the window) is materialised."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from ...ops.pooling import Axis
from .writer import Tensor, Writer, rule

_KINDS = {"average_pool2d": "AveragePool", "l2_pool2d": "LpPool", "max_pool2d": "MaxPool"}
#: The types that ONNX's MaxPool takes, and for other types one in which they are exact.
_MAX_TYPES = {
    "float32": "float32", "float16": "float16", "int8": "int8", "uint8": "uint8",
    "int32": "float64", "uint32": "float64",
}


@rule(*_KINDS)
def pool(
    w: Writer, input: Tensor, window_dimensions: Sequence[int], padding: Sequence[int],
    strides: Sequence[int], dilations: Sequence[int], layout: str, output_sizes: Sequence[int],
) -> Tensor:
    assert w.node is not None
    name = w.node.operator.name
    shape = [w.result.shape[layout.index(letter)] for letter in "nchw"]
    sizes = [input.shape[layout.index(letter)] for letter in "hw"]
    window, begin = list(window_dimensions), list(padding[::2])
    reach = [(t - 1) * d + 1 for t, d in zip(window, dilations, strict=True)]
    covered = [(n - 1) * s + r for n, s, r in zip(shape[2:], strides, reach, strict=True)]
    # Negative: the elements after the last window.
    end = [c - d - b for c, d, b in zip(covered, sizes, begin, strict=True)]
    counts = np.outer(*(
        Axis(2 + i, sizes[i], shape[2 + i], window[i], begin[i], strides[i], dilations[i]).counts
        for i in range(2)
    ))
    attributes: dict[str, Any] = {
        "kernel_shape": window, "strides": list(strides), "dilations": list(dilations),
    }

    def run(x: Tensor) -> Tensor:
        x = w.slice(
            x, [0, 0], [d + min(e, 0) for d, e in zip(sizes, end, strict=True)], [1, 1], [2, 3]
        ) if min(end) < 0 else x
        after = [max(e, 0) for e in end]
        outside = any(p >= t for p, t in zip([*begin, *after], [*window, *window], strict=True))
        kind = _KINDS[name]
        if name == "max_pool2d" and x.data_type not in _MAX_TYPES:
            return _masked(w, _largest(w, x, shape, window, begin, after, strides, dilations),
                           counts)
        if name == "max_pool2d":
            wide = w.cast(x, _MAX_TYPES[x.data_type])
            if outside or not counts.all():
                least = -np.inf if wide.is_float else np.iinfo(wide.data_type).min
                wide = w.pad(wide, [0, 0, *begin], [0, 0, *after], least)
            else:
                attributes["pads"] = [*begin, *after]
            y = w.op(kind, wide, shape=shape, **attributes)
            return w.cast(_masked(w, y, counts), x.data_type)
        if name == "l2_pool2d":
            attributes["p"] = 2
        if outside or not counts.all():
            x = _framed(w, x, begin, after)
        else:
            attributes["pads"] = [*begin, *after]
        y = w.op(kind, x, shape=shape, **attributes)
        if name == "average_pool2d" and (outside or not counts.all()):
            # From the mean of all taps, including padding, to the mean of the taps inside.
            factor = np.where(counts > 0, window[0] * window[1] / np.maximum(counts, 1), 0)
            y = _masked(w, w.op("Mul", y, w.constant(factor.astype(y.data_type))), counts)
        return y

    return w.nchw(layout, input, run)


def _framed(w: Writer, x: Tensor, begin: Sequence[int], after: Sequence[int]) -> Tensor:
    """Zeros around height and width. Not by Pad, which ONNX Runtime merges into the pool's padding
    even if it is too large."""
    for axis, sizes in zip((2, 3), zip(begin, after, strict=True), strict=True):
        zeros = [
            w.constant(np.zeros((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.data_type))
            for n in sizes
        ]
        parts = [t for t in (zeros[0], x, zeros[1]) if t.shape[axis]]
        x = w.concat(parts, axis)
    return x


def _masked(w: Writer, y: Tensor, counts: np.ndarray) -> Tensor:
    """0 for windows with only padding."""
    if counts.all():
        return y
    return w.select(w.constant(counts > 0), y, w.scalar(0, y))


def _largest(
    w: Writer, x: Tensor, shape: Sequence[int], window: Sequence[int], begin: Sequence[int],
    after: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
) -> Tensor:
    """The maximum, tap by tap, for integers that floats can't represent."""
    x = w.pad(x, [0, 0, *begin], [0, 0, *after], np.iinfo(x.data_type).min)
    taps = []
    for offsets in product(range(window[0]), range(window[1])):
        starts = [o * d for o, d in zip(offsets, dilations, strict=True)]
        ends = [
            s + (n - 1) * step + 1
            for s, n, step in zip(starts, shape[2:], strides, strict=True)
        ]
        taps.append(w.slice(x, starts, ends, list(strides), [2, 3]))
    return reduce(lambda a, b: w.op("Max", a, b), taps)
