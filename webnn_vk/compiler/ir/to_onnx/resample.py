"""resample2d with positions computed exactly in integers, unlike in ONNX's Resize."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.resample import source_positions
from .writer import Tensor, Writer, rule


@rule("resample2d")
def resample2d(
    w: Writer, input: Tensor, mode: str, sizes: Sequence[int], axes: Sequence[int]
) -> Tensor:
    x = input
    if mode == "linear" and not input.is_float:
        x = w.cast(x, "float32")
    if mode == "linear" and input.is_float and sorted(axes) == [2, 3]:
        return w.op(
            "Resize", x, None, None, w.integers(w.result.shape), shape=w.result.shape,
            mode="linear", coordinate_transformation_mode="half_pixel",
        )
    for axis, size in sorted(zip(axes, sizes, strict=True), reverse=True):
        shape = [size if i == axis else d for i, d in enumerate(x.shape)]
        positions = source_positions(x.shape[axis], size, mode)
        left = w.op("Gather", x, w.constant(positions[0]), shape=shape, axis=axis)
        if mode != "linear":
            x = left
            continue
        right = w.op("Gather", x, w.constant(positions[1]), shape=shape, axis=axis)
        t = positions[2].reshape([-1 if i == axis else 1 for i in range(4)]).astype(x.data_type)
        x = w.op(
            "Add", w.op("Mul", left, w.constant(1 - t)), w.op("Mul", right, w.constant(t))
        )
    if x.data_type != input.data_type:
        x = w.cast(w.op("Round", x), input.data_type)
    return x
