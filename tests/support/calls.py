"""Calls with which tests of contexts, tensors and graphs begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from webnn_vk import (
    MLContext,
    MLGraph,
    MLGraphBuilder,
    MLOperandDescriptor,
    MLTensor,
    MLTensorDescriptor,
)

F4 = MLOperandDescriptor("float32", (4,))


def built(context: MLContext, make: Callable[..., Any], **inputs: Any) -> MLGraph:
    """A graph whose outputs ``make(builder, **operands)`` returns by name."""
    builder = MLGraphBuilder(context)
    operands = {name: builder.input(name, described) for name, described in inputs.items()}
    return builder.build(make(builder, **operands)).result()


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def tensor(context: MLContext, readable: bool = True, writable: bool = True,
           shape: tuple[int, ...] = (4,), data_type: str = "float32") -> MLTensor:
    descriptor = MLTensorDescriptor(data_type, shape, readable=readable, writable=writable)
    return context.create_tensor(descriptor).result()
