"""Weights of a few bits, with a scale for each block of them."""

from __future__ import annotations

import numpy as np

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext, check_made
from ..errors import Unsupported
from ..records import MICROSOFT, onnx_operator
from ..values import Tensor
from .matrix_products import matmul


@onnx_operator("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(
    c: NodeContext,
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    g_idx: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> MLOperand:
    if bits not in (2, 4, 8) or weight_prepacked:
        raise Unsupported("only 2, 4 and 8 bits, not prepacked, are supported")
    blocks = -(-K // block_size)
    weight = unpacked(b.value("the weight").reshape(N, blocks, -1), bits)
    weight = weight.reshape(N, blocks * block_size)
    scale = c.reshape(scales, [N, blocks])
    offset: MLOperand | None = None
    zeros = c.constant(np.full((N, blocks), 1 << (bits - 1)), "uint8")
    if zero_points is not None and zero_points.type == "uint8":
        packed = zero_points.value("the zero points").reshape(N, -1)
        zeros = c.constant(unpacked(packed, bits)[:, :blocks], "uint8")
    elif zero_points is not None:
        zeros = c.constant(np.zeros((N, blocks)), "uint8")
        offset = c.b.mul(c.cast(c.reshape(zero_points, [N, blocks]), scale.data_type), scale)
    groups = None if g_idx is None or not g_idx.size else g_idx.value("the groups")
    if groups is not None:
        # Each row of the weight has the scale and zero point of the group that it is given.
        rows = c.constant(groups.reshape(-1)[:K], "int32")
        scale, zeros = (c.b.gather(t, rows, axis=1) for t in (scale, zeros))
        offset = None if offset is None else c.b.gather(offset, rows, axis=1)
        weight = weight[:, :K]
    # Bytes on the device; the compiler sees dequantisation and product together.
    real = c.b.dequantize_linear(c.constant(weight, "uint8"), scale, zeros)
    if offset is not None:
        real = c.b.sub(real, offset if groups is not None else c.repeated(offset, block_size))
    real = c.transpose(c.slice(real, 1, 0, K), [1, 0])
    result = matmul(c, a.operand, c.cast(real, a.operand.data_type))
    return result if bias is None else c.b.add(result, bias)


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Small numbers from bytes along the last axis, the lowest bits first."""
    if bits == 8:
        return packed
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)


@onnx_operator("GatherBlockQuantized", domain=MICROSOFT, storage=True)
def gather_block_quantized(
    c: NodeContext,
    data: Tensor,
    indices: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> MLOperand:
    axis = c.axis(quantize_axis, data.rank)
    if axis != data.rank - 1 or c.axis(gather_axis, data.rank) == axis:
        raise Unsupported("blocks along another axis than the last, or along the indices' axis")
    stored = data.value("the data")
    signed = data.type in ("int4", "int8")
    if data.type == "uint8":
        stored = unpacked(stored, bits)
        middle = 1 << (bits - 1)
    elif data.type in ("int4", "uint4"):
        stored = stored.astype(np.int8 if signed else np.uint8)
        middle = 0 if signed else 8
    else:
        raise Unsupported(f"data of type {data.type}")
    check_made(*stored.shape)
    kind = "int8" if signed else "uint8"
    if zero_points is None:
        zeros = np.full(scales.shape, middle)
    else:
        zeros = zero_points.value("the zero points")
        if zero_points.type == "uint8":
            zeros = unpacked(zeros, bits)[..., : scales.shape[-1]]
    columns, blocks = stored.shape[-1], scales.shape[-1]
    # Whole blocks, as dequantisation has them.
    room = blocks * block_size - columns
    stored = np.pad(stored, [(0, 0)] * (data.rank - 1) + [(0, room)])
    at = c.axis(gather_axis, data.rank)
    parts = [
        c.b.gather(t, indices, axis=at)
        for t in (c.constant(stored, kind), scales, c.constant(zeros, kind))
    ]
    real = c.b.dequantize_linear(*parts)
    return c.slice(real, len(real.shape) - 1, 0, columns)
