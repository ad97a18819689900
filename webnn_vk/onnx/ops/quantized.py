"""Quantised operators: Q/DQ, QLinear*, *Integer, and ONNX Runtime's own."""

from __future__ import annotations

from typing import Any

import numpy as np

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext, check_made
from ..errors import refuse_if
from ..records import MICROSOFT, onnx_operator
from ..types import NATIVE, numpy_type, type_name
from ..values import Tensor
from . import byte_products
from .byte_products import centred, row_view
from .convolution import ConvAttributes, WindowAttributes, channels_first
from .convolution import channels_last as to_channels_last
from .normalization import by_rows
from .pooling import average_pool
from .recurrent import RecurrentAttributes, lstm_layer

_RANGES = {
    "int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3),
    "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1),
}


def per_axis(
    c: NodeContext, value: Tensor, x: Tensor, axis: int, block_size: int, repeated: bool = False
) -> MLOperand:
    """A scale or zero point with the rank of what it applies to: one number, one per element of an
    axis, or one per block (``repeated`` for each element)."""
    rank = x.rank
    if value.size == 1 and value.rank <= 1:
        return c.reshape(value, [1] * rank)
    if value.rank == 1 < rank:
        view = [1] * rank
        view[c.axis(axis, rank)] = value.size
        return c.reshape(value, view)
    refuse_if(value.rank != rank, f"scale {list(value.shape)} for an input {list(x.shape)}")
    at = c.axis(axis, rank)
    if block_size and (repeated or x.shape[at] != value.shape[at] * block_size):
        # If the last block is shorter: one number per element.
        blocks = -(-x.shape[at] // block_size)
        refuse_if(value.shape[at] != blocks, f"{value.shape[at]} scales for {blocks} blocks")
        check_made(x.shape[at])
        indices = np.arange(x.shape[at]) // block_size
        return c.b.gather(value, indices.astype(np.int32), axis=at)
    return value.operand


@onnx_operator("QuantizeLinear", storage=True)
@onnx_operator("QuantizeLinear", domain=MICROSOFT, storage=True)
def quantize_linear(
    c: NodeContext,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Tensor:
    if zero_point is not None:
        target = zero_point.type
    else:
        target = type_name(output_dtype) if output_dtype else "uint8"
    carried = c.carrier(target)
    s = per_axis(c, scale, x, axis, block_size)
    data = c.cast(x, s.data_type) if x.operand.data_type not in ("float32", "float16") else x
    data = c.operand(data)
    if data.data_type != s.data_type:
        data, s = c.cast(data, "float32"), c.cast(s, "float32")
    refuse_if(
        carried.startswith("float") and target not in NATIVE,
        f"quantisation to {target} would need its rounding",
    )
    if zero_point is None:
        z = c.constant(np.zeros(s.shape), carried)
    else:
        z = per_axis(c, zero_point, x, axis, block_size)
    result = c.b.quantize_linear(data, s, z)
    if target in _RANGES and carried != target:
        low, high = _RANGES[target]
        result = c.b.clamp(result, min_value=low, max_value=high)
    return c.typed(result, target)


@onnx_operator("DequantizeLinear", storage=True)
@onnx_operator("DequantizeLinear", domain=MICROSOFT, storage=True)
def dequantize_linear(
    c: NodeContext,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    target = type_name(output_dtype) if output_dtype else scale.type
    if x.array is not None and x.array.dtype.kind not in "iu" and x.type.startswith("float"):
        # float8 weights: widened at import
        x = c.conversion.tensor(x.array.astype(numpy_type(c.carrier(scale.type))))
        result = c.b.mul(x, per_axis(c, scale, x, axis, block_size, repeated=True))
        return c.typed(c.cast(result, c.carrier(target)), target)
    s = per_axis(c, scale, x, axis, block_size)
    if zero_point is None:
        z = c.constant(np.zeros(s.shape), x.operand.data_type)
    else:
        z = per_axis(c, zero_point, x, axis, block_size)
    result = c.b.dequantize_linear(x, s, z)
    return c.typed(c.cast(result, c.carrier(target)), target)


# -- whole numbers in float32 --------------------------------------------------------------------
def _scale(c: NodeContext, scale: Tensor, view: list[int]) -> MLOperand:
    return c.cast(c.reshape(scale, [] if scale.size == 1 else view), "float32")


def _requantized(
    c: NodeContext, total: MLOperand, factor: MLOperand, zero_point: Tensor
) -> MLOperand:
    """total · factor rounded, plus the zero point, within the type's range."""
    shape = [1] * len(total.shape)
    one = c.constant(np.ones(shape), "float32")
    return c.b.quantize_linear(c.b.mul(total, factor), one, c.reshape(zero_point, shape))


@onnx_operator("MatMulInteger")
def matmul_integer(
    c: NodeContext, a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> MLOperand:
    return c.cast(byte_products.product(c, a, a_zero, b, b_zero), "int32")


@onnx_operator("QLinearMatMul")
def qlinear_matmul(
    c: NodeContext, a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor,
    b_zero: Tensor, y_scale: Tensor, y_zero: Tensor,
) -> MLOperand:
    rows, columns = row_view(a), [1, b.shape[-1]]
    total = c.cast(byte_products.product(c, a, a_zero, b, b_zero), "float32")
    factor = c.b.mul(_scale(c, a_scale, rows), _scale(c, b_scale, columns))
    return _requantized(c, total, c.b.div(factor, _scale(c, y_scale, columns)), y_zero)


def _in_bytes(c: NodeContext, x: MLOperand, axes: list[int]) -> tuple[MLOperand, MLOperand]:
    """x rounded to 256 steps between its least and its largest element along the axes, 0 among
    them: whole numbers that are 0 where x is, as float32, and the length of a step."""
    options: dict[str, Any] = {"axes": axes, "keep_dimensions": True}
    low = c.b.min(c.b.reduce_min(x, **options), 0)
    high = c.b.max(c.b.reduce_max(x, **options), 0)
    scale = c.b.div(c.b.sub(high, low), 255)
    scale = c.b.where(c.b.equal(scale, 0), c.constant(1, "float32"), scale)
    zero = c.b.clamp(c.b.round_even(c.b.neg(c.b.div(low, scale))), min_value=0, max_value=255)
    rounded = c.b.add(c.b.round_even(c.b.div(x, scale)), zero)
    return c.b.sub(c.b.clamp(rounded, min_value=0, max_value=255), zero), scale


@onnx_operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    c: NodeContext, a: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> MLOperand:
    columns = [1, b.shape[-1]]
    left, scale = _in_bytes(c, a.operand, list(range(a.rank)))
    scale = c.reshape(scale, [])
    total = c.cast(byte_products.product_with(c, left, 255, b, b_zero), "float32")
    result = c.b.mul(total, c.b.mul(_scale(c, b_scale, columns), scale))
    return result if bias is None else c.b.add(result, bias)


@onnx_operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    c: NodeContext, a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor,
    a_zero: Tensor | None = None, b_zero: Tensor | None = None, bias: Tensor | None = None,
) -> MLOperand:
    rows, columns = row_view(a), [1, b.shape[-1]]
    total = c.cast(byte_products.product(c, a, a_zero, b, b_zero), "float32")
    result = c.b.mul(total, c.b.mul(_scale(c, a_scale, rows), _scale(c, b_scale, columns)))
    return result if bias is None else c.b.add(result, bias)


@onnx_operator("ConvInteger")
def conv_integer(
    c: NodeContext, x: Tensor, w: Tensor, x_zero: Tensor | None = None,
    w_zero: Tensor | None = None, *, given: ConvAttributes,
) -> MLOperand:
    return c.cast(byte_products.convolution(c, x, x_zero, w, w_zero, given), "int32")


@onnx_operator("QLinearConv")
@onnx_operator("QLinearConv", domain=MICROSOFT)
def qlinear_conv(
    c: NodeContext, x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor,
    w_zero: Tensor, y_scale: Tensor, y_zero: Tensor, bias: Tensor | None = None, *,
    given: ConvAttributes, channels_last: int = 0,
) -> MLOperand:
    x = channels_first(c, x) if channels_last else x
    view = [1, w.shape[0], *[1] * (x.rank - 2)]
    total = byte_products.with_bias(
        c, byte_products.convolution(c, x, x_zero, w, w_zero, given), bias, view
    )
    factor = c.b.mul(_scale(c, x_scale, []), _scale(c, w_scale, view))
    result = _requantized(c, total, c.b.div(factor, _scale(c, y_scale, [])), y_zero)
    return to_channels_last(c, result) if channels_last else result


# -- ONNX Runtime's operators between dequantised values -------------------------------------------
def _real(c: NodeContext, x: Tensor, scale: Tensor, zero_point: Tensor | None) -> MLOperand:
    return c.b.mul(centred(c, x, zero_point, []), _scale(c, scale, []))


def _byte(
    c: NodeContext, x: MLOperand, scale: Tensor, zero_point: Tensor | None, like: Tensor
) -> MLOperand:
    shape = [1] * len(x.shape)
    kind = like.operand.data_type
    zero = (
        c.constant(np.zeros(shape), kind) if zero_point is None else c.reshape(zero_point, shape)
    )
    return c.b.quantize_linear(x, c.cast(c.reshape(scale, shape), "float32"), zero)


@onnx_operator("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def qlinear_binary(
    c: NodeContext, a: Tensor, a_scale: Tensor, a_zero: Tensor | None, b: Tensor, b_scale: Tensor,
    b_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None,
) -> MLOperand:
    method = c.b.add if c.operator == "QLinearAdd" else c.b.mul
    result = method(_real(c, a, a_scale, a_zero), _real(c, b, b_scale, b_zero))
    return _byte(c, result, y_scale, y_zero, a)


@onnx_operator("QLinearWhere", domain=MICROSOFT)
def qlinear_where(
    c: NodeContext, condition: Tensor, a: Tensor, a_scale: Tensor, a_zero: Tensor | None,
    b: Tensor, b_scale: Tensor, b_zero: Tensor | None, y_scale: Tensor,
    y_zero: Tensor | None = None,
) -> MLOperand:
    chosen = c.b.where(condition, _real(c, a, a_scale, a_zero), _real(c, b, b_scale, b_zero))
    return _byte(c, chosen, y_scale, y_zero, a)


@onnx_operator("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_unary(
    c: NodeContext, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor,
    y_zero: Tensor | None = None, *, alpha: float = 0.01,
) -> MLOperand:
    real = _real(c, x, x_scale, x_zero)
    if c.operator == "QLinearSigmoid":
        return _byte(c, c.b.sigmoid(real), y_scale, y_zero, x)
    return _byte(c, c.b.leaky_relu(real, alpha=alpha), y_scale, y_zero, x)


@onnx_operator("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(
    c: NodeContext, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor,
    y_zero: Tensor | None = None, *, axis: int = -1, opset: int,
) -> MLOperand:
    real = _real(c, x, x_scale, x_zero)
    at = c.axis(axis, x.rank)
    if opset >= 13:
        result = c.b.softmax(real, at)
    else:
        result = by_rows(c, real, at, lambda rows: c.b.softmax(rows, 1))
    return _byte(c, result, y_scale, y_zero, x)


@onnx_operator("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(
    c: NodeContext, x: Tensor, x_scale: Tensor, x_zero: Tensor, y_scale: Tensor, y_zero: Tensor,
    *, channels_last: int = 0,
) -> MLOperand:
    axes = list(range(1, x.rank - 1)) if channels_last else list(range(2, x.rank))
    mean = c.b.reduce_mean(_real(c, x, x_scale, x_zero), axes=axes, keep_dimensions=True)
    return _byte(c, mean, y_scale, y_zero, x)


@onnx_operator("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(
    c: NodeContext, y_scale: Tensor, y_zero: Tensor, *inputs: Tensor, axis: int
) -> MLOperand:
    parts = [_real(c, *inputs[i : i + 3]) for i in range(0, len(inputs), 3)]
    whole = c.b.concat(parts, c.axis(axis, len(parts[0].shape)))
    return _byte(c, whole, y_scale, y_zero, inputs[0])


@onnx_operator("QGemm", domain=MICROSOFT)
def qgemm(
    c: NodeContext, a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor,
    b_zero: Tensor, bias: Tensor | None = None, y_scale: Tensor | None = None,
    y_zero: Tensor | None = None, *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> MLOperand:
    left, right = (
        c.typed(c.transpose(x, [1, 0]), x.type) if t and x.array is None else
        c.conversion.tensor(x.array.T) if t else x
        for x, t in ((a, transA), (b, transB))
    )
    total = byte_products.with_bias(
        c, byte_products.product(c, left, a_zero, right, b_zero), bias,
        [1] * (2 - bias.rank) + list(bias.shape) if bias is not None else [],
    )
    row = [1, right.shape[1]]
    factor = c.b.mul(c.b.mul(_scale(c, a_scale, []), _scale(c, b_scale, row)), alpha)
    if y_scale is None:
        return c.b.mul(total, factor)
    return _requantized(c, total, c.b.div(factor, _scale(c, y_scale, [])), y_zero)


@onnx_operator("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(
    c: NodeContext, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None, lengths: Tensor | None,
    initial_h: Tensor | None, initial_c: Tensor | None, peephole: Tensor | None, w_scale: Tensor,
    w_zero: Tensor, r_scale: Tensor, r_zero: Tensor, *, given: RecurrentAttributes,
    input_forget: int = 0,
) -> list[MLOperand | None]:
    def real(weight: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        """[directions, inputs, 4 · hidden] of bytes as [directions, 4 · hidden, inputs]."""
        view = [scale.shape[0], 1, -1] if scale.rank == 2 else [scale.size, 1, 1]
        shape = [view[0], 1, scale.size // view[0]]
        data = c.b.sub(c.cast(weight, "float32"), c.cast(c.reshape(zero, shape), "float32"))
        data = c.b.mul(data, c.reshape(scale, shape))
        return c.typed(c.transpose(data, [0, 2, 1]), "float32")

    def rounded(v: MLOperand, axes: list[int]) -> MLOperand:
        return c.b.mul(*_in_bytes(c, v, axes))

    steps = x.shape[0]
    seen = x.operand
    if lengths is not None:
        # Elements behind the longest sequence don't matter.
        places = c.constant(np.arange(steps).reshape(steps, 1, 1), "int32")
        longest = c.b.reduce_max(c.cast(lengths, "int32"))
        seen = c.b.where(c.b.lesser(places, longest), seen, c.constant(0, "float32"))
    # As ONNX Runtime does: the input as a whole; the states at each step, of each sequence by
    # itself where each gets a thread (if there are enough threads), else of all.
    hidden = given.hidden_size or r.shape[1]
    together = [1] if x.shape[1] > 4 or hidden <= 256 else [0, 1]
    return lstm_layer(
        c, c.typed(rounded(seen, [0, 1, 2]), "float32"), real(w, w_scale, w_zero),
        real(r, r_scale, r_zero), bias, lengths, [initial_h, initial_c], peephole, input_forget,
        given, rounded=lambda v: rounded(v, together),
    )


@onnx_operator("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(
    c: NodeContext, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor,
    y_zero: Tensor | None = None, *, given: WindowAttributes, ceil_mode: int = 0,
    channels_last: int = 0, count_include_pad: int = 0,
) -> MLOperand:
    real = c.typed(_real(c, x, x_scale, x_zero), "float32")
    pooled = average_pool(
        c, channels_first(c, real) if channels_last else real, given=given, ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
    )
    return _byte(c, to_channels_last(c, pooled) if channels_last else pooled, y_scale, y_zero, x)
