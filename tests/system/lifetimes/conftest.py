"""Contexts that end in many ways, and the small graphs that run on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.contexts import open_context, open_over
from tests.support.faults import FaultyDriver
from webnn_vk import MLContext, MLGraphBuilder, MLTensorDescriptor


@pytest.fixture
def fresh(context: MLContext) -> Iterator[MLContext]:
    """A context on the same device that the test may destroy."""
    device = context.device_info.name if context.device_info.is_vulkan else "cpu"
    with open_context(device) as made:
        yield made


@pytest.fixture
def over(vulkan: None) -> Iterator[Callable[..., tuple[MLContext, Any]]]:
    """Opens contexts over drivers that the test chooses; they are destroyed at its end."""
    made = []

    def open_one(wrap: Callable[[Any], Any], **settings: Any) -> tuple[MLContext, Any]:
        pair = open_over(wrap, **settings)
        made.append(pair[0])
        return pair

    yield open_one
    for context in made:
        context.destroy()


@pytest.fixture
def faulty(over: Callable[..., tuple[MLContext, Any]]) -> tuple[MLContext, FaultyDriver]:
    """A context whose driver fails on command."""
    return over(FaultyDriver)


def make_tensor(context: MLContext, shape: tuple[int, ...] = (4,), data_type: str = "int32") -> Any:
    descriptor = MLTensorDescriptor(data_type, shape, readable=True, writable=True)
    return context.create_tensor(descriptor)


def build(context: MLContext, make: Callable[..., Any], *names: str, shape: tuple[int, ...] = (4,),
          data_type: str = "int32") -> Any:
    """Promise of a graph with inputs of these names and the output "y"."""
    builder = MLGraphBuilder(context)
    descriptor = {"data_type": data_type, "shape": shape}
    return builder.build({"y": make(builder, *[builder.input(n, descriptor) for n in names])})


def adder(context: MLContext, **options: Any) -> Any:
    """y = a + b"""
    return build(context, lambda b, x, y: b.add(x, y), "a", "b", **options).result()


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)
