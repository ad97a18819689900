"""Dispatches per second of a graph of one addition, compared with wgpu-py in the same run, and the
times of its `compute` one after the other, in flight and on several threads."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from webnn_vk import MLContext, MLGraphBuilder, MLTensorDescriptor
from webnn_vk.support import packages
from webnn_vk.tools import ToolError
from webnn_vk.tools.devices import open_context

from .table import show

LENGTH = 1024
#: Calls per figure: chained, and with the result read back after each.
CHAINED, READ_BACK = 10_000, 500
#: `compute` calls per figure, and on how many threads or how many in flight they are.
COMPUTES, THREADS, IN_FLIGHT = 1000, 4, (1, 10, 50)
SHADER = """
@group(0) @binding(0) var<storage, read> a: array<i32>;
@group(0) @binding(1) var<storage, read> b: array<i32>;
@group(0) @binding(2) var<storage, read_write> y: array<i32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < arrayLength(&y)) { y[id.x] = a[id.x] + b[id.x]; }
}
"""


class Ours:
    """y = a + b over three tensors of a context, which change roles after each dispatch."""

    def __init__(self, context: MLContext) -> None:
        self.context = context
        builder = MLGraphBuilder(context)
        descriptor = MLTensorDescriptor("int32", (LENGTH,), readable=True, writable=True)
        a, b = builder.input("a", descriptor), builder.input("b", descriptor)
        self.graph = builder.build({"y": builder.add(a, b)}).result()
        self.tensors = [context.create_tensor(descriptor).result() for _ in range(3)]

    def start(self, values: np.ndarray) -> None:
        self.context.write_tensor(self.tensors[0], values)
        self.context.write_tensor(self.tensors[1], values)

    def dispatch(self, turn: int) -> None:
        a, b, y = (self.tensors[(turn + i) % 3] for i in range(3))
        self.context.dispatch(self.graph, {"a": a, "b": b}, {"y": y})

    def flush(self) -> None:
        pass  # queued work is submitted automatically

    def read(self, turn: int) -> np.ndarray:
        return self.context.read_tensor(self.tensors[(turn + 2) % 3]).result()


class Wgpu:
    """The same with wgpu-py at its fastest: bind groups created once, many dispatches in a pass."""

    #: Dispatches per pass and submission: about as many as our timeline puts into a batch.
    GATHERED = 250

    def __init__(self, wgpu: Any, device: Any) -> None:
        self.wgpu, self.device = wgpu, device
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        self.buffers = [device.create_buffer(size=4 * LENGTH, usage=usage) for _ in range(3)]
        module = device.create_shader_module(code=SHADER)
        self.pipeline = device.create_compute_pipeline(
            layout="auto", compute={"module": module, "entry_point": "main"}
        )
        layout = self.pipeline.get_bind_group_layout(0)
        self.groups = [
            device.create_bind_group(
                layout=layout,
                entries=[
                    {"binding": i, "resource": {"buffer": self.buffers[(turn + i) % 3]}}
                    for i in range(3)
                ],
            )
            for turn in range(3)
        ]
        self.encoder: Any = None
        self.compute_pass: Any = None
        self.gathered = 0

    def start(self, values: np.ndarray) -> None:
        for buffer in self.buffers[:2]:
            self.device.queue.write_buffer(buffer, 0, values)

    def dispatch(self, turn: int) -> None:
        if self.encoder is None:
            self.encoder = self.device.create_command_encoder()
            self.compute_pass = self.encoder.begin_compute_pass()
            self.compute_pass.set_pipeline(self.pipeline)
        self.compute_pass.set_bind_group(0, self.groups[turn % 3])
        self.compute_pass.dispatch_workgroups(LENGTH // 64)
        self.gathered += 1
        if self.gathered == self.GATHERED:
            self.flush()

    def flush(self) -> None:
        if self.encoder is not None:
            self.compute_pass.end()
            self.device.queue.submit([self.encoder.finish()])
        self.encoder, self.gathered = None, 0

    def read(self, turn: int) -> np.ndarray:
        self.flush()
        data = self.device.queue.read_buffer(self.buffers[(turn + 2) % 3])
        return np.frombuffer(data, np.int32)


def main(device: str | None, runs: int) -> None:
    """Medians of `runs` figures, alternating between us and wgpu-py. Their results are compared."""
    with open_context(device) as context:
        engines: dict[str, Any] = {"webnn_vk": Ours(context)}
        print(f"webnn_vk  {context.device_info}")
        other = _wgpu_device(context.device_info.name)
        if isinstance(other, str):
            print(f"wgpu-py   not measured: {other}")
        else:
            wgpu, adapter, opened = other
            engines["wgpu-py"] = Wgpu(wgpu, opened)
            print(f"wgpu-py   {wgpu.__version__}, {adapter.info['device']}")
        costs: dict[str, list[float]] = {name: [] for name in engines}
        chained: dict[str, list[float]] = {name: [] for name in engines}
        read_back: dict[str, list[float]] = {name: [] for name in engines}
        for run in range(runs + 1):
            values = np.full(LENGTH, run % 7, np.int32)
            results = []
            for name, engine in engines.items():
                cost, rate, result = _chain(engine, values)
                results.append(result)
                rate_back = _read_back(engine, values)
                if run:  # the first warms up
                    costs[name].append(cost)
                    chained[name].append(rate)
                    read_back[name].append(rate_back)
            if not all(np.array_equal(results[0], result) for result in results):
                raise ToolError("webnn_vk and wgpu-py don't compute the same")
        show(
            [
                f"one addition of {LENGTH} int32",
                "dispatches/s chained",
                "dispatches/s read back",
                "one call, µs",
            ],
            [
                [
                    name,
                    f"{statistics.median(chained[name]):,.0f}",
                    f"{statistics.median(read_back[name]):,.0f}",
                    f"{statistics.median(costs[name]):.2f}",
                ]
                for name in engines
            ],
        )
        _show_computes(engines["webnn_vk"], runs)
    print(
        f"\nChained: {CHAINED} calls without a wait and one read at the end, all included. One "
        "call: the median\ntime in which dispatch() returns, validation included, while the "
        "library's threads run; for wgpu-py,\nbind group and dispatch in a pass that is submitted "
        f"every {Wgpu.GATHERED}th time."
    )


def _chain(engine: Any, values: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Median µs of a call, calls per second to the last result, that result."""
    engine.start(values)
    clock: Callable[[], int] = time.perf_counter_ns
    costs = []
    begin = clock()
    for turn in range(CHAINED):
        start = clock()
        engine.dispatch(turn)
        costs.append(clock() - start)
    engine.flush()
    result = engine.read(CHAINED - 1)
    return statistics.median(costs) / 1e3, CHAINED / (clock() - begin) * 1e9, result


def _read_back(engine: Any, values: np.ndarray) -> float:
    engine.start(values)
    start = time.perf_counter()
    for turn in range(READ_BACK):
        engine.dispatch(turn)
        engine.read(turn)
    return READ_BACK / (time.perf_counter() - start)


def _show_computes(ours: Ours, runs: int) -> None:
    """Medians of `runs` figures of `compute` by the clock and in processor time, in turn."""
    context, graph = ours.context, ours.graph
    feeds = {name: np.arange(LENGTH, dtype=np.int32) for name in "ab"}

    def one(_: object = None) -> np.ndarray:
        return context.compute(graph, feeds)["y"]

    def together(number: int) -> np.ndarray:
        made = [context.compute_async(graph, feeds) for _ in range(number)]
        return [promise.result()["y"] for promise in made][-1]

    with ThreadPoolExecutor(THREADS) as pool:
        ways: dict[str, tuple[Callable[[], np.ndarray], int]] = {
            "compute": (one, 1),
            **{f"compute_async, {n} in flight": (lambda n=n: together(n), n) for n in IN_FLIGHT},
            f"compute on {THREADS} threads": (
                lambda: [*pool.map(one, range(COMPUTES))][-1], COMPUTES
            ),
        }
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for run in range(runs + 1):
            for name, (way, number) in ways.items():
                clock, processor = time.perf_counter(), time.process_time()
                for _ in range(COMPUTES // number):
                    result = way()
                took = time.perf_counter() - clock, time.process_time() - processor
                if not np.array_equal(result, 2 * feeds["a"]):
                    raise ToolError(f"{name} doesn't compute the sum")
                if run:  # the first warms up
                    figures[name].append(took)
    show(
        ["the same addition on arrays", "a call, µs", "processor time, µs"],
        [
            [
                name,
                *(f"{statistics.median(times) / COMPUTES * 1e6:.0f}"
                  for times in zip(*rows, strict=True)),
            ]
            for name, rows in figures.items()
        ],
    )


def _wgpu_device(name: str) -> Any:
    """(wgpu, adapter, device) on the Vulkan device of that name, or the reason why there is
    none."""
    missing = packages.problem("it needs", "wgpu")
    if missing:
        return missing
    import wgpu

    for adapter in wgpu.gpu.enumerate_adapters_sync():
        if adapter.info["backend_type"] == "Vulkan" and adapter.info["device"] == name:
            return wgpu, adapter, adapter.request_device_sync()
    return f"it finds no Vulkan device called {name}"
