"""Chained inference in which the caller does not wait: the explainer's examples, and long chains.
"""

from __future__ import annotations

import asyncio
import threading

import numpy as np

from tests.support.contexts import returns_to, settled_bytes
from tests.support.discriminating import assert_allclose
from tests.support.driver_proxy import DriverProxy
from tests.system.lifetimes.conftest import adder, build, ints, make_tensor
from webnn_vk import MLGraphBuilder
from webnn_vk.runtime.kept_recordings import MAX_RECORDINGS
from webnn_vk.runtime.schedule import MAX_IN_FLIGHT


def test_the_explainers_fibonacci(context):
    async def fibonacci(number):
        scalar = {"data_type": "int32", "shape": [1]}
        builder = MLGraphBuilder(context)
        fn1, fn2 = builder.input("F_n-1", scalar), builder.input("F_n-2", scalar)
        graph = await builder.build({"F_n": builder.add(fn1, fn2)})
        descriptors = [{**scalar, "writable": True}, {**scalar, "writable": True}, dict(scalar)]
        descriptors[number % 3]["readable"] = True
        tensors = await asyncio.gather(*map(context.create_tensor, descriptors))
        context.write_tensor(tensors[0], ints(0))
        context.write_tensor(tensors[1], ints(1))
        for n in range(2, number + 1):
            context.dispatch(
                graph,
                {"F_n-1": tensors[(n - 1) % 3], "F_n-2": tensors[(n - 2) % 3]},
                {"F_n": tensors[n % 3]},
            )
        return (await context.read_tensor(tensors[number % 3]))[0]

    assert [asyncio.run(fibonacci(n)) for n in (2, 10, 46)] == [1, 55, 1836311903]


def test_the_explainers_three_effects(context):
    image = np.linspace(0, 1, 3 * 32 * 32, dtype=np.float32).reshape(3, 32, 32)
    options = {"shape": image.shape, "data_type": "float32"}
    effects = {
        "invert": (lambda b, x: b.sub(b.constant("float32", 1), x), 1 - image),
        "mirror": (lambda b, x: b.reverse(x, axes=[2]), image[:, :, ::-1]),
        "threshold": (lambda b, x: b.cast(b.greater(x, b.constant("float32", 0.5)), "float32"),
                      (image > 0.5).astype(np.float32)),
    }

    async def run():
        graphs = await asyncio.gather(
            *[build(context, make, "input", **options) for make, _ in effects.values()])
        source, *outputs = await asyncio.gather(
            *[make_tensor(context, image.shape, "float32") for _ in range(4)])
        context.write_tensor(source, image)
        for graph, output in zip(graphs, outputs, strict=True):
            context.dispatch(graph, {"input": source}, {"y": output})
        buffers = [np.empty_like(image) for _ in outputs]
        assert await asyncio.gather(*map(context.read_tensor, outputs, buffers)) == [None] * 3
        return buffers

    for result, (_, expected) in zip(asyncio.run(run()), effects.values(), strict=True):
        assert_allclose(result, expected, rtol=1e-6)


class Counting(DriverProxy):
    """Counts calls; `wait` returns once the gate is open."""

    def __init__(self, driver):
        super().__init__(driver)
        self.gate = threading.Event()
        self.gate.set()
        self.submits = self.records = 0

    def submit(self, recordings, **options):
        self.submits += 1
        return self.driver.submit(recordings, **options)

    def record(self, commands):
        self.records += 1
        return self.driver.record(commands)

    def wait(self, value, timeout=None):
        assert self.gate.wait(120)
        return self.driver.wait(value, timeout)


def test_10000_dispatches_without_a_wait(over):
    context, driver = over(Counting)
    graph = adder(context)
    tensors = [make_tensor(context).result() for _ in range(3)]
    context.write_tensor(tensors[1], ints(1, 2, 3, 4))

    def chain(count):
        for n in range(2, 2 + count):
            context.dispatch(graph, {"a": tensors[(n - 1) % 3], "b": tensors[(n - 2) % 3]},
                             {"y": tensors[n % 3]})

    chain(3)
    memory, recordings = settled_bytes(context), len(driver.driver._natives)
    in_use = driver.driver.memory_in_use()
    submits, records = driver.submits, driver.records
    driver.gate.clear()
    chain(9999)
    # No dispatch was seen to end, yet every call returned: the rest is queued as records.
    assert driver.submits - submits <= MAX_IN_FLIGHT
    fence = context.fence()
    assert not fence.done and fence.value >= 10_000
    driver.gate.set()
    assert fence.wait(120) and fence.done
    assert driver.submits - submits < 9999 / 10
    assert driver.records == records, "command buffers are replayed"
    # Memory and descriptors suffice for three dispatches.
    assert returns_to(context, memory)
    assert driver.driver.memory_in_use() == in_use
    assert len(driver.driver._natives) == recordings
    a, b = np.zeros(4, np.int32), ints(1, 2, 3, 4)
    with np.errstate(over="ignore"):
        for _ in range(10_002):
            a, b = b, a + b
    np.testing.assert_array_equal(context.read_tensor(tensors[10_003 % 3]).result(), b)


def test_more_sets_of_tensors_than_a_graph_keeps_recordings(over):
    """Sets that drop out of the cache while their submission is still being assembled."""
    context, driver = over(Counting)
    graph = adder(context)
    count = 2 * MAX_RECORDINGS + 5
    one = make_tensor(context).result()
    context.write_tensor(one, ints(1, 1, 1, 1))
    tensors = [make_tensor(context).result() for _ in range(count + 1)]
    for _ in range(2):
        driver.gate.clear()
        for i in range(count):
            context.dispatch(graph, {"a": tensors[i], "b": one}, {"y": tensors[i + 1]})
        driver.gate.set()
        assert context.read_tensor(tensors[-1]).result()[0] == count
        settled_bytes(context)
        assert len(graph._executable.kept) == MAX_RECORDINGS
        assert sum(map(len, graph._executable.kept._keys.values())) == 3 * MAX_RECORDINGS


def test_contexts_run_side_by_side(over):
    """A context that waits for its device doesn't delay another context."""
    held, driver = over(Counting)
    free, _ = over(Counting)
    graph = adder(held)
    x, y, z = (make_tensor(held).result() for _ in range(3))
    driver.gate.clear()
    held.dispatch(graph, {"a": x, "b": y}, {"y": z})
    pending = held.read_tensor(z)
    t = make_tensor(free).result(60)
    free.write_tensor(t, ints(1, 2, 3, 4))
    assert free.read_tensor(t).result(60).tolist() == [1, 2, 3, 4]
    assert not pending.done()
    driver.gate.set()
    assert pending.result(60).tolist() == [0] * 4


def test_fences_count_up_and_wait(context):
    t = make_tensor(context).result()
    before = context.fence()
    context.write_tensor(t, ints(1, 1, 1, 1))
    after = context.fence()
    assert after.value > before.value
    assert after.wait(60) and after.done and before.done and before.wait(0)
