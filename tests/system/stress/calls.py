"""Calls of the stress test: each makes one call on a world and updates the model.

A call returns False when the world has no objects for it, which doesn't count.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.system.stress.model import FORMULAS, LENGTHS, Failure, Formula, Graph, Tensor, ramp
from tests.system.stress.world import PATIENCE, World
from webnn_vk import DOMException, MLGraphBuilder

#: Maximum number of objects in a world.
MOST = 40


class Calls:
    """Calls of one thread; ``counts`` counts the successful ones by kind."""

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

    def pick_tensor(self, world: World) -> Tensor | None:
        """Prefers an object that is not lent: lent ones only refuse."""
        if self.random.random() < 0.2:
            return self.pick(world.tensors)
        return self.pick(world.tensors, lambda used: not used.held)

    def descriptor(self, length: int, **flags: bool) -> dict[str, Any]:
        return {"data_type": "int32", "shape": (length,), **flags}

    def keep(self, world: World, items: list[Any], made: Any, most: int = MOST) -> None:
        """Adds an object to a world; if there are too many, the oldest is destroyed or dropped."""
        with world.lock:
            items.append(made)
            old = items.pop(0) if len(items) > most else None
        if old is not None and self.random.random() < 0.5:
            old.destroy()

    def destroy_one(self, world: World, items: list[Any]) -> bool:
        """Destroys one of ``items`` without the lock: other threads may be using it."""
        used = self.pick(items)
        if used is not None:
            used.destroy()
            self.remove(world, items, used)
        return used is not None

    @staticmethod
    def remove(world: World, items: list[Any], item: Any) -> bool:
        with world.lock:
            if item in items:
                items.remove(item)
        return item is not None

    def expect(self, world: World, promise: Any, value: np.ndarray, *items: Any,
               result: np.ndarray | None = None) -> None:
        """Schedules the check of a read's outcome, at once in a callback or later on any thread.

        ``items`` excuse errors, see ``World.excuse``. ``result``: the array that is read into, if
        it isn't the promise's value.
        """
        def check(wait: Callable[[Any], Any]) -> None:
            try:
                found = wait(promise)
            except DOMException as error:
                world.excuse(error, *items)
                return
            if isinstance(found, dict):
                (found,) = found.values()  # of a computation
            got = found.view(np.int32) if result is None else result
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
        with world.trying(world):
            made = self.wait(world.context.create_tensor(
                self.descriptor(length, readable=True, writable=True)))
            self.keep(world, world.tensors, Tensor(made, np.zeros(length, np.int32)))

    def write_tensor(self, world: World) -> bool:
        with world.lock:
            used = self.pick_tensor(world)
            if used is None:
                return False
            data = self.values(len(used.value))
            with world.using(world, used):
                world.context.write_tensor(used.tensor, data)
                used.value = data.copy()
        data[:] = -1  # the call has copied it
        return True

    def read_tensor(self, world: World) -> bool:
        with world.lock:
            used = self.pick_tensor(world)
            if used is None:
                return False
            with world.using(world, used):
                promise = world.context.read_tensor(used.tensor)
                if promise.done():
                    promise.result()  # refused at once
                self.expect(world, promise, used.value, world, used)
        return True

    def read_tensor_into(self, world: World) -> bool:
        with world.lock:
            used = self.pick_tensor(world)
            if used is None:
                return False
            buffer = np.full(len(used.value) + 3, 77, np.int32)
            wanted = np.append(used.value, np.full(3, 77, np.int32))
            with world.using(world, used):
                promise = world.context.read_tensor(used.tensor, buffer)
                if promise.done():
                    promise.result()
                self.expect(world, promise, wanted, world, used, result=buffer)
        return True

    def to_numpy(self, world: World) -> bool:
        with world.lock:
            used = self.pick_tensor(world)
            if used is None:
                return False
            with world.using(world, used), used.tensor.to_numpy() as view:
                if not np.array_equal(view, used.value):
                    raise Failure(f"{world.context!r}: view {view[:8]}, {used.value[:8]}")
                view += 1
                used.value = used.value + np.int32(1)
        return True

    def destroy_tensor(self, world: World) -> bool:
        return self.destroy_one(world, world.tensors)

    def drop_tensor(self, world: World) -> bool:
        return self.remove(world, world.tensors, self.pick(world.tensors))

    # -- graphs --------------------------------------------------------------------------------
    def create_constant_tensor(self, world: World) -> None:
        length = self.random.choice(LENGTHS)
        with world.trying(world):
            made = self.wait(world.context.create_constant_tensor(
                self.descriptor(length), ramp(length)))
            self.keep(world, world.constants, Tensor(made, ramp(length)), most=6)

    def destroy_constant_tensor(self, world: World) -> bool:
        return self.destroy_one(world, world.constants)

    def build(self, world: World) -> bool:
        formula, length = self.random.choice(FORMULAS), self.random.choice(LENGTHS)
        constant = None
        if formula.constant:
            with world.lock:
                constant = self.pick(world.constants)
            if constant is None:
                return False
            length = len(constant.value)
        with world.trying(world, *[constant] * formula.constant):
            builder, output = self._builder(world, formula, length, constant)
            promise = builder.build({"z": output})
            if constant is not None and self.random.random() < 0.3:
                constant.destroy()
            graph = Graph(self.wait(promise), formula, length)
            self.keep(world, world.graphs, graph, most=MOST // 2)
        return True

    def _builder(self, world: World, formula: Formula, length: int,
                 constant: Tensor | None) -> tuple[Any, Any]:
        """A builder and the graph's output."""
        builder = MLGraphBuilder(world.context)
        x, y = (builder.input(name, self.descriptor(length)) for name in "xy")
        given = builder.constant(constant.tensor) if constant is not None else None
        return builder, formula.build(builder, x, y, given)

    def dispatch(self, world: World) -> bool:
        done = False
        for _ in range(self.random.choice((1, 1, 4, 30))):
            with world.lock:
                graph = self.pick(world.graphs)
                if graph is None:
                    return done
                lent_too = self.random.random() < 0.1
                fit = [t for t in world.tensors
                       if len(t.value) == graph.length and (lent_too or not t.held)]
                if len(fit) < 3:
                    return done
                x, y, z = self.random.sample(fit, 3)
                with world.using(world, graph, x, y, z):
                    world.context.dispatch(
                        graph.graph, {"x": x.tensor, "y": y.tensor}, {"z": z.tensor})
                    z.value = graph.formula.evaluate(x.value, y.value)
                done = True
        return done

    def compute(self, world: World) -> bool:
        graph = self.pick(world.graphs)
        if graph is None:
            return False
        x, y = self.values(graph.length), self.values(graph.length)
        with world.trying(world, graph):
            result = world.context.compute(graph.graph, {"x": x, "y": y})["z"]
            if not np.array_equal(result, graph.formula.evaluate(x, y)):
                raise Failure(f"{world.context!r}: compute {graph.formula.name}: {result[:8]}")
        return True

    def compute_async(self, world: World) -> bool:
        """Some in flight."""
        with world.lock:
            graph = self.pick(world.graphs)
            if graph is None:
                return False
            for _ in range(self.random.randint(1, 8)):
                x, y = self.values(graph.length), self.values(graph.length)
                wanted = graph.formula.evaluate(x, y)
                promise = world.context.compute_async(graph.graph, {"x": x, "y": y})
                x[:] = y[:] = -1  # the call has copied them
                self.expect(world, promise, wanted, world, graph)
        return True

    def destroy_graph(self, world: World) -> bool:
        return self.destroy_one(world, world.graphs)

    def drop_graph(self, world: World) -> bool:
        return self.remove(world, world.graphs, self.pick(world.graphs))

    # -- the rest ------------------------------------------------------------------------------
    def check_pending(self, world: World) -> None:
        """Settles some of the pending promises."""
        with world.lock:
            count = self.random.randint(1, 8)
            checks, world.pending[:count] = world.pending[:count], []
        for check in checks:
            check()

    def fence(self, world: World) -> None:
        with world.trying(world):
            fence = world.context.fence()
            if self.random.random() < 0.3 and not fence.wait(PATIENCE):
                raise Failure(f"{world.context!r}: {fence!r} is not reached")

    def misuse(self, world: World) -> None:
        """A refused call changes nothing."""
        with world.lock:
            used, graph = self.pick(world.tensors), self.pick(world.graphs)
        context = world.context
        calls = [lambda: context.create_tensor(self.descriptor(0)).result(PATIENCE)]
        if used is not None:
            tensor, short = used.tensor, self.values(len(used.value) + 1)
            calls.append(lambda: context.write_tensor(tensor, short))
            calls.append(lambda: context.read_tensor(tensor, short[:0]).result(PATIENCE))
            if used.gpu is None:
                calls.append(lambda: context.export_to_gpu(tensor))
            if graph is not None:
                g = graph.graph
                calls.append(lambda: context.dispatch(g, {"x": tensor, "y": tensor}, {}))
                calls.append(lambda: context.dispatch(g, {"x": tensor}, {"q": tensor}))
        for call in calls:
            try:
                call()
            except TypeError:
                continue  # DestroyedTensorError too
            except DOMException as error:
                world.excuse(error, world, *[item for item in (used, graph) if item is not None])
                continue
            raise Failure(f"{context!r}: a call with wrong arguments went through")
