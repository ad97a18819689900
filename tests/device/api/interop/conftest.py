"""Contexts on the CPU, on Vulkan memory as the device has it, and on memory that the host can't
access."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.contexts import open_context, open_over
from tests.support.driver_proxy import DriverProxy
from tests.support.drivers import require_vulkan
from webnn_vk import MLContext, MLGraphBuilder, MLTensor

KINDS = ("cpu", "vulkan", "hidden")


class HidingDriver(DriverProxy):
    """Simulates the memory of a discrete GPU: the host accesses only memory allocated for
    transfers."""

    def allocate(self, size: int, *, host: bool = False, **options: Any) -> Any:
        made = self.driver.allocate(size, host=host, **options)
        if not host:
            made.mapped = None
        return made


@pytest.fixture
def open_kind() -> Iterator[Callable[[str], MLContext]]:
    """Opens a context of one of KINDS, destroyed at the end of the test."""
    made = []

    def open_one(kind: str) -> MLContext:
        if kind != "cpu":
            require_vulkan()
        if kind == "hidden":
            context, _ = open_over(HidingDriver)
        else:
            context = open_context(kind)
        made.append(context)
        return context

    yield open_one
    for context in made:
        context.destroy()


@pytest.fixture(params=KINDS)
def shared(request: pytest.FixtureRequest, open_kind: Callable[[str], MLContext]) -> MLContext:
    """A new context, of each of KINDS."""
    return open_kind(request.param)


@pytest.fixture(params=["cpu", "vulkan"])
def mapped(request: pytest.FixtureRequest, open_kind: Callable[[str], MLContext]) -> MLContext:
    """A new context whose memory the host can access: on no discrete GPU, for which "hidden" tests
    what holds there."""
    context = open_kind(request.param)
    if context.device_info.type == "discrete":
        pytest.skip("the host can't access the memory of a discrete GPU")
    return context


def make_tensor(context: MLContext, data: Any = None, *, shape: Any = (4,),
                data_type: str = "float32", readable: bool = True,
                writable: bool = True) -> MLTensor:
    """A tensor, with ``data`` as its contents if given."""
    if data is not None:
        data = np.asarray(data, np.float32) if isinstance(data, list) else data
        shape, data_type = data.shape, data.dtype.name
    tensor = context.create_tensor({"data_type": data_type, "shape": shape, "readable": readable,
                                    "writable": writable}).result()
    if data is not None:
        context.write_tensor(tensor, data)
    return tensor


def doubling(context: MLContext, size: int = 4) -> Any:
    """y = x + x"""
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [size]})
    return builder.build({"y": builder.add(x, x)}).result()


def read(context: MLContext, tensor: MLTensor) -> np.ndarray:
    return context.read_tensor(tensor).result()


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)
