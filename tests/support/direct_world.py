"""A context whose calls are all direct work (``runtime.direct``)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from webnn_vk import MLContext, MLGraphBuilder
from webnn_vk.api.ml_graph import executable_of

PATIENCE = 60
FOUR = {"data_type": "float32", "shape": [4]}


class World:
    """The identity of four numbers, by a copy, which is all that the null driver computes."""

    def __init__(self, context: MLContext, waits: bool = False) -> None:
        """``waits``: between a dispatch and a read, so that the host may read in place."""
        self.context, self.waits = context, waits
        builder = MLGraphBuilder(self.context)
        identity = builder.reshape(builder.input("x", FOUR), [4])
        self.graph = builder.build({"y": identity}).result(PATIENCE)
        described = {**FOUR, "readable": True, "writable": True}
        self.x, self.y = (
            self.context.create_tensor(described).result(PATIENCE) for _ in range(2)
        )
        self.timeline = self.context._state.timeline
        self.calls = {
            "write": lambda: self.write(1),
            "dispatch": self.dispatch,
            "read": lambda: self.read().result(PATIENCE),
            "fence": lambda: self.context.fence().wait(PATIENCE),
            "compute": lambda: self.compute(1),
            "all": lambda: self.all(1),
        }
        for _ in range(4):  # afterwards everything is kept that later calls use
            for call in self.calls.values():
                self.settle()
                call()
        self.settle()

    def settle(self):
        """Until the library's threads have nothing to do, however long runs took beside others."""
        executable_of(self.graph).cost.seconds = 1e-5
        while not self.timeline.direct.possible:
            pass

    def write(self, number):
        self.context.write_tensor(self.x, np.full(4, number, np.float32))

    def dispatch(self):
        self.context.dispatch(self.graph, {"x": self.x}, {"y": self.y})

    def read(self):
        return self.context.read_tensor(self.y)

    def compute(self, number):
        found = self.context.compute(self.graph, {"x": np.full(4, number, np.float32)})
        assert found["y"].tolist() == [number] * 4

    def all(self, number):
        self.write(number)
        self.dispatch()
        if self.waits:
            self.context.fence().wait(PATIENCE)
        assert self.read().result(PATIENCE).tolist() == [number] * 4


def counting(call: Callable[..., Any], name: str, seen: list[str]) -> Callable[..., Any]:
    """``call``, which appends its name to ``seen`` when this thread calls it: another one may be
    closing the context of an earlier test."""
    here = threading.get_ident()

    def counted(*arguments: Any, **options: Any) -> Any:
        if threading.get_ident() == here:
            seen.append(name)
        return call(*arguments, **options)

    return counted
