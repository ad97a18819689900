"""Running a program's CPU nodes with their NumPy references."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..graph import Value
from ..program import HostSegment

Arrays = dict[Value, np.ndarray]


def run_host_segment(
    segment: HostSegment, arrays: Arrays, made: Callable[[Value, np.ndarray], None]
) -> None:
    """Compute the segment's nodes; ``arrays`` holds what they read and keeps what later ones
    read, ``made`` is told of every result."""

    def lookup(value: Value) -> np.ndarray:
        return value.data if value.data is not None else arrays[value]

    for i, node in enumerate(segment.nodes):
        for value, array in zip(node.outputs, node.evaluate(lookup), strict=True):
            arrays[value] = array
            made(value, array)
        if segment.dead:
            for value in segment.dead[i]:
                arrays.pop(value, None)
