"""Work of the main thread meanwhile: calls interrupted by signals at random moments, whose handlers
raise or make calls themselves."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from typing import Any

import numpy as np

from tests.system.stress.model import Failure
from tests.system.stress.world import PATIENCE, World
from webnn_vk import DOMException, MLTensorDescriptor

LENGTH = 64
#: Maximum seconds until a signal arrives.
PAUSE = 0.003
#: Signals per visit, and its maximum duration in seconds.
SIGNALS, VISIT = 20, 0.3


class Interrupt(BaseException):
    """The exception that the handler raises."""


class Signals:
    """``counts`` counts the interrupted calls and the handlers that made calls."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter(interrupt=0, handler=0)
        self._armed = self._calling = False
        self._world: World | None = None
        signal.signal(signal.SIGALRM, self._handle)

    def visit(self, world: World) -> None:
        """Interrupted calls on a world, on separate tensors. However they end, the values are those
        of a write that was made or may have been made."""
        self._world = world
        end = time.monotonic() + VISIT
        try:
            tensor = self._tensor(world)
            maybe = [0]
            for number in range(1, SIGNALS):
                if time.monotonic() > end:
                    break
                maybe = self._round(world, tensor, number, maybe)
            tensor.destroy()
        except DOMException:
            pass  # the world has its own ends and faults
        finally:
            self._world = None

    def _round(self, world: World, tensor: Any, number: int, maybe: list[int]) -> list[int]:
        context, data = world.context, np.full(LENGTH, number, np.int32)
        self._calling = self.random.random() < 0.5
        value = None
        self._armed = True
        try:
            signal.setitimer(signal.ITIMER_REAL, self.random.uniform(0.0001, PAUSE))
            while self._armed:
                context.write_tensor(tensor, data)
                value = context.read_tensor(tensor).result(PATIENCE)
                self._tensor(world)
        except Interrupt:
            self.counts["interrupt"] += 1
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        if value is None:
            # The write may have been made.
            maybe = [*maybe, number]
            value = context.read_tensor(tensor).result(PATIENCE)
        else:
            maybe = [number]
        if not any((value == n).all() for n in maybe):
            raise Failure(f"after a signal: {value.tolist()}, {maybe} was written")
        return maybe

    @staticmethod
    def _tensor(world: World) -> Any:
        descriptor = MLTensorDescriptor("int32", (LENGTH,), readable=True, writable=True)
        return world.context.create_tensor(descriptor).result(PATIENCE)

    def _handle(self, number: int, frame: Any) -> None:
        if not self._armed:
            return
        self._armed = False
        if not self._calling:
            raise Interrupt
        assert self._world is not None
        try:
            tensor = self._tensor(self._world)
            data = np.arange(LENGTH, dtype=np.int32)
            self._world.context.write_tensor(tensor, data)
            value = self._world.context.read_tensor(tensor).result(PATIENCE)
            tensor.destroy()
        except DOMException:
            return
        if not (value == data).all():
            raise Failure(f"in a signal's handler: {value.tolist()}")
        self.counts["handler"] += 1
