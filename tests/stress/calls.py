"""The calls that the stress test makes: each makes one on a world and updates the model."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.stress.world import (
    FORMULAS,
    LENGTHS,
    PATIENCE,
    Failure,
    Graph,
    Tensor,
    World,
    builder_of,
    ramp,
)
from webnn_vk import DOMException

#: What a world keeps at most.
MOST = 40


class Caller:
    """One thread's calls; ``counts`` says how many of each kind came through."""

    def __init__(self, seed: int, *, use_asyncio: bool) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.counts: Counter[str] = Counter()
        self._use_asyncio = use_asyncio

    # -- helpers -------------------------------------------------------------------------------
    def wait(self, promise: Any) -> Any:
        """The promise's result, by a blocking call or on an event loop."""
        if not self._use_asyncio:
            return promise.result(PATIENCE)

        async def wait() -> Any:
            return await asyncio.wait_for(promise, PATIENCE)

        return asyncio.run(wait())

    def values(self, length: int) -> np.ndarray:
        return self.numbers.integers(-1000, 1000, length, np.int32)

    def pick(self, items: list[Any], where: Callable[[Any], bool] = lambda item: True) -> Any:
        found = [item for item in items if where(item)]
        return self.random.choice(found) if found else None

    def descriptor(self, length: int, **flags: bool) -> dict[str, Any]:
        return {"data_type": "int32", "shape": (length,), **flags}

    def expect(self, world: World, promise: Any, used: Tensor, value: np.ndarray,
               result: np.ndarray | None = None) -> None:
        """Have the outcome of a read checked, at once in a callback or later by whoever comes by.

        ``result``: where it goes, when that is not the promise's value.
        """
        def check(wait: Callable[[Any], Any]) -> None:
            try:
                found = wait(promise)
            except DOMException as error:
                world.excuse(error, used)
                return
            got = found if result is None else result
            if not np.array_equal(got, value):
                raise Failure(f"{world.context!r}: read {got[:8]}, expected {value[:8]}")

        if self.random.random() < 0.3:
            failures: list[Exception] = []

            def called(settled: Any) -> None:
                try:
                    check(lambda _: settled.result())
                except Exception as error:
                    failures.append(error)

            promise.add_done_callback(called)

            def later() -> None:
                promise.exception(PATIENCE)
                if failures:
                    raise failures[0]

            world.pending.append(later)
        else:
            world.pending.append(lambda: check(lambda p: p.result(PATIENCE)))

    # -- tensors -------------------------------------------------------------------------------
    def create_tensor(self, world: World) -> None:
        length = self.random.choice(LENGTHS)
        descriptor = self.descriptor(length, readable=True, writable=True)
        made = self.wait(world.context.create_tensor(descriptor))
        tensor = Tensor(made, np.zeros(length, np.int32))
        with world.lock:
            world.tensors.append(tensor)
            old = world.tensors.pop(0) if len(world.tensors) > MOST else None
        if old is not None and self.random.random() < 0.5:
            old.dead = True
            old.tensor.destroy()

    def write_tensor(self, world: World) -> None:
        with world.lock:
            used = self.pick(world.tensors)
            if used is None:
                return
            data = self.values(len(used.value))
            try:
                world.context.write_tensor(used.tensor, data)
            except DOMException as error:
                world.excuse(error, used)
                return
            used.value = data.copy()
        data[:] = -1  # the call has copied it

    def read_tensor(self, world: World) -> None:
        with world.lock:
            used = self.pick(world.tensors)
            if used is None:
                return
            promise = world.context.read_tensor(used.tensor)
            self.expect(world, promise, used, used.value)

    def read_tensor_into(self, world: World) -> None:
        with world.lock:
            used = self.pick(world.tensors)
            if used is None:
                return
            buffer = np.full(len(used.value) + 3, 77, np.int32)
            promise = world.context.read_tensor(used.tensor, buffer)
            wanted = np.append(used.value, np.full(3, 77, np.int32))
            self.expect(world, promise, used, wanted, buffer)

    def to_numpy(self, world: World) -> None:
        with world.lock:
            used = self.pick(world.tensors)
            if used is None:
                return
            try:
                with used.tensor.to_numpy() as view:
                    if not np.array_equal(view, used.value):
                        raise Failure(f"{world.context!r}: view {view[:8]}, {used.value[:8]}")
                    view += 1
                    used.value = used.value + np.int32(1)
            except DOMException as error:
                world.excuse(error, used)

    def destroy_tensor(self, world: World) -> None:
        used = self.pick(world.tensors)
        if used is None:
            return
        used.dead = True
        used.tensor.destroy()  # no lock: others may be using it
        self._remove(world, world.tensors, used)

    def drop_tensor(self, world: World) -> None:
        self._remove(world, world.tensors, self.pick(world.tensors))

    @staticmethod
    def _remove(world: World, items: list[Any], item: Any) -> None:
        with world.lock:
            if item in items:
                items.remove(item)

    # -- graphs --------------------------------------------------------------------------------
    def build(self, world: World) -> None:
        formula, length = self.random.choice(FORMULAS), self.random.choice(LENGTHS)
        constant = None
        if formula.constant:
            constant = self.wait(world.context.create_constant_tensor(
                self.descriptor(length), ramp(length)))
            self.counts["create_constant_tensor"] += 1
        builder, output = builder_of(world, formula, length, constant)
        promise = builder.build({"z": output})
        if constant is not None:
            constant.destroy()
        graph = Graph(self.wait(promise), formula, length)
        with world.lock:
            world.graphs.append(graph)
            old = world.graphs.pop(0) if len(world.graphs) > MOST // 2 else None
        if old is not None and self.random.random() < 0.5:
            old.dead = True
            old.graph.destroy()

    def dispatch(self, world: World) -> None:
        for _ in range(self.random.choice((1, 1, 4, 30))):
            with world.lock:
                graph = self.pick(world.graphs)
                if graph is None:
                    return
                fit = [t for t in world.tensors if len(t.value) == graph.length]
                if len(fit) < 3:
                    return
                x, y, z = self.random.sample(fit, 3)
                try:
                    world.context.dispatch(
                        graph.graph, {"x": x.tensor, "y": y.tensor}, {"z": z.tensor})
                except DOMException as error:
                    world.excuse(error, graph, x, y, z)
                    return
                z.value = graph.formula.evaluate(x.value, y.value)

    def compute(self, world: World) -> None:
        graph = self.pick(world.graphs)
        if graph is None:
            return
        x, y = self.values(graph.length), self.values(graph.length)
        try:
            result = world.context.compute(graph.graph, {"x": x, "y": y})["z"]
        except DOMException as error:
            world.excuse(error, graph)
            return
        if not np.array_equal(result, graph.formula.evaluate(x, y)):
            raise Failure(f"{world.context!r}: compute {graph.formula.name}: {result[:8]}")

    def destroy_graph(self, world: World) -> None:
        used = self.pick(world.graphs)
        if used is None:
            return
        used.dead = True
        used.graph.destroy()
        self._remove(world, world.graphs, used)

    def drop_graph(self, world: World) -> None:
        self._remove(world, world.graphs, self.pick(world.graphs))

    # -- the rest ------------------------------------------------------------------------------
    def check_pending(self, world: World) -> None:
        """Settle some of what is pending."""
        with world.lock:
            count = self.random.randint(1, 8)
            checks, world.pending[:count] = world.pending[:count], []
        for check in checks:
            check()

    def fence(self, world: World) -> None:
        fence = world.context.fence()
        if self.random.random() < 0.3 and not fence.wait(PATIENCE):
            raise Failure(f"{world.context!r}: {fence!r} is not reached")

    def misuse(self, world: World) -> None:
        """What is refused changes nothing."""
        with world.lock:
            used, graph = self.pick(world.tensors), self.pick(world.graphs)
        context = world.context
        calls = []
        if used is not None:
            short = self.values(len(used.value) + 1)
            calls.append(lambda: context.write_tensor(used.tensor, short))
            calls.append(lambda: context.read_tensor(used.tensor, short[:0]).result(PATIENCE))
        if used is not None and graph is not None:
            tensor = used.tensor
            calls.append(lambda: context.dispatch(graph.graph, {"x": tensor, "y": tensor}, {}))
            calls.append(lambda: context.dispatch(graph.graph, {"x": tensor}, {"q": tensor}))
        calls.append(lambda: context.create_tensor(self.descriptor(0)).result(PATIENCE))
        for call in calls:
            try:
                call()
            except TypeError:
                continue  # DestroyedTensorError too
            except DOMException as error:
                world.excuse(error, *[item for item in (used, graph) if item is not None])
                continue
            raise Failure(f"{context!r}: a call with wrong arguments went through")
