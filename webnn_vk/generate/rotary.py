"""Rotary positions: the frequencies, and their scalings for longer contexts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize

from .errors import InvalidModelError, UnsupportedModelError
from .fields import Fields


@dataclass(frozen=True)
class Rotary:
    """Element i of a head is rotated together with element i + len(frequencies), half a head
    further, by position · frequencies[i]. ``factor`` multiplies cosines and sines."""

    frequencies: tuple[float, ...]
    factor: float = 1.0

    def tables(self, positions: int) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines, float32 [positions, 2 · len(frequencies)]; the sines of the first half
        are negated."""
        angles = np.outer(np.arange(positions), np.array(self.frequencies, np.float64))
        sines = np.sin(angles) * self.factor
        cosines = np.tile(np.cos(angles) * self.factor, 2)
        return (
            cosines.astype(np.float32), np.concatenate([-sines, sines], axis=1).astype(np.float32)
        )


def rotary_of(
    head_size: int, context: int, scaling: Any, base: float, part: float = 1.0
) -> Rotary:
    """The rotation that ``rope_theta``, ``partial_rotary_factor`` and ``rope_scaling`` (or
    ``rope_parameters``, which has the others in it) describe."""
    if scaling is None:
        scaling = {}
    if not isinstance(scaling, Mapping):
        raise InvalidModelError("config.json: rope_scaling is no JSON object")
    options = Fields(scaling, "config.json: rope_scaling: ")
    base = options.number("rope_theta", base)
    if base <= 1:
        raise InvalidModelError(f"config.json: rope_theta is {base}; a number above 1 is expected")
    part = options.number("partial_rotary_factor", part)
    if head_size % 2:
        raise InvalidModelError(f"config.json: heads of {head_size} elements can't be rotated")
    exponents = np.arange(0, head_size, 2, dtype=np.float64) / head_size
    frequencies, factor = base**-exponents, 1.0
    kind = options.take("rope_type", options.take("type", "default"))
    options.take("type")
    # In transformers these architectures rotate whole heads. Their default frequencies don't
    # depend on the part; with the other frequencies such models fail there.
    if kind != "default" and int(head_size * part) != head_size:
        raise UnsupportedModelError(
            f"config.json: partial_rotary_factor {part} is not supported for rope_type "
            f"{sanitize(repr(kind))[:80]}; 1 is expected"
        )
    match kind:
        case "default":
            pass
        case "linear":
            frequencies = frequencies / options.number("factor")
        case "llama3":
            frequencies = _llama3(frequencies, options)
        case "yarn":
            frequencies, factor = _yarn(frequencies, base, head_size, context, options)
        case _:
            raise UnsupportedModelError(
                f"config.json: rope_type {sanitize(repr(kind))[:80]} is not supported; one of "
                "default, linear, llama3, yarn is expected"
            )
    options.finish(f"rope_type {kind}")
    return Rotary(tuple(frequencies.tolist()), factor)


def _llama3(frequencies: np.ndarray, options: Fields) -> np.ndarray:
    factor = options.number("factor")
    low, high = options.number("low_freq_factor"), options.number("high_freq_factor")
    original = options.number("original_max_position_embeddings")
    turns = original * frequencies / (2 * math.pi)
    if high <= low:
        raise InvalidModelError("config.json: rope_scaling: high_freq_factor ≤ low_freq_factor")
    # Frequencies that turn often within the original context stay, slow ones are divided.
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 - smooth) * frequencies / factor + smooth * frequencies


def _yarn(
    frequencies: np.ndarray, base: float, size: int, context: int, options: Fields
) -> tuple[np.ndarray, float]:
    factor = options.number("factor")
    original = options.number("original_max_position_embeddings", context)
    fast, slow = options.number("beta_fast", 32), options.number("beta_slow", 1)
    scale = options.number("attention_factor", 0.1 * math.log(factor) + 1 if factor > 1 else 1.0)

    def dimension(turns: float) -> float:
        return size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low = float(max(math.floor(dimension(fast)), 0))
    high = min(math.ceil(dimension(slow)), size - 1)
    ramp = np.clip((np.arange(size // 2) - low) / max(high - low, 0.001), 0, 1)
    return frequencies / factor * ramp + frequencies * (1 - ramp), scale
