"""Nodes for the tests of norm's plans and kernels."""

from __future__ import annotations

import numpy as np

from tests.support.comparing import random_array


def affine_node(rng: np.random.Generator, data_type: str, shape: tuple[int, ...]) -> dict:
    """scale and bias, each present or not."""
    return {
        name: random_array(rng, data_type, shape) if rng.random() < 0.7 else None
        for name in ("scale", "bias")
    }
