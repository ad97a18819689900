"""Objects of the stress test and their expected contents: a simple sequential model."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tests.support.faults import FaultyDriver

#: Lengths of the tensors: one element, an odd number, several workgroups.
LENGTHS = (1, 17, 1500)

# y = y * 2 + 1, which wraps.
SHADER = """#version 450
layout(local_size_x = 64) in;
layout(binding = 0) buffer Y { int y[]; };
void main() { uint i = gl_GlobalInvocationID.x; if (i < y.length()) y[i] = y[i] * 2 + 1; }
"""


class Failure(AssertionError):
    """A wrong value, an error without a cause, a hang or a leak."""


class Leak(Failure):
    """Memory of ``drivers`` is left."""

    def __init__(self, name: str, drivers: list[FaultyDriver]) -> None:
        super().__init__(f"{name}: {[driver.memory_in_use() for driver in drivers]} is left")
        self.drivers = drivers


@dataclass(eq=False)
class Memory:
    """Contents after all calls made so far. Arrays of values are replaced, never changed: pending
    reads refer to them."""

    value: np.ndarray


class Tensor:
    """A tensor, which may be lent to a GPUDevice."""

    def __init__(self, tensor: Any, value: np.ndarray, gpu: Gpu | None = None) -> None:
        self.tensor = tensor
        self.memory = Memory(value)
        #: The device that it can be lent to.
        self.gpu = gpu
        #: The buffer as which it was last lent.
        self.lent: Buffer | None = None
        #: destroy() was called, or is about to be.
        self.dead = False

    @property
    def value(self) -> np.ndarray:
        return self.memory.value

    @value.setter
    def value(self, value: np.ndarray) -> None:
        self.memory.value = value

    @property
    def held(self) -> bool:
        """Whether the buffer may still hold the tensor."""
        return self.lent is not None and not self.lent.returned

    @property
    def surely_held(self) -> bool:
        """Whether the buffer certainly holds the tensor: nothing that ends it has begun."""
        return self.held and not self.lent.dead

    def destroy(self) -> None:
        self.dead = True
        self.tensor.destroy()


@dataclass(eq=False)
class Gpu:
    """A GPUDevice; ``driver`` is None for wgpu's, which lives to the end."""

    device: Any
    driver: FaultyDriver | None
    #: destroy() was called, or is about to be.
    ended: bool = False
    #: destroy() has returned: no tensor is lent to the device any more.
    returned: bool = False

    @property
    def lost(self) -> bool:
        return self.driver is not None and self.driver.injected["lost"] > 0

    @property
    def dead(self) -> bool:
        """Whether calls may fail with InvalidStateError."""
        return self.driver is not None and (
            self.ended or self.lost or self.device.lost.done())

    @cached_property
    def pipeline(self) -> Any:
        module = self.device.create_shader_module(code=SHADER, label="stress")
        return self.device.create_compute_pipeline(module=module)

    def destroy(self) -> None:
        self.ended = True
        self.device.destroy()
        # When the device is lost, another thread gives the lent tensors back.
        self.returned = not self.lost


class Buffer:
    """A GPUBuffer over ``memory``: an exported tensor's, or its own."""

    def __init__(self, buffer: Any, memory: Memory, gpu: Gpu) -> None:
        #: None when it was dropped.
        self.buffer = buffer
        self.reference = weakref.ref(buffer)
        self.memory = memory
        self.gpu = gpu
        self._ended = self._returned = False

    @property
    def dead(self) -> bool:
        return self._ended or self.gpu.dead

    @property
    def returned(self) -> bool:
        """Whether its destroy() has returned, or the device's."""
        return self._returned or self.gpu.returned

    def destroy(self) -> None:
        self._ended = True
        buffer = self.buffer
        if buffer is not None:  # not dropped at the same time
            buffer.destroy()
            self._returned = True


@dataclass(frozen=True)
class Formula:
    """Makes a graph's output from two inputs, for the builder and for NumPy."""

    name: str
    build: Callable[..., Any]
    evaluate: Callable[[np.ndarray, np.ndarray], np.ndarray]
    #: Whether the graph takes a constant tensor of its length, 1, 2, 3 …
    constant: bool = False


#: int32, whose arithmetic wraps on every device: values are exactly equal or wrong. In half of the
#: worlds "neg" is forced to the CPU.
FORMULAS = (
    Formula("add", lambda b, x, y, c: b.add(x, y), lambda x, y: x + y),
    Formula("mul", lambda b, x, y, c: b.add(b.mul(x, y), b.constant("int32", 3)),
            lambda x, y: x * y + 3),
    Formula("neg", lambda b, x, y, c: b.sub(b.neg(b.add(x, y)), y), lambda x, y: -(x + y) - y),
    Formula("reverse", lambda b, x, y, c: b.sub(b.reverse(x), y), lambda x, y: x[::-1] - y),
    Formula("constant", lambda b, x, y, c: b.add(b.mul(x, c), y),
            lambda x, y: x * ramp(len(x)) + y, constant=True),
)


def ramp(length: int) -> np.ndarray:
    return np.arange(1, length + 1, dtype=np.int32)


@dataclass(eq=False)
class Graph:
    graph: Any
    formula: Formula
    length: int
    dead: bool = False

    def destroy(self) -> None:
        self.dead = True
        self.graph.destroy()
