"""Products and convolutions with 8-bit weights: compiler operators, introduced by
`passes/quantized.py` and `passes/integer_products.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from webnn_vk.support.integers import round_up

from ..types.data_types import FLOAT_TYPES, MLOperandDescriptor
from .arguments import U32, Bool, Double, Operand, SequenceOf
from .convolution import Conv2dFilterLayout, InputLayout, conv2d, convolved
from .lowering import IntegerProduct, QuantizedConvolution, QuantizedProduct
from .record import Check, Inferred, Limits, compiler_operator

#: Data types of weights that products read directly.
WEIGHT_TYPES = ("int8", "uint8")
#: The longest inner dimension whose sums of products of 8-bit differences all fit in int32.
LONGEST_INTEGER_SUM = (2**31 - 1) // (255 * 255)
#: The inner dimension of b of `integer_matmul` is a multiple of this.
INTEGER_STEP = 16


@compiler_operator(
    a=Limits(FLOAT_TYPES, (2, 8)), b=Limits(WEIGHT_TYPES, (2, 2)), output=Limits(("float32",)),
)
def quantized_matmul(
    check: Check,
    a: Operand,
    b: Operand,
    *,
    zero_point: Double = 0.0,
    b_transpose: Bool = False,
) -> MLOperandDescriptor:
    """Σ a · (b − ``zero_point``): [.., M, K] by [K, N], or [N, K] with ``b_transpose``, gives
    [.., M, N] in float32. Scales are applied to the sum by other nodes."""
    inner, columns = b.shape[::-1] if b_transpose else b.shape
    check.that(
        a.shape[-1] == inner,
        f"a is {a} and b is {b}{' transposed' * b_transpose}; the columns of the first "
        f"({a.shape[-1]}) have to equal the rows of the second ({inner})",
    )
    _check_zero_point(check, zero_point)
    return MLOperandDescriptor("float32", (*a.shape[:-1], columns))


def _check_zero_point(check: Check, zero_point: float) -> None:
    check.that(
        zero_point == round(zero_point) and abs(zero_point) <= 255,
        f"zero_point is {zero_point}; a whole number of 8 bits is expected",
    )


@quantized_matmul.reference
def _(
    out: MLOperandDescriptor, a: np.ndarray, b: np.ndarray, zero_point: float, b_transpose: bool,
) -> np.ndarray:
    weights = b.astype(np.float32) - np.float32(zero_point)
    return np.matmul(a.astype(np.float32), weights.T if b_transpose else weights)


def _decompose(emit: Any, operands: Any, arguments: Any, outputs: Any) -> Any:
    """The same by operators of the specification."""
    a, b = operands["a"], operands["b"]
    scale = emit.constant(np.ones((1, 1), np.float32))
    zero = np.full((1, 1), arguments["zero_point"], b.descriptor.numpy_dtype)
    weights = emit.dequantize_linear(b, scale, emit.constant(zero))
    if arguments["b_transpose"]:
        weights = emit.transpose(weights, permutation=(1, 0))
    return emit.matmul(a if a.data_type == "float32" else emit.cast(a, "float32"), weights)


quantized_matmul.lowers_to(QuantizedProduct((("b", "b_transpose"),), _decompose))


@compiler_operator(
    a=Limits(WEIGHT_TYPES, (2, 8)), b=Limits(("int8",), (2, 2)), sums=Limits(("int32",), (1, 1)),
    zero_points=Limits(("int32",), (1, 1)), output=Limits(("float32",)),
)
def integer_matmul(
    check: Check,
    a: Operand,
    b: Operand,
    sums: Operand,
    *,
    zero_points: Operand = None,
    a_zero_point: Double = 0.0,
) -> MLOperandDescriptor:
    """Σ (a − ``a_zero_point``) · (b − ``zero_points``[n]), exact in int32 and given in float32:
    [.., M, K] by [N, K rounded up to 16] gives [.., M, N]; elements of b beyond K are ignored.
    ``sums`` [N] has to be Σ (b − ``zero_points``), each sum over K. Absent zero points are 0.
    Scales are applied to the sum by other nodes."""
    inner, (columns, wide) = a.shape[-1], b.shape
    check.that(
        wide == round_up(inner, INTEGER_STEP),
        f"a is {a} and b is {b}; b needs {round_up(inner, INTEGER_STEP)} columns, the "
        f"{inner} of a rounded up to {INTEGER_STEP}",
    )
    check.that(
        inner <= LONGEST_INTEGER_SUM,
        f"a is {a}; sums of {inner} products may not fit in int32, {LONGEST_INTEGER_SUM} at most",
    )
    # One for each row of b.
    check.shape("sums", sums, (columns,))
    check.shape("zero_points", zero_points, (columns,))
    _check_zero_point(check, a_zero_point)
    return MLOperandDescriptor("float32", (*a.shape[:-1], columns))


@integer_matmul.reference
def _(
    out: MLOperandDescriptor, a: np.ndarray, b: np.ndarray, sums: np.ndarray,
    zero_points: np.ndarray | None, a_zero_point: float,
) -> np.ndarray:
    # Whole numbers of this size are exact in float64, which NumPy multiplies by BLAS.
    weights = b[:, : a.shape[-1]].astype(np.float64)
    if zero_points is not None:
        weights -= zero_points[:, None]
    return np.matmul(a.astype(np.float64) - a_zero_point, weights.T).astype(np.float32)


def _decompose_integers(emit: Any, operands: Any, arguments: Any, outputs: Any) -> Any:
    """The same by operators of the specification."""
    a, b, zero_points = operands["a"], operands["b"], operands["zero_points"]
    left = emit.cast(a, "float32")
    if arguments["a_zero_point"]:
        left = emit.sub(left, emit.constant(arguments["a_zero_point"], "float32"))
    columns, inner = b.shape[0], a.shape[-1]
    if inner != b.shape[1]:
        b = emit.slice(b, (0, 0), (columns, inner))
    right = emit.cast(b, "float32")
    if zero_points is not None:
        zeros = emit.reshape(emit.cast(zero_points, "float32"), (columns, 1))
        right = emit.sub(right, zeros)
    return emit.matmul(left, emit.transpose(right, permutation=(1, 0)))


integer_matmul.lowers_to(IntegerProduct(_decompose_integers))


@compiler_operator(
    input=Limits(FLOAT_TYPES, (4, 4)), filter=Limits(WEIGHT_TYPES, (4, 4)),
    output=Limits(("float32",)),
)
def quantized_conv2d(
    check: Check,
    input: Operand,
    filter: Operand,
    *,
    zero_point: Double = 0.0,
    padding: SequenceOf(U32) = None,
    strides: SequenceOf(U32) = None,
    dilations: SequenceOf(U32) = None,
    groups: U32 = 1,
    input_layout: InputLayout = "nchw",
    filter_layout: Conv2dFilterLayout = "oihw",
) -> Inferred:
    """The conv2d of ``input`` and ``filter`` − ``zero_point``, in float32. Scales are applied to
    the result by other nodes."""
    _check_zero_point(check, zero_point)
    result = convolved(
        check, input, filter, padding, strides, dilations, groups, input_layout, filter_layout,
        None,
    )
    (output,) = result.outputs
    return Inferred((MLOperandDescriptor("float32", output.shape),), result.arguments)


@quantized_conv2d.reference
def _(
    out: MLOperandDescriptor, input: np.ndarray, filter: np.ndarray, zero_point: float,
    **arguments: Any,
) -> np.ndarray:
    weights = filter.astype(np.float32) - np.float32(zero_point)
    operands = {"input": input.astype(np.float32), "filter": weights, "bias": None}
    return conv2d.evaluate((out,), operands, arguments)[0]


def _decompose_conv2d(emit: Any, operands: Any, arguments: Any, outputs: Any) -> Any:
    """The same by operators of the specification."""
    x, filter = operands["input"], operands["filter"]
    plain = dict(arguments)
    zero = np.full((1, 1, 1, 1), plain.pop("zero_point"), filter.descriptor.numpy_dtype)
    weights = emit.dequantize_linear(
        filter, emit.constant(np.ones((1, 1, 1, 1), np.float32)), emit.constant(zero)
    )
    return emit.conv2d(x if x.data_type == "float32" else emit.cast(x, "float32"), weights, **plain)


quantized_conv2d.lowers_to(QuantizedConvolution(decompose=_decompose_conv2d))
