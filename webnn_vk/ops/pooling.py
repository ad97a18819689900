"""Pooling (§8.9.37): average_pool2d, l2_pool2d, max_pool2d."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..data_types import ALL_TYPES, FLOAT_TYPES, MLOperandDescriptor
from .arguments import Enum, Operand, Shape
from .lowering import Kernel
from .record import Check, Inferred, Like, Limits, Operator, operator


def _pair(check: Check, name: str, given: tuple[int, ...] | None, default: Any, count: int) -> Any:
    given = tuple(default) if given is None else given
    check.that(len(given) == count, f"{name} is {list(given)}; {count} numbers are expected")
    return given


def _pooling(
    name: str, types: tuple[str, ...], formula: str, compute: Callable[..., Any]
) -> Operator:
    def infer(
        check: Check,
        input: Operand,
        *,
        window_dimensions: Shape = None,
        padding: Shape = None,
        strides: Shape = None,
        dilations: Shape = None,
        layout: Enum("nchw", "nhwc") = "nchw",
        output_shape_rounding: Enum("floor", "ceil") = "floor",
        output_sizes: Shape = None,
    ) -> Inferred:
        height = 2 if layout == "nchw" else 1
        spatial = input.shape[height : height + 2]
        window = _pair(check, "window_dimensions", window_dimensions, spatial, 2)
        padding = _pair(check, "padding", padding, (0, 0, 0, 0), 4)
        strides = _pair(check, "strides", strides, (1, 1), 2)
        dilations = _pair(check, "dilations", dilations, (1, 1), 2)
        for what, numbers in (
            ("window_dimensions", window), ("strides", strides), ("dilations", dilations)
        ):
            check.that(0 not in numbers, f"{what} is {list(numbers)}; each has to be positive")
        # (calculated size − 1) · stride, in integers so that rounding is exact
        room = [
            spatial[i] - ((window[i] - 1) * dilations[i] + 1) + padding[2 * i] + padding[2 * i + 1]
            for i in range(2)
        ]
        floor = tuple(r // s + 1 for r, s in zip(room, strides, strict=True))
        ceil = tuple(-(-r // s) + 1 for r, s in zip(room, strides, strict=True))
        if output_sizes is None:
            sizes = floor if output_shape_rounding == "floor" else ceil
        else:
            # spec: pooling, step 20.3.2; 10 and 15.2 are slips: padding stays as given
            sizes = _pair(check, "output_sizes", output_sizes, (), 2)
            check.that(
                sizes in (floor, ceil),
                f"output_sizes is {list(sizes)}; {list(floor)} or {list(ceil)} is expected",
            )
        given = (
            f"input is {input}, window_dimensions {list(window)}, padding {list(padding)}, strides "
            f"{list(strides)}, dilations {list(dilations)}:"
        )
        check.dimensions(sizes, f"{given} the output would be")
        reach = [(w - 1) * d + 1 for w, d in zip(window, dilations, strict=True)]
        check.dimensions([window[0] * window[1]], f"{given} the elements of a window would be")
        check.dimensions(reach, f"{given} the dilated windows would be")
        check.dimensions(
            [s + b + e for s, b, e in zip(spatial, padding[::2], padding[1::2], strict=True)],
            f"{given} the padded extents would be",
        )
        # Rounded up, the last window may end beyond the padding.
        check.dimensions(
            [(n - 1) * s + r for n, s, r in zip(sizes, strides, reach, strict=True)],
            f"{given} the extents that the windows cover would be",
        )
        shape = input.shape[:height] + sizes + input.shape[height + 2 :]
        normal = {
            "window_dimensions": window, "padding": padding, "strides": strides,
            "dilations": dilations, "output_sizes": sizes,
        }
        return Inferred((MLOperandDescriptor(input.data_type, shape),), normal)

    infer.__name__ = name
    infer.__doc__ = f"""{formula} over a sliding window of height and width.

    The input is [batches, channels, height, width] ("nchw") or [batches, height, width, channels].
    ``window_dimensions`` [height, width] (the whole input when absent), ``padding`` [top, bottom,
    left, right], ``strides``, ``dilations`` [height, width]. ``output_sizes`` may choose between
    the calculated size rounded down and up and outranks ``output_shape_rounding``. Padding takes
    no part in the result. TypeError for a wrong count or a zero, or when no output remains.
    """
    record = operator("§8.9.37", input=Limits(types, (4, 4)), output=Like("input"))(infer)

    @record.reference
    def _(
        out: MLOperandDescriptor,
        input: np.ndarray,
        window_dimensions: tuple[int, ...],
        padding: tuple[int, ...],
        strides: tuple[int, ...],
        dilations: tuple[int, ...],
        layout: str,
        output_shape_rounding: str,
        output_sizes: tuple[int, ...],
    ) -> np.ndarray:
        height = 2 if layout == "nchw" else 1
        window = window_dimensions
        # How many elements each window covers, per axis.
        taps = []
        for i in range(2):
            first = np.arange(output_sizes[i]) * strides[i] - padding[2 * i]
            at = first[:, None] + np.arange(window[i]) * dilations[i]
            taps.append(((at >= 0) & (at < input.shape[height + i])).sum(axis=1))
        count = np.outer(*taps).reshape(*output_sizes, *([1] * (layout == "nhwc")))

        def windows(x: np.ndarray, fill: Any) -> np.ndarray:
            """x padded with ``fill``, as [..., output, ..., window height, window width]."""
            edges = [(0, 0)] * 4
            for i in range(2):
                last = (output_sizes[i] - 1) * strides[i] + (window[i] - 1) * dilations[i]
                after = max(0, last + 1 - padding[2 * i] - x.shape[height + i])
                edges[height + i] = (padding[2 * i], after)
            x = np.pad(x, edges, constant_values=fill)
            reach = tuple((w - 1) * d + 1 for w, d in zip(window, dilations, strict=True))
            view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(height, height + 1))
            index: list[Any] = [slice(None)] * 4 + [slice(None, None, d) for d in dilations]
            for i in range(2):
                last = (output_sizes[i] - 1) * strides[i] + 1
                index[height + i] = slice(0, last, strides[i])
            return view[tuple(index)]

        # A window that lies in the padding alone (possible when rounding up) gives 0.
        return np.where(count > 0, compute(input, windows, count), 0)

    return record.lowers_to(Kernel("pool"))


def _taps(view: np.ndarray) -> list[np.ndarray] | None:
    """The windows' elements one position at a time, which spares a copy of the overlapping view;
    None where the windows are larger than the output, so that this would take many steps."""
    height, width = view.shape[4:]
    if height * width > view[..., 0, 0].size:
        return None
    return [view[..., y, x] for y in range(height) for x in range(width)]


def _total(view: np.ndarray) -> np.ndarray:
    taps = _taps(view)
    if taps is None:
        return view.sum(axis=(4, 5), dtype=np.float64)
    total = np.zeros(view.shape[:4], np.float64)
    for tap in taps:
        total += tap
    return total


def _maximum(input: np.ndarray, windows: Callable[..., np.ndarray], count: Any) -> np.ndarray:
    view = windows(input, -np.inf if input.dtype.kind == "f" else np.iinfo(input.dtype).min)
    taps = _taps(view)
    if taps is None:
        return view.max(axis=(4, 5))
    result = taps[0].copy()
    for tap in taps[1:]:
        np.maximum(result, tap, out=result)
    return result


def _average(input: np.ndarray, windows: Callable[..., np.ndarray], count: Any) -> np.ndarray:
    return _total(windows(input, 0)) / count


def _norm(input: np.ndarray, windows: Callable[..., np.ndarray], count: Any) -> np.ndarray:
    return np.sqrt(_total(windows(input * input, 0)))


average_pool2d = _pooling("average_pool2d", FLOAT_TYPES, "Mean", _average)
l2_pool2d = _pooling("l2_pool2d", FLOAT_TYPES, "Square root of the sum of squares", _norm)
max_pool2d = _pooling("max_pool2d", ALL_TYPES, "Maximum (NaN when an element is NaN)", _maximum)
