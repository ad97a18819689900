"""Weights of 4 or 8 bits with a scale for each block of neighbours along a product's inner
dimension."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from webnn_vk.compiler.ops.block_product import packed, unpacked
from webnn_vk.support.dataclass import dataclass

#: Elements with one scale, where floats are rounded.
BLOCK = 32
# Elements that are rounded at a time.
_PART = 1 << 22


@dataclass(frozen=True)
class Blocks:
    """A matrix [outputs, inputs]: operands and arguments of `block_matmul`. ``inputs``: rows of
    ``words`` have whole blocks, whose last elements may be none of the matrix."""

    words: np.ndarray
    scale: np.ndarray
    offset: np.ndarray | None
    bits: int
    zero_point: int
    inputs: int

    @property
    def form(self) -> tuple[object, ...]:
        """Matrices of equal form can lie one below the other."""
        return (
            self.words.shape[1], self.scale.shape[1], self.scale.dtype, self.offset is None,
            self.bits, self.zero_point, self.inputs,
        )

    def rows(self, numbers: np.ndarray) -> Blocks:
        """Some of the rows, in this order."""
        offset = None if self.offset is None else self.offset[numbers]
        return Blocks(
            self.words[numbers], self.scale[numbers], offset, self.bits, self.zero_point,
            self.inputs,
        )

    def floats(self) -> np.ndarray:
        """The matrix in float32."""
        numbers = unpacked(self.words, self.bits).astype(np.float32)
        blocks = numbers.reshape(*self.scale.shape, -1)
        blocks -= self.zero_point
        blocks *= self.scale.astype(np.float32)[..., None]
        if self.offset is not None:
            blocks += self.offset.astype(np.float32)[..., None]
        return blocks.reshape(len(numbers), -1)[:, : self.inputs]


def joined(parts: Sequence[Blocks]) -> Blocks:
    """Matrices of one form, one below the other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    offsets = [part.offset for part in parts if part.offset is not None]
    return Blocks(
        np.concatenate([part.words for part in parts]),
        np.concatenate([part.scale for part in parts]),
        np.concatenate(offsets) if offsets else None,
        first.bits, first.zero_point, first.inputs,
    )


def rounded(array: np.ndarray, bits: int) -> Blocks:
    """A matrix of floats, rounded as llama.cpp does for its types Q4_0 and Q8_0."""
    outputs, inputs = array.shape
    stored = -(-inputs // BLOCK) * BLOCK
    words = np.empty((outputs, stored * bits // 32), np.uint32)
    scale = np.empty((outputs, stored // BLOCK), np.float16)
    step = max(1, _PART // stored)
    for first in range(0, outputs, step):
        part = array[first : first + step].astype(np.float32)
        part = np.pad(part, ((0, 0), (0, stored - inputs))).reshape(len(part), -1, BLOCK)
        if bits == 4:
            largest = np.take_along_axis(part, np.abs(part).argmax(-1)[..., None], -1)
            scales = largest / np.float32(-8)
        else:
            scales = np.abs(part).max(-1, keepdims=True) / np.float32(127)
        with np.errstate(divide="ignore"):
            factors = np.where(scales == 0, np.float32(0), 1 / scales)
        part *= factors
        if bits == 4:
            numbers = np.minimum(part + np.float32(8.5), 15).astype(np.uint8)
        else:
            # Halves away from zero.
            numbers = (np.trunc(part + np.copysign(np.float32(0.5), part)) + 128).astype(np.uint8)
        words[first : first + step] = packed(numbers.reshape(len(part), stored), bits)
        scale[first : first + step] = scales[..., 0]
    return Blocks(words, scale, None, bits, 1 << (bits - 1), inputs)
