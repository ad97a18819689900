"""Pooling (§8.9.37): average_pool2d, l2_pool2d, max_pool2d."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from webnn_vk.support.cached_property import cached_property
from webnn_vk.support.dataclass import dataclass

from ..types.data_types import ALL_TYPES, FLOAT_TYPES, MLOperandDescriptor
from .arguments import Enum, Operand, Shape
from .convolution import valid_range
from .lowering import Pool
from .record import Check, Inferred, Like, Limits, Operator, operator


def _pooling(
    name: str, types: tuple[str, ...], formula: str, kind: str, compute: Callable[..., Any]
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
        window = check.positive(
            "window_dimensions", spatial if window_dimensions is None else window_dimensions
        )
        padding = check.items("padding", padding, (0, 0, 0, 0))
        strides = check.positive("strides", strides)
        dilations = check.positive("dilations", dilations)
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
            sizes = check.items("output_sizes", output_sizes, (1, 1))
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
        planes = input.shape[0] * input.shape[1 if layout == "nchw" else 3]
        check.materialised(
            [s + b + e for s, b, e in zip(spatial, padding[::2], padding[1::2], strict=True)],
            planes, f"{given} the padded extents would be",
        )
        # If the size is rounded up, the last window may end beyond the padding.
        check.materialised(
            [(n - 1) * s + r for n, s, r in zip(sizes, strides, reach, strict=True)],
            planes, f"{given} the extents that the windows cover would be",
        )
        shape = input.shape[:height] + sizes + input.shape[height + 2 :]
        return Inferred.like(
            input, shape, window_dimensions=window, padding=padding, strides=strides,
            dilations=dilations, output_sizes=sizes,
        )

    infer.__name__ = name
    infer.__doc__ = f"""{formula} over a sliding window of height and width.

    The input is [batches, channels, height, width] ("nchw") or [batches, height, width, channels].
    ``window_dimensions`` [height, width] (the whole input when absent), ``padding`` [top, bottom,
    left, right], ``strides``, ``dilations`` [height, width]. ``output_sizes`` may choose between
    the calculated size rounded down and up, and has precedence over ``output_shape_rounding``.
    Padding does not affect the result. TypeError for a wrong count or a zero, or if the output
    would be empty.
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
        axes = [
            Axis(
                height + i, input.shape[height + i], output_sizes[i], window_dimensions[i],
                padding[2 * i], strides[i], dilations[i],
            )
            for i in range(2)
        ]
        # The number of elements in each window.
        count = np.outer(*(axis.counts for axis in axes))
        count = count.reshape(*output_sizes, *([1] * (layout == "nhwc")))
        # First the axis that shrinks more, so that no array is larger than both input and output.
        axes.sort(key=lambda axis: axis.count / axis.size)

        # A window with only padding (possible when rounding up) gives 0.
        return np.where(count > 0, compute(input, axes, count), 0)

    return record.lowers_to(Pool(kind))


@dataclass(frozen=True)
class Axis:
    """Windows along one axis: ``count`` windows over ``size`` elements, each of ``window`` taps.
    Padding is never materialised: it may have billions of elements although input and output are
    small."""

    axis: int
    size: int
    count: int
    window: int
    before: int
    stride: int
    dilation: int

    @cached_property
    def taps(self) -> tuple[np.ndarray, np.ndarray]:
        """Each window's first tap inside the input, and its last + 1."""
        start = np.arange(self.count, dtype=np.int64) * self.stride - self.before
        first = np.maximum(0, -(start // self.dilation))
        end = np.minimum(self.window, (self.size - 1 - start) // self.dilation + 1)
        return first, np.maximum(first, end)

    @property
    def counts(self) -> np.ndarray:
        """The number of elements in each window."""
        return self.taps[1] - self.taps[0]

    def combine(self, ufunc: np.ufunc, x: np.ndarray, nothing: Any) -> np.ndarray:
        """The elements of each window combined along the axis; ``nothing`` for an empty one."""

        def at(where: Any) -> tuple[Any, ...]:
            return (*[slice(None)] * self.axis, where)

        result = np.full((*x.shape[: self.axis], self.count, *x.shape[self.axis + 1 :]), nothing)
        if self.window <= self.count:
            for tap in range(self.window):
                found = valid_range(
                    tap * self.dilation, self.stride, self.before, self.size, self.count
                )
                if found is not None:
                    target = result[at(found[0])]
                    ufunc(target, x[at(found[1])], out=target)
            return result
        for i, (first, end) in enumerate(zip(*self.taps, strict=True)):
            if first < end:
                start = i * self.stride - self.before + int(first) * self.dilation
                stop = start + int(end - first - 1) * self.dilation + 1
                part = x[at(slice(start, stop, self.dilation))]
                ufunc.reduce(part, axis=self.axis, dtype=result.dtype, out=result[at(i)])
        return result


def _total(x: np.ndarray, axes: list[Axis]) -> np.ndarray:
    for axis in axes:
        x = axis.combine(np.add, x, np.float64(0))
    return x


def _maximum(input: np.ndarray, axes: list[Axis], count: Any) -> np.ndarray:
    least = -np.inf if input.dtype.kind == "f" else np.iinfo(input.dtype).min
    for axis in axes:
        input = axis.combine(np.maximum, input, input.dtype.type(least))
    return input


def _average(input: np.ndarray, axes: list[Axis], count: Any) -> np.ndarray:
    return _total(input, axes) / count


def _norm(input: np.ndarray, axes: list[Axis], count: Any) -> np.ndarray:
    return np.sqrt(_total(input * input, axes))


average_pool2d = _pooling("average_pool2d", FLOAT_TYPES, "Mean", "average", _average)
l2_pool2d = _pooling(
    "l2_pool2d", FLOAT_TYPES, "Square root of the sum of squares", "l2", _norm
)
max_pool2d = _pooling(
    "max_pool2d", ALL_TYPES, "Maximum (NaN when an element is NaN)", "max", _maximum
)
