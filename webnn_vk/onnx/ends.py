"""Outputs of classifiers that are not tensors of numbers: labels that are text, and maps of labels
to scores. The graph computes numbers, from which ``Session`` makes the outputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .values import Maps, Tensor, Text, Value

#: Makes what the model gives out of what its graph computes.
End = Callable[[np.ndarray], Any]


def of_numbers(value: Value) -> tuple[Tensor, End | None]:
    """The tensor that an output is made of, and what makes it, unless it is that tensor."""
    if isinstance(value, Text):
        return value.codes, partial(_words, np.array(value.words, object))
    if isinstance(value, Maps):
        return value.values, partial(_maps, value.keys)
    assert isinstance(value, Tensor)
    return value, None


def why_no_tensor(value: Value) -> str:
    """Why a graph can't have a value as its output; empty for a tensor."""
    match value:
        case Text():
            return ("it is text, WebNN has none: onnx.Session gives it; a graph can have the "
                    "other outputs (outputs=[...])")
        case Maps(source=source):
            return (f"it is a sequence of maps, WebNN has no maps: onnx.Session gives it; a graph "
                    f"can have the same numbers as a tensor (outputs=[{source!r}])")
        case Tensor():
            return ""
    return "it is a sequence, not a tensor"


def _words(words: np.ndarray, codes: np.ndarray) -> np.ndarray:
    return np.asarray(words[codes], object)


def _maps(keys: tuple[Any, ...], values: np.ndarray) -> list[dict[Any, float]]:
    # In the order of ONNX Runtime's, which sorts.
    columns = sorted(range(len(keys)), key=keys.__getitem__)
    rows = values.reshape(-1, len(keys)).tolist()
    return [{keys[i]: row[i] for i in columns} for row in rows]
