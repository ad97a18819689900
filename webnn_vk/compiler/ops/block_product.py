"""Products with weights of 4 or 8 bits that have a scale for each block: a compiler operator,
introduced by `passes/quantized.py` and used by `webnn_vk.generate`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types.data_types import FLOAT_TYPES, MLOperandDescriptor
from .arguments import U32, Double, Operand
from .lowering import BlockProduct
from .record import Check, Like, Limits, compiler_operator


@compiler_operator(
    a=Limits(FLOAT_TYPES, (2, 8)), b=Limits(("uint32",), (2, 2)),
    scale=Limits(FLOAT_TYPES, (2, 2)), offset=Like("scale"),
    output=Limits(("float32",)),
)
def block_matmul(
    check: Check,
    a: Operand,
    b: Operand,
    scale: Operand,
    *,
    offset: Operand = None,
    bits: U32 = 4,
    zero_point: Double = 0.0,
) -> MLOperandDescriptor:
    """Σ a · wᵀ in float32: [.., M, K] by weights [N, K] gives [.., M, N]. b [N, words] has unsigned
    integers q of 4 or 8 ``bits``, the first in the lowest bits of each word. A weight is
    (q − ``zero_point``) · ``scale`` + ``offset``, with a number of scale and offset [N, blocks] for
    each block along K: 4, 8, 16 … elements. Rows of b have whole blocks; what lies beyond K is
    ignored. An infinite scale gives infinities or NaN. Where a is float16, kernels may round
    weights to float16, as `dequantize_linear` does in such graphs."""
    inner, (rows, words) = a.shape[-1], b.shape
    check.that(bits in (4, 8), f"bits is {bits}; 4 or 8 is expected")
    check.that(
        zero_point == round(zero_point) and 0 <= zero_point < 1 << bits,
        f"zero_point is {zero_point}; a whole number of {bits} bits is expected",
    )
    stored, blocks = words * 32 // bits, scale.shape[1]
    block = stored // blocks
    check.that(
        scale.shape[0] == rows and stored == blocks * block and block >= 4
        and not block & (block - 1),
        f"scale is {scale} for b {b} of {bits} bits; [{rows}, {stored} / block] with blocks of 4, "
        "8, 16 … is expected",
    )
    check.that(
        stored - block < inner <= stored,
        f"a is {a} and rows of b have {blocks} blocks of {block}; the columns of a ({inner}) have "
        "to end in the last block",
    )
    if offset is not None:
        check.shape("offset", offset, scale.shape)
    return MLOperandDescriptor("float32", (*a.shape[:-1], rows))


def packed(integers: np.ndarray, bits: int) -> np.ndarray:
    """b of `block_matmul` for unsigned integers [N, K] of 4 or 8 bits (uint8). K is a multiple of
    32 / ``bits``."""
    if bits == 4:
        integers = integers[:, ::2] | integers[:, 1::2] << np.uint8(4)
    return np.ascontiguousarray(integers).view("<u4")


def unpacked(words: np.ndarray, bits: int) -> np.ndarray:
    """The integers [N, K], uint8, of b of `block_matmul`."""
    numbers = np.ascontiguousarray(words).astype("<u4", copy=False).view(np.uint8)
    if bits == 8:
        return numbers
    made = np.empty((*words.shape[:-1], 2 * numbers.shape[-1]), np.uint8)
    made[..., ::2], made[..., 1::2] = numbers & np.uint8(15), numbers >> np.uint8(4)
    return made


@block_matmul.reference
def _(
    out: MLOperandDescriptor, a: np.ndarray, b: np.ndarray, scale: np.ndarray,
    offset: np.ndarray | None, bits: int, zero_point: float,
) -> np.ndarray:
    blocks = unpacked(b, bits).astype(np.float32).reshape(*scale.shape, -1)
    blocks -= np.float32(zero_point)
    blocks *= scale.astype(np.float32)[..., None]
    if offset is not None:
        blocks += offset.astype(np.float32)[..., None]
    weights = blocks.reshape(len(b), -1)[:, : a.shape[-1]]
    return np.matmul(a.astype(np.float32), weights.T)


def dequantized(
    emit: Any, words: Any, scale: Any, offset: Any, bits: int, zero_point: float
) -> Any:
    """Rows of weights [N, K] in float32, by operators of the specification. ``words`` and the other
    operands are as for `block_matmul`, with the same rows."""
    rows, count = words.shape
    each = 32 // bits
    divisors = np.uint32(1) << np.arange(0, 32, bits, dtype=np.uint32)
    shifted = emit.div(emit.reshape(words, (rows, count, 1)), emit.constant(divisors))
    radix = emit.constant(np.array(1 << bits, np.uint32))
    numbers = emit.sub(shifted, emit.mul(emit.div(shifted, radix), radix))
    blocks = scale.shape[1]
    shape = rows, blocks, count * each // blocks
    real = emit.cast(emit.reshape(numbers, shape), "float32")
    if zero_point:
        real = emit.sub(real, emit.constant(np.array(zero_point, np.float32)))

    def of_blocks(value: Any) -> Any:
        wide = value if value.data_type == "float32" else emit.cast(value, "float32")
        return emit.reshape(wide, (rows, blocks, 1))

    real = emit.mul(real, of_blocks(scale))
    if offset is not None:
        real = emit.add(real, of_blocks(offset))
    return emit.reshape(real, (rows, count * each))


def _decompose(emit: Any, operands: Any, arguments: Any, outputs: Any) -> Any:
    a = operands["a"]
    weights = dequantized(
        emit, operands["b"], operands["scale"], operands["offset"], arguments["bits"],
        arguments["zero_point"],
    )
    if weights.shape[1] != a.shape[-1]:
        weights = emit.slice(weights, (0, 0), (weights.shape[0], a.shape[-1]))
    weights = emit.transpose(weights, permutation=(1, 0))
    return emit.matmul(a if a.data_type == "float32" else emit.cast(a, "float32"), weights)


block_matmul.lowers_to(BlockProduct(decompose=_decompose))
