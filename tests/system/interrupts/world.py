"""A context with objects of every kind, the calls that get interrupted, and the check afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.contexts import open_context
from webnn_vk import InvalidStateError, MLContext, MLGraphBuilder
from webnn_vk.runtime.batch_assembly import IN_PLACE_BYTES

SHAPE = {"data_type": "float32", "shape": [4]}
#: Staged on the caller's thread, because it is larger than what is copied twice.
LARGE = {"data_type": "float32", "shape": [100, 100]}
#: Its data is copied by the timeline while the caller waits.
WAITED = {"data_type": "float32", "shape": [IN_PLACE_BYTES // 4]}
#: Seconds within which a context computes correctly after an interrupt, or reports that it is lost.
PATIENCE = 60


class World:
    """y = x + 1 on tensors of four numbers, on its own context."""

    def __init__(self, device: str) -> None:
        self.context: MLContext = open_context(device)
        self.graph = self.build().result(60)
        self.x, self.y, self.large, self.waited = (
            self.context.create_tensor({**d, "readable": True, "writable": True}).result()
            for d in (SHAPE, SHAPE, LARGE, WAITED)
        )
        self.large_data = np.ones((100, 100), np.float32)
        self.waited_data = np.ones(WAITED["shape"], np.float32)
        self.data = np.arange(4, dtype=np.float32)
        self.calls: dict[str, Callable[[], Any]] = {
            "write": lambda: self.context.write_tensor(self.x, self.data),
            "write_large": lambda: self.context.write_tensor(self.large, self.large_data),
            "write_waited": lambda: self.context.write_tensor(self.waited, self.waited_data),
            "dispatch": self.dispatch,
            "read": lambda: self.context.read_tensor(self.y),
            "result": lambda: self.context.read_tensor(self.y).result(PATIENCE),
            "read_into": lambda: self.context.read_tensor(self.y, np.empty(4, np.float32)).result(),
            "compute": lambda: self.context.compute(self.graph, {"x": self.data}),
            "compute_async": lambda: self.context.compute_async(self.graph, {"x": self.data}),
            "create": lambda: self.context.create_tensor(SHAPE).result(PATIENCE),
            "destroy": self.create_and_destroy,
            "fence": lambda: self.context.fence().wait(PATIENCE),
            "fence_done": lambda: self.context.fence().done,
            "callback": lambda: self.context.read_tensor(self.y).add_done_callback(str),
            "to_numpy": self.to_numpy,
            "asarray": lambda: np.asarray(self.y),
            "build": lambda: self.build().result(60),
        }

    def build(self) -> Any:
        builder = MLGraphBuilder(self.context)
        return builder.build({"y": builder.input("x", SHAPE) + 1})

    def dispatch(self) -> None:
        self.context.dispatch(self.graph, {"x": self.x}, {"y": self.y})

    def create_and_destroy(self) -> None:
        tensor = self.context.create_tensor({**SHAPE, "readable": True}).result(PATIENCE)
        self.context.read_tensor(tensor)
        tensor.destroy()

    def to_numpy(self) -> None:
        with self.x.to_numpy() as array:
            array[0] = 7

    def check(self, number: float) -> None:
        """Correct results in time, through existing and new tensors."""
        data = np.full(4, number, np.float32)
        self.context.write_tensor(self.x, data)
        self.dispatch()
        assert self.context.read_tensor(self.y).result(PATIENCE).tolist() == [number + 1] * 4
        assert self.context.fence().wait(PATIENCE)

    def check_new(self, number: float) -> None:
        promise = self.context.compute_async(self.graph, {"x": np.full(4, number, np.float32)})
        assert promise.result(PATIENCE)["y"].tolist() == [number + 1] * 4

    def check_lost(self) -> None:
        """The context is lost, with a reason."""
        assert self.context.lost.result(PATIENCE).message
        try:
            self.context.write_tensor(self.x, self.data)
        except InvalidStateError as error:
            assert str(error)
        else:
            raise AssertionError("a lost context took data")
