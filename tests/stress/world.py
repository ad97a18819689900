"""One context under stress, with the model that says what its tensors hold."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.contexts import open_over, settled_bytes
from tests.vulkan.faults import FaultyDriver
from webnn_vk import DOMException, InvalidStateError, MLGraphBuilder, Settings, ml

#: Lengths of the tensors: one element, an odd number, several workgroups.
LENGTHS = (1, 17, 1500)
#: Seconds after which something that should have ended counts as hanging.
PATIENCE = 60.0


class Failure(AssertionError):
    """Something that must not be: a wrong value, an error without a cause, a hang, a leak."""


@dataclass(eq=False)
class Tensor:
    """A tensor and what it holds once all calls made so far are over."""

    tensor: Any
    value: np.ndarray
    #: destroy() was called, or is about to be.
    dead: bool = False


@dataclass(frozen=True)
class Formula:
    """A graph's two inputs to its output, for the builder and for NumPy."""

    name: str
    build: Callable[..., Any]
    evaluate: Callable[[np.ndarray, np.ndarray], np.ndarray]
    #: Whether the graph takes the world's constant tensor of its length, 1, 2, 3 …
    constant: bool = False


#: int32, whose arithmetic wraps on every device: values are equal or wrong. "neg" is forced to
#: the CPU in half of the worlds.
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


@dataclass(eq=False)
class World:
    """Whoever changes the model holds ``lock`` for it and for the call: the order of the calls is
    that of the model. Destruction and loss take no lock: they may come at any moment."""

    context: Any
    driver: FaultyDriver | None
    lock: threading.Lock = field(default_factory=threading.Lock)
    tensors: list[Tensor] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)
    #: Promises with what checks their outcome.
    pending: list[Callable[[], None]] = field(default_factory=list)
    #: The context was destroyed, or is about to be.
    ended: bool = False
    #: Threads with a call on it under way.
    visitors: int = 0

    @property
    def over(self) -> bool:
        """Whether InvalidStateError is what calls should get."""
        return self.ended or self.context.lost.done() or self.lost

    @property
    def lost(self) -> bool:
        return self.driver is not None and self.driver.injected["lost"] > 0

    def excuse(self, error: BaseException, *used: Any) -> None:
        """Nothing when ``error`` has a cause that was put there on purpose; else Failure."""
        if isinstance(error, InvalidStateError) and (
            self.over or any(item.dead for item in used)
        ):
            return
        # Its text tells a fault of ours from any other.
        if isinstance(error, DOMException) and self.driver and "injected" in str(error):
            return
        raise Failure(f"{self.context!r}: {type(error).__name__}: {error}") from error

    def check_end(self, *, drop: bool) -> None:
        """With all promises checked and everything in it gone: the context ends, destroyed or only
        dropped, and nothing is left."""
        timeline, name = self.context._timeline, repr(self.context)
        if drop:
            self.context = None
            gc.collect()
        else:
            self._check_loss()
        if not timeline._closed.wait(PATIENCE):
            raise Failure(f"{name}: not closed after {PATIENCE} s")
        if self.driver is not None and self.driver.driver.memory_in_use().reserved:
            raise Failure(f"{name}: {self.driver.driver.memory_in_use()} after its end")

    def _check_loss(self) -> None:
        if not self.over:
            self.ended = True
            self.context.destroy()
        message = self.context.lost.result(PATIENCE).message
        # Both may happen: the first counts.
        known = ["destroy() was called"] * self.ended + ["injected"] * self.lost
        if not any(text in message for text in known):
            raise Failure(f"{self.context!r}: lost: {message}")
        self.context.destroy()

    def check_memory(self) -> None:
        """With everything in it destroyed: no byte is left."""
        for item in (*self.tensors, *self.graphs):
            item.dead = True
            (item.tensor if isinstance(item, Tensor) else item.graph).destroy()
        self.tensors.clear()
        self.graphs.clear()
        if self.over:
            return
        end = time.monotonic() + 5
        # gc.collect() does nothing while another thread collects: once may be too few.
        while left := settled_bytes(self.context):
            if time.monotonic() > end:
                raise Failure(f"{self.context!r}: {left} bytes are left")
            time.sleep(0.1)


def open_world(vulkan: bool, force_cpu: bool) -> World:
    forced = ("neg",) if force_cpu else ()
    if vulkan:
        return World(*open_over(FaultyDriver, force_cpu=forced))
    settings = Settings(device="cpu", force_cpu=forced)
    return World(ml.create_context(settings=settings).result(PATIENCE), None)


def builder_of(world: World, formula: Formula, length: int, constant: Any) -> tuple[Any, Any]:
    """A builder and the graph's output."""
    builder = MLGraphBuilder(world.context)
    descriptor = {"data_type": "int32", "shape": (length,)}
    x, y = (builder.input(name, descriptor) for name in "xy")
    given = builder.constant(constant) if constant is not None else None
    return builder, formula.build(builder, x, y, given)
