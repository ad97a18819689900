"""Fourier transforms as products with matrices of cosines and sines."""

from __future__ import annotations

import numpy as np

from webnn_vk.api.builder import MLOperand

from .. import folding
from ..context import NodeContext, check_made
from ..errors import Unsupported, refuse_if
from ..records import onnx_operator
from ..values import Tensor
from .matrix_products import matmul

#: Elements of a transform's matrix at most.
_MAX_LENGTH = 4096


def _matrices(length: int, bins: int, inverse: bool) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines [length, bins], computed from angles below one turn."""
    refuse_if(length > _MAX_LENGTH, f"a transform of {length} elements, {_MAX_LENGTH} at most")
    turns = np.outer(np.arange(length), np.arange(bins)) % length / length * (2 * np.pi)
    factor = 1 / length if inverse else 1.0
    return np.cos(turns) * factor, np.sin(turns) * (-factor if inverse else factor)


def transform(
    c: NodeContext, real: MLOperand, imaginary: MLOperand | None, bins: int, inverse: bool
) -> MLOperand:
    """The transform along the last axis, real and imaginary parts along a new last one."""
    cosines, sines = (
        c.constant(m, real.data_type) for m in _matrices(real.shape[-1], bins, inverse)
    )
    # (re + i im)(cos − i sin)
    out_real = matmul(c, real, cosines)
    out_imaginary = c.b.neg(matmul(c, real, sines))
    if imaginary is not None:
        out_real = c.b.add(out_real, matmul(c, imaginary, sines))
        out_imaginary = c.b.add(out_imaginary, matmul(c, imaginary, cosines))
    parts = [c.reshape(v, [*v.shape, 1]) for v in (out_real, out_imaginary)]
    return c.b.concat(parts, len(parts[0].shape) - 1)


@onnx_operator("DFT", first=17, moved=("axis",), since=20)
def dft(
    c: NodeContext, x: Tensor, length: Tensor | None = None, axis: Tensor | None = None, *,
    inverse: int = 0, onesided: int = 0,
) -> MLOperand:
    default_axis = -2 if c.version >= 20 else 1
    at = c.axis(default_axis if axis is None else c.int(axis, "the axis"), x.rank)
    refuse_if(at == x.rank - 1, "the axis of real and imaginary parts can't be transformed")
    half = inverse and onesided
    given = x.shape[at]
    default = 2 * (given - 1) if half else given
    n = default if length is None else c.int(length, "the length")
    refuse_if(n < 1, f"a transform of {n} elements")
    taken = n // 2 + 1 if half else n
    # The axis goes last but one, then the parts are separated.
    order = [i for i in range(x.rank - 1) if i != at] + [at, x.rank - 1]
    moved = c.transpose(x, order)
    if taken < given:
        moved = c.slice(moved, x.rank - 2, 0, taken)
    elif taken > given:
        moved = c.pad(moved, [*[(0, 0)] * (x.rank - 2), (0, taken - given), (0, 0)])
    parts = [c.reshape(v, v.shape[:-1]) for v in c.b.split(moved, x.shape[-1], axis=x.rank - 1)]
    real, imaginary = parts[0], parts[1] if len(parts) > 1 else None
    if half:
        result = _real_inverse(c, real, imaginary, n)
    else:
        bins = n // 2 + 1 if onesided else n
        result = transform(c, real, imaginary, bins, bool(inverse))
    back = list(range(x.rank - 2))
    back.insert(at, x.rank - 2)
    return c.transpose(result, [*back, x.rank - 1])


def _real_inverse(
    c: NodeContext, real: MLOperand, imaginary: MLOperand | None, n: int
) -> MLOperand:
    """A real signal from the half of its spectrum that is not the other's mirror image."""
    check_made(n, n // 2 + 1)
    bins = np.arange(n // 2 + 1)
    weight = np.where((bins == 0) | (2 * bins == n), 1, 2) / n
    turns = np.outer(bins, np.arange(n)) % n / n * (2 * np.pi)
    result = matmul(c, real, c.constant(np.cos(turns) * weight[:, None], real.data_type))
    if imaginary is not None:
        sines = c.constant(np.sin(turns) * weight[:, None], real.data_type)
        result = c.b.sub(result, matmul(c, imaginary, sines))
    return c.reshape(result, [*result.shape, 1])


@onnx_operator("STFT", first=17)
def stft(
    c: NodeContext, signal: Tensor, step: Tensor, window: Tensor | None = None,
    frame_length: Tensor | None = None, *, onesided: int = 1,
) -> MLOperand:
    if signal.rank == 2:
        batch, length, parts = *signal.shape, 1
    else:
        batch, length, parts = signal.shape
    hop = c.int(step, "the step")
    if frame_length is not None:
        size = c.int(frame_length, "the frame's length")
    elif window is not None:
        size = window.shape[0]
    else:
        raise Unsupported("neither a window nor a frame length")
    if hop < 1 or not 1 <= size <= length:
        raise Unsupported(
            f"frames of {size}, {hop} apart, in {length} samples: positive numbers are expected, "
            "and a frame no longer than the signal"
        )
    frames = (length - size) // hop + 1
    check_made(frames, size)
    at = np.arange(frames)[:, None] * hop + np.arange(size)
    # The signal's parts, framed: [batch, frames, size].
    pieces = []
    whole = c.reshape(signal, [batch, length, parts])
    for i in range(parts):
        one = c.reshape(c.slice(whole, 2, i, 1), [batch, length])
        framed = c.b.gather(one, at.astype(np.int32), axis=1)
        pieces.append(framed if window is None else c.b.mul(framed, window))
    bins = size // 2 + 1 if onesided else size
    return transform(c, pieces[0], pieces[1] if parts > 1 else None, bins, False)


@onnx_operator("MelWeightMatrix")
def mel_weight_matrix(
    c: NodeContext, bins: Tensor, length: Tensor, rate: Tensor, low: Tensor, high: Tensor, *,
    output_datatype: int = 1,
) -> np.ndarray:
    names = ("num_mel_bins", "dft_length", "sample_rate", "the lower edge", "the upper edge")
    known = [
        x.value(name) for x, name in zip((bins, length, rate, low, high), names, strict=True)
    ]
    made = folding.evaluate(c.node, known)
    if made is None:
        raise Unsupported("its numbers are out of range")
    return made[0]
