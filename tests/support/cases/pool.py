"""Nodes for the tests of pool's plans and kernels."""

from __future__ import annotations

import numpy as np

from tests.support.comparing import random_array
from tests.support.running import node_of

POOLS = ("average_pool2d", "l2_pool2d", "max_pool2d")


def random_case(rng: np.random.Generator, name: str, data_type: str) -> tuple:
    layout = str(rng.choice(["nchw", "nhwc"]))
    size = [int(n) for n in rng.integers(4, 12, 2)]
    batches, channels = (int(n) for n in rng.integers(1, 4, 2))
    shape = (batches, channels, *size) if layout == "nchw" else (batches, *size, channels)
    x = random_array(rng, data_type, shape)
    if rng.random() < 0.2:
        return node_of(name, x, layout=layout)
    return node_of(
        name, x, layout=layout,
        window_dimensions=[int(n) for n in rng.integers(1, 4, 2)],
        padding=[int(n) for n in rng.integers(0, 4, 4)],
        strides=[int(n) for n in rng.integers(1, 5, 2)],
        dilations=[int(n) for n in rng.integers(1, 3, 2)] if min(size) > 5 else [1, 1],
        output_shape_rounding=str(rng.choice(["floor", "ceil"])),
    )
