"""Shapes and constants: known at import, whatever the tensors hold."""

from __future__ import annotations

import numpy as np

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext, check_made
from ..errors import Unsupported
from ..folding import MAX_ELEMENTS
from ..records import MICROSOFT, onnx_operator
from ..shape_arithmetic import has_sizes
from ..types import numpy_type, type_name
from ..values import Tensor


@onnx_operator("Shape", storage=True)
def shape(c: NodeContext, x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    return c.conversion.of_sizes("int64", x.shape[start:end])


@onnx_operator("Size", storage=True)
def size(c: NodeContext, x: Tensor) -> Tensor:
    return c.conversion.of_sizes("int64", x.size)


@onnx_operator("Constant")
def constant(
    c: NodeContext,
    *,
    value: np.ndarray | None = None,
    sparse_value: np.ndarray | None = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
    value_string: str | None = None,
    value_strings: list[str] | None = None,
) -> np.ndarray:
    if value is not None:
        return value
    if sparse_value is not None:
        return sparse_value
    for given, dtype in ((value_float, np.float32), (value_floats, np.float32),
                         (value_int, np.int64), (value_ints, np.int64)):
        if given is not None:
            return np.array(given, dtype)
    raise Unsupported("WebNN has no strings")


@onnx_operator("ConstantOfShape")
def constant_of_shape(
    c: NodeContext, shape: Tensor, *, value: np.ndarray | None = None
) -> np.ndarray | MLOperand:
    lengths = c.ints(shape, "the shape")
    number = np.zeros(1, np.float32) if value is None else value
    if not has_sizes(lengths) and np.prod(lengths, dtype=float) <= MAX_ELEMENTS:
        return np.full(lengths, number.reshape(-1)[0], number.dtype)
    return c.b.expand(c.constant(number.reshape(()), c.carrier(number.dtype.name)), lengths)


@onnx_operator("Range")
@onnx_operator("Range", domain=MICROSOFT)
def arange(
    c: NodeContext, start: Tensor, limit: Tensor, delta: Tensor | None = None, *,
    stash_type: int = 1,
) -> np.ndarray | MLOperand:
    ends = [*start.elements("start"), *limit.elements("limit")]
    if has_sizes(ends) and (delta is None or delta.elements("delta") == [1]):
        return c.conversion.from_table(start.type, ends[0], ends[1] - ends[0])
    first, last = (
        x.value(what).reshape(()) for x, what in ((start, "start"), (limit, "limit"))
    )
    step = np.ones((), first.dtype)
    if delta is not None:
        step = delta.value("delta").reshape(())
    if not np.isfinite([float(v) for v in (first, last, step)]).all() or step == 0:
        raise Unsupported(f"from {first} to {last} by steps of {step}: it has no end")
    if first.dtype.kind in "iu":
        count = len(range(int(first), int(last), int(step)))
    else:
        count = max(0, int(np.ceil((last.astype(float) - first.astype(float)) / float(step))))
    check_made(count)
    steps = np.arange(count).astype(first.dtype)
    return (first + steps * step.astype(first.dtype)).astype(first.dtype)


@onnx_operator("EyeLike", storage=True)
def eye_like(c: NodeContext, x: Tensor, *, dtype: int | None = None, k: int = 0) -> np.ndarray:
    check_made(*x.shape)
    name = x.type if dtype is None else type_name(dtype)
    return np.eye(*x.shape, k=k).astype(numpy_type(name))


@onnx_operator("BlackmanWindow", "HammingWindow", "HannWindow")
def window(
    c: NodeContext, size: Tensor, *, output_datatype: int = 1, periodic: int = 1
) -> np.ndarray:
    count = c.int(size, "the size")
    check_made(count)
    points = np.arange(count) * (2 * np.pi / (count if periodic else count - 1))
    terms = {
        "HannWindow": (0.5, -0.5, 0.0),
        "HammingWindow": (25 / 46, -21 / 46, 0.0),
        "BlackmanWindow": (0.42, -0.5, 0.08),
    }[c.operator]
    values = sum(t * np.cos(i * points) for i, t in enumerate(terms))
    return np.asarray(values).astype(numpy_type(type_name(output_datatype)))
