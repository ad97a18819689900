"""Reductions (§8.9.39), arg_min and arg_max (§8.9.5), cumulative_sum (§8.9.12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..types.data_types import ALL_TYPES, DATA_TYPES, FLOAT_TYPES, MAX_RANK, MLOperandDescriptor
from .arguments import U32, Bool, DataTypeName, Operand, Shape
from .lowering import PlainKernel, Reduce
from .record import Check, Inferred, Like, Limits, Operator, operator

# The types that the arithmetic reductions allow: 8-bit integers would overflow soon.
ARITHMETIC_TYPES = ("float32", "float16", "int32", "uint32", "int64", "uint64")


def reduced_shape(
    shape: Sequence[int], axes: Sequence[int], keep_dimensions: bool
) -> tuple[int, ...]:
    """The draft's "reduction output sizes" for valid axes."""
    if keep_dimensions:
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def _reduction(
    name: str, types: tuple[str, ...], formula: str, lowering: Reduce, compute: Callable[..., Any]
) -> Operator:
    def infer(
        check: Check, input: Operand, *, axes: Shape = None, keep_dimensions: Bool = False
    ) -> Inferred:
        # spec: reduction, step 5: absent axes are all of them, empty ones are none
        axes = tuple(range(input.rank)) if axes is None else axes
        check.axes(axes, input.rank)
        shape = reduced_shape(input.shape, axes, keep_dimensions)
        return Inferred.like(input, shape, axes=axes)

    infer.__name__ = name
    infer.__doc__ = f"""{formula} over the given axes of the input (all when absent).

    ``axes``: the dimensions to reduce; if empty, the function is applied to each element.
    ``keep_dimensions``: reduced dimensions stay, with size 1. The output has the input's data type;
    integers wrap around. TypeError for axes out of range or given twice.
    """
    record = operator("§8.9.39", input=Limits(types), output=Like("input"))(infer)

    @record.reference
    def _(out: Any, input: np.ndarray, axes: tuple[int, ...], keep_dimensions: bool) -> np.ndarray:
        return compute(input, axis=axes)

    return record.lowers_to(lowering)


def _wide(x: np.ndarray) -> Any:
    """The type to accumulate in: floats in double, integers wrap in their own type."""
    return np.float64 if x.dtype.kind == "f" else x.dtype


def _sum(x: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
    return np.sum(x, axis=axis, dtype=_wide(x))


def _product(x: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
    return np.prod(x, axis=axis, dtype=_wide(x))


def _log_sum_exp(x: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
    # Relative to the largest element, so that exp does not overflow and the sum is not 0.
    top = np.max(x, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0).astype(x.dtype)
    total = np.sum(np.exp(x - top), axis=axis, keepdims=True, dtype=np.float64)
    return np.log(total) + top


def _mean(x: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
    return np.mean(x, axis=axis, dtype=np.float64)


reduce_l1 = _reduction(
    "reduce_l1", ARITHMETIC_TYPES, "Sum of the absolute values", Reduce("l1"),
    lambda x, axis: _sum(np.abs(x), axis),
)
reduce_l2 = _reduction(
    "reduce_l2", FLOAT_TYPES, "Square root of the sum of squares", Reduce("square", "sqrt"),
    lambda x, axis: np.sqrt(_sum(x * x, axis)),
)
reduce_log_sum = _reduction(
    "reduce_log_sum", FLOAT_TYPES, "Natural logarithm of the sum", Reduce("sum", "log"),
    lambda x, axis: np.log(_sum(x, axis)),
)
reduce_log_sum_exp = _reduction(
    "reduce_log_sum_exp", FLOAT_TYPES, "Natural logarithm of the sum of exponentials",
    Reduce("log_sum_exp"), _log_sum_exp,
)
reduce_max = _reduction(
    "reduce_max", ALL_TYPES, "Maximum (NaN when an element is NaN)", Reduce("order"),
    lambda x, axis: x.max(axis=axis),
)
reduce_mean = _reduction("reduce_mean", FLOAT_TYPES, "Mean", Reduce("sum", "mean"), _mean)
reduce_min = _reduction(
    "reduce_min", ALL_TYPES, "Minimum (NaN when an element is NaN)", Reduce("order", "reversed"),
    lambda x, axis: x.min(axis=axis),
)
reduce_product = _reduction(
    "reduce_product", ARITHMETIC_TYPES, "Product", Reduce("product"), _product
)
reduce_sum = _reduction("reduce_sum", ARITHMETIC_TYPES, "Sum", Reduce("sum"), _sum)
reduce_sum_square = _reduction(
    "reduce_sum_square", ARITHMETIC_TYPES, "Sum of squares", Reduce("square"),
    lambda x, axis: _sum(x * x, axis),
)


def _arg(name: str, extreme: str, finish: str, compute: Callable[..., Any]) -> Operator:
    types = ("int32", "int64")

    def infer(
        check: Check,
        input: Operand,
        axis: U32,
        *,
        keep_dimensions: Bool = False,
        output_data_type: DataTypeName = "int32",
    ) -> MLOperandDescriptor:
        check.axis(axis, input)
        check.that(
            output_data_type in types,
            f"output_data_type is {output_data_type}; it has to be one of {', '.join(types)}",
        )
        # spec: argMin/argMax, step 6
        limit = np.iinfo(DATA_TYPES[output_data_type].numpy).max
        check.that(
            input.shape[axis] <= limit,
            f"input is {input}: indices along axis {axis} do not fit in {output_data_type}",
        )
        shape = reduced_shape(input.shape, (axis,), keep_dimensions)
        return MLOperandDescriptor(output_data_type, shape)

    infer.__name__ = name
    infer.__doc__ = f"""Index of the {extreme} element along an axis.

    Of equal elements the first; a NaN counts as the {extreme}. The output is int32 or int64
    (``output_data_type``), without the axis, or with size 1 in it (``keep_dimensions``).
    TypeError for an axis out of range or another output data type.
    """
    record = operator(
        "§8.9.5", input=Limits(ALL_TYPES, (1, MAX_RANK)), output=Limits(types)
    )(infer)

    @record.reference
    def _(
        out: Any, input: np.ndarray, axis: int, keep_dimensions: bool, output_data_type: str
    ) -> np.ndarray:
        return compute(input, axis=axis)

    return record.lowers_to(Reduce("arg", finish, axes="axis"))


arg_min = _arg("arg_min", "smallest", "reversed", np.argmin)
arg_max = _arg("arg_max", "largest", "", np.argmax)


@operator("§8.9.12", input=Limits(ARITHMETIC_TYPES, (1, MAX_RANK)), output=Like("input"))
def cumulative_sum(
    check: Check, input: Operand, axis: U32, *, exclusive: Bool = False, reversed: Bool = False
) -> MLOperandDescriptor:
    """Running sum of the input along an axis; the output has the input's shape and data type.

    ``exclusive``: each sum excludes its own element ([1,2,3] → [0,1,3]); ``reversed``: sums begin
    at the end. Integers wrap around. TypeError for an axis out of range.
    """
    check.axis(axis, input)
    return check.same_as(input)


@cumulative_sum.reference
def _(out: Any, input: np.ndarray, axis: int, exclusive: bool, reversed: bool) -> np.ndarray:
    x = np.moveaxis(input, axis, -1)
    x = x[..., ::-1] if reversed else x
    sums = np.cumsum(x, axis=-1, dtype=_wide(x))
    if exclusive:
        sums = np.concatenate([np.zeros_like(sums[..., :1]), sums[..., :-1]], axis=-1)
    sums = sums[..., ::-1] if reversed else sums
    return np.moveaxis(sums, -1, axis)


cumulative_sum.lowers_to(PlainKernel("scan"))
