"""Quantised tensors of a GGUF file as `Blocks`, with the same numbers. The scales of the types with
blocks of blocks (Q4_K, Q5_K, Q6_K) are multiplied out, in float32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from webnn_vk.compiler.ops.block_product import packed
from webnn_vk.generate.blocks import Blocks

# What becomes of stored blocks [blocks, bytes]: unsigned integers, scales, offsets.
_Parts = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def _halves(stored: np.ndarray, at: int) -> np.ndarray:
    """float16 [blocks, 1] from a byte on."""
    return np.ascontiguousarray(stored[:, at : at + 2]).view(np.float16)


def _nibbles(stored: np.ndarray, each: int = 16) -> np.ndarray:
    """Numbers of 4 bits: first the low halves of this many bytes, then the high halves."""
    groups = stored.reshape(len(stored), -1, 1, each)
    both = np.concatenate([groups & np.uint8(15), groups >> np.uint8(4)], axis=2)
    return both.reshape(len(stored), -1)


def _q4(stored: np.ndarray, offset: bool) -> _Parts:
    start = 4 if offset else 2
    return _nibbles(stored[:, start:]), _halves(stored, 0), _halves(stored, 2) if offset else None


def _q5(stored: np.ndarray, offset: bool) -> _Parts:
    start = 4 if offset else 2
    high = np.unpackbits(stored[:, start : start + 4], axis=1, bitorder="little")
    numbers = _nibbles(stored[:, start + 4 :]) | high << np.uint8(4)
    return numbers, _halves(stored, 0), _halves(stored, 2) if offset else None


def _q8_0(stored: np.ndarray) -> _Parts:
    return stored[:, 2:] ^ np.uint8(128), _halves(stored, 0), None


def _k_scales(stored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales and offsets of the eight blocks of a Q4_K or Q5_K block."""
    low, middle, high = (stored[:, at : at + 4] for at in (4, 8, 12))
    scales = np.concatenate([low & 63, high & 15 | low >> 2 & 48], axis=1)
    least = np.concatenate([middle & 63, high >> 4 | middle >> 2 & 48], axis=1)
    return (
        _halves(stored, 0).astype(np.float32) * scales.astype(np.float32),
        -(_halves(stored, 2).astype(np.float32) * least.astype(np.float32)),
    )


def _q4_k(stored: np.ndarray) -> _Parts:
    return _nibbles(stored[:, 16:], 32), *_k_scales(stored)


def _q5_k(stored: np.ndarray) -> _Parts:
    shifts = np.arange(8, dtype=np.uint8)[:, None]
    high = (stored[:, None, 16:48] >> shifts & np.uint8(1)).reshape(len(stored), -1)
    return _nibbles(stored[:, 48:], 32) | high << np.uint8(4), *_k_scales(stored)


def _q6_k(stored: np.ndarray) -> _Parts:
    low = _nibbles(stored[:, :128], 64)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = stored[:, 128:192].reshape(-1, 2, 1, 32) >> shifts & np.uint8(3)
    scales = stored[:, 192:208].view(np.int8).astype(np.float32)
    numbers = low | high.reshape(len(stored), -1) << np.uint8(4)
    return numbers, _halves(stored, 208).astype(np.float32) * scales, None


# Type → bits, zero point, elements with one scale, how the bytes are read.
_TYPES: dict[str, tuple[int, int, int, Callable[[np.ndarray], _Parts]]] = {
    "Q4_0": (4, 8, 32, lambda stored: _q4(stored, False)),
    "Q4_1": (4, 0, 32, lambda stored: _q4(stored, True)),
    "Q5_0": (8, 16, 32, lambda stored: _q5(stored, False)),
    "Q5_1": (8, 0, 32, lambda stored: _q5(stored, True)),
    "Q8_0": (8, 128, 32, _q8_0),
    "Q4_K": (4, 0, 32, _q4_k),
    "Q5_K": (8, 0, 32, _q5_k),
    "Q6_K": (8, 32, 16, _q6_k),
}
#: The types of tensors that `blocks_of` reads.
BLOCK_TYPES = frozenset(_TYPES)
# Bytes that are read at a time.
_PART = 1 << 22


def blocks_of(stored: np.ndarray, kind: str, rows: int, columns: int) -> Blocks:
    """A matrix of one of the `BLOCK_TYPES`, from its blocks [blocks, bytes]."""
    bits, zero_point, block, read = _TYPES[kind]
    words = np.empty((rows, columns * bits // 32), np.uint32)
    made: list[tuple[np.ndarray, np.ndarray | None]] = []
    each = len(stored) // rows
    step = max(1, _PART // (each * stored.shape[1]))
    for first in range(0, rows, step):
        part = stored[first * each : (first + step) * each]
        numbers, scale, offset = read(part)
        words[first : first + step] = packed(numbers.reshape(-1, columns), bits)
        made.append((scale, offset))
    shape = rows, columns // block
    offsets = [offset for _, offset in made if offset is not None]
    return Blocks(
        words, np.concatenate([scale for scale, _ in made]).reshape(shape),
        np.concatenate(offsets).reshape(shape) if offsets else None, bits, zero_point, columns,
    )
