"""Numbers for operands: ordinary ones, wide ranges, and the special values of a type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

FLAVOURS = ("ordinary", "wide", "special")
#: In addition: floats that do not grow from step to step of a recurrent network.
SMALL = "small"

_INDICES = ("gather", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd")
# Operators whose result for an infinity or a NaN follows from the draft element by element. For
# other operators it depends on the order of sums, or on whether a product with a padding zero is
# computed.
_ORDERED = frozenset(
    "conv2d conv_transpose2d matmul gemm gru gru_cell gru_recurrence lstm lstm_cell "
    "lstm_recurrence batch_normalization "
    "instance_normalization layer_normalization softmax resample2d reduce_product "
    "average_pool2d l2_pool2d reduce_mean reduce_l1 reduce_l2 reduce_log_sum reduce_log_sum_exp "
    "reduce_sum reduce_sum_square cumulative_sum attention quantized_matmul block_matmul "
    "quantized_conv2d rms_normalization".split()
)


def array(
    rng: np.random.Generator,
    operator: str,
    operand: str,
    data_type: str,
    shape: tuple[int, ...],
    flavour: str,
    shapes: Mapping[str, Any],
) -> np.ndarray:
    """Values for one operand; ``shapes`` has the shapes of all operands."""
    dtype = np.dtype(data_type)
    if operand == "indices" and operator in _INDICES:
        return _indices(rng, dtype, shape, max(shapes["input"]), flavour)
    if dtype.kind != "f":
        return _integers(rng, operator, operand, dtype, shape, flavour)
    if operand == "variance":
        return rng.uniform(0.1, 4, shape).astype(dtype)
    if operand == "scale" and "quantize" in operator:
        # Powers of two divide exactly; other numbers come within a rounding of a tie.
        found = 2.0 ** rng.integers(-6, 4, shape) if flavour == "ordinary" else rng.uniform(
            0.05, 3, shape)
        return np.asarray(found).astype(dtype)
    if flavour == "special" and operator not in _ORDERED:
        return _specials(rng, dtype, shape)
    if flavour == "wide" and operator not in _ORDERED:
        magnitude = 10.0 ** rng.uniform(-4, 4, shape)
        return np.asarray(magnitude * rng.choice((-1, 1), shape)).astype(dtype)
    largest = 0.4 if flavour == SMALL else 3
    return np.asarray(rng.uniform(-largest, largest, shape)).astype(dtype)


def _indices(
    rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...], size: int, flavour: str
) -> np.ndarray:
    """Mostly valid indices, including negative ones; "special" goes far out of range."""
    low = 0 if dtype.kind == "u" else -size
    found = np.asarray(rng.integers(low, size, shape)).astype(dtype)
    if flavour == "special":
        limits = np.iinfo(dtype)
        outside = [limits.min, limits.max, size, size + 1, low - (low < 0)]
        ends = np.array(outside, dtype)
        found = np.where(rng.random(shape) < 0.3, rng.choice(ends, shape), found)
    return np.asarray(found)


def _integers(
    rng: np.random.Generator, operator: str, operand: str, dtype: np.dtype,
    shape: tuple[int, ...], flavour: str,
) -> np.ndarray:
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    if operator == "pow" and operand == "b" or flavour == "ordinary":
        low, high = max(low, -4), 9
    found = np.asarray(rng.integers(low, high, shape, dtype, endpoint=True))
    if flavour == "special" and not (operator == "pow" and operand == "b"):
        ends = np.array([limits.min, limits.max, 0, 1, limits.max - 1, limits.min + 1], dtype)
        found = np.where(rng.random(shape) < 0.4, rng.choice(ends, shape), found)
    return np.asarray(found)


def _specials(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    limits = np.finfo(dtype)
    special = np.array(
        [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, math.inf, -math.inf, math.nan, limits.max,
         -limits.max, limits.tiny, -limits.tiny, limits.eps, 1 + limits.eps]
    ).astype(dtype)
    ordinary = np.asarray(rng.uniform(-3, 3, shape)).astype(dtype)
    return np.asarray(np.where(rng.random(shape) < 0.5, rng.choice(special, shape), ordinary))
