"""Nodes for the tests of conv's plans and kernels."""

from __future__ import annotations

import numpy as np

from tests.support.comparing import random_array
from tests.support.running import node_of

OPERATORS = ("conv2d", "conv_transpose2d")
FILTER_LAYOUTS = {
    "conv2d": ("oihw", "hwio", "ohwi", "ihwo"),
    "conv_transpose2d": ("iohw", "hwoi", "ohwi"),
}


def random_case(rng: np.random.Generator, name: str, data_type: str) -> tuple:
    def pick(*values):
        return values[rng.integers(len(values))]

    groups, inputs, outputs = pick(1, 1, 2, 4), pick(1, 3, 4, 8), pick(1, 2, 5, 8, 12)
    rows, columns = pick((1, 1), (1, 1), (3, 3), (2, 3), (4, 1), (5, 5))
    input_layout, filter_layout = pick("nchw", "nhwc"), pick(*FILTER_LAYOUTS[name])
    size = {
        "n": pick(1, 2), "c": groups * inputs, "h": int(rng.integers(6, 12)),
        "w": int(rng.integers(6, 12)),
    }
    transposed = name == "conv_transpose2d"
    taps = {
        "o": outputs * (1 if transposed else groups), "i": inputs * (groups if transposed else 1),
        "h": rows, "w": columns,
    }
    arguments = {}
    if rng.random() < 0.6:
        strides = [int(s) for s in rng.integers(1, 4, 2)]
        arguments = {
            "padding": [int(p) for p in rng.integers(0, 3, 4)],
            "strides": strides,
            "dilations": [pick(1, 2) if rows < 4 else 1, pick(1, 2) if columns < 4 else 1],
        }
        if transposed:
            # Padding crops the output, which has to keep at least one row.
            arguments["padding"] = [int(p) for p in rng.integers(0, 2, 4)]
            arguments["output_padding"] = [int(rng.integers(s)) for s in strides]
    x = random_array(rng, data_type, tuple(size[d] for d in input_layout))
    w = random_array(rng, data_type, tuple(taps[d] for d in filter_layout))
    bias = random_array(rng, data_type, (groups * outputs,)) if rng.random() < 0.5 else None
    return node_of(
        name, x, w, bias=bias, groups=groups, input_layout=input_layout,
        filter_layout=filter_layout, **arguments,
    )
