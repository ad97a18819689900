"""Columns of rows as a model's inputs, with the rows that don't fit; columns of Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from webnn_vk.support.errors import sanitize

Where = Callable[[int], str]
Dimensions = Sequence[int | str | None]


class RowError(ValueError):
    """Rows that a model can't take: a missing column, a wrong type or shape, an unreadable image.
    The message names the first row, its file where it is known, and the column."""


def batched(
    column: str, values: np.ndarray, dtype: np.dtype, shape: Dimensions
) -> tuple[np.ndarray | None, dict[int, str]]:
    """The rows of a column as one array of ``dtype``, ``shape`` (of one row) behind the rows, and
    what is wrong with rows, by their place; the array is None if something is. Without a copy if
    the column has the type and is contiguous."""
    array = _fitting(values, dtype, shape)
    if not isinstance(array, str):
        return array, {}
    wrong = {}
    expected = shown = f"{dtype.name}{[d if isinstance(d, int) else '?' for d in shape]}"
    for place, value in enumerate(values):
        row = _fitting(stacked([value]), dtype, shape)
        if isinstance(row, str):
            wrong[place] = f"column {sanitize(column)!r}: {row}; {expected} is expected"
        else:  # rows of one batch need one shape
            shape = row.shape[1:]
            expected = f"{shown}, {list(shape)} as in rows before it," if "?" in shown else shown
    return None, wrong or {0: f"column {sanitize(column)!r}: {array}; {expected} is expected"}


def stacked(values: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Objects as one array, of objects where they don't fit together."""
    try:
        arrays = map(np.asarray, values)
        return np.array([a.tolist() if a.dtype == object else a for a in arrays])
    except ValueError:  # ragged
        return np.fromiter(values, object)


def _fitting(values: np.ndarray, dtype: np.dtype, shape: Dimensions) -> np.ndarray | str:
    """The array of a model's input, or what is in the way."""
    array = stacked(values) if values.dtype == object else values
    if array.dtype.kind not in "biuf":
        shown = sanitize(repr(array[:1].tolist())[1:-1])[:60]
        return f"{shown} is no number" if array.ndim == 1 else f"{shown} are not all numbers"
    if array.dtype != dtype:
        if array.dtype.kind == "f" and dtype.kind != "f" or dtype.kind == "b":
            return f"{array.dtype} is given"
        if dtype.kind in "iu" and array.size and not np.can_cast(array.dtype, dtype):
            limits = np.iinfo(dtype)
            if array.min() < limits.min or array.max() > limits.max:
                return f"{array.min()} to {array.max()} is given"
        array = array.astype(dtype)
    row = array.shape[1:]
    if len(row) == len(shape) and all(
        not isinstance(d, int) or d == n for d, n in zip(shape, row, strict=True)
    ):
        return array
    fixed = [d for d in shape if isinstance(d, int)]
    if len(fixed) == len(shape) and len(row) == 1 and row[0] == np.prod(fixed, dtype=int):
        return array.reshape(-1, *fixed)  # files and Spark have flat lists
    return f"the shape is {list(row)}"


# -- Arrow ----------------------------------------------------------------------------------------
def from_arrow(column: Any) -> np.ndarray:
    """A column of an Arrow table as an array, without a copy where it is one piece of numbers or
    of lists of one length. Nulls become None."""
    import pyarrow as pa

    one = column
    if isinstance(column, pa.ChunkedArray):  # several are joined by a copy
        one = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if one.null_count:
        return np.fromiter(one.to_pylist(), object)
    if isinstance(one, pa.FixedShapeTensorArray):
        return one.to_numpy_ndarray()
    if isinstance(one, pa.FixedSizeListArray) and not one.flatten().null_count:
        flat = from_arrow(one.flatten())
        return flat.reshape(len(one), one.type.list_size, *flat.shape[1:])
    if isinstance(one, (pa.ListArray, pa.LargeListArray)) and len(one) and len(one[0]):
        with suppress(pa.ArrowInvalid):  # lists of different lengths
            return from_arrow(one.cast(pa.list_(one.type.value_type, len(one[0]))))
    return one.to_numpy(zero_copy_only=False)


def to_arrow(array: np.ndarray) -> Any:
    """An array as a column of an Arrow table, a tensor or list in each row, without a copy if it is
    contiguous."""
    import pyarrow as pa

    if array.ndim == 1:
        return pa.array(array)
    array = np.ascontiguousarray(array)
    if array.ndim == 2 and array.size:
        return pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), array.shape[1])
    return pa.FixedShapeTensorArray.from_numpy_ndarray(array)
