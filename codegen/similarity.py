"""An order of modules in which neighbours are similar, for compression."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Hash functions of a sketch: the similarity of two modules is known to about a tenth.
_HASHES = 96
# Odd numbers whose bits are mixed well: multiples of 2⁶⁴ / φ.
_FACTORS = np.arange(1, 2 * _HASHES + 8, 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
#: Words of the sequences that are compared.
_LENGTH = 4


def chained(modules: Sequence[bytes]) -> list[int]:
    """The places of the modules in an order that begins with the first and in which each is
    followed by the most similar one that is left."""
    if not modules:
        return []
    sketches = np.stack([_sketch(module) for module in modules])
    left, order = np.ones(len(modules), bool), [0]
    for _ in modules[1:]:
        left[order[-1]] = False
        alike = np.count_nonzero(sketches == sketches[order[-1]], axis=1)
        order.append(int(np.argmax(np.where(left, alike, -1))))
    return order


def _sketch(module: bytes) -> np.ndarray:
    """For each hash function the least hash of the sequences of four words: two modules agree in
    as large a part of these as of their sequences (MinHash)."""
    words = np.frombuffer(module, np.uint32).astype(np.uint64)
    count = max(len(words) - _LENGTH + 1, 1)
    sequences = np.zeros(count, np.uint64)
    for place in range(min(_LENGTH, len(words))):
        sequences ^= words[place : place + count] * _FACTORS[_HASHES + place]
    sequences = np.unique(sequences)
    return np.array([np.min(sequences * factor >> np.uint64(20)) for factor in _FACTORS[:_HASHES]])
