"""Latencies of a tiny graph and rates of transfers, beside PyTorch's."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..measured_graph import add_input, noise
from ..pytorch import torch
from ..session import Session


def run(session: Session) -> None:
    import webnn_vk
    from webnn_vk.driver.commands import CopyCommand

    t, context = torch(), session.open_context()
    builder = webnn_vk.MLGraphBuilder(context)
    x = add_input(builder, "x", "float32", 16)
    graph = builder.build({"y": builder.add(x, x)}).result()

    def tensor(count: int, **usage: bool) -> Any:
        return context.create_tensor({"data_type": "float32", "shape": [count], **usage}).result()

    def median(function: Callable[[], Any], count: int, warming: float) -> float:
        session.warm(function, warming)
        found = []
        for _ in range(count):
            start = time.perf_counter()
            function()
            found.append(time.perf_counter() - start)
        return float(np.median(found))

    def row(kind: str, ways: dict[str, Callable[[], Any]], count: int,
            scale: Callable[[float], float]) -> None:
        def measure(function: Callable[[], Any]) -> float:
            return scale(median(function, count, session.choose(0.3, 0.02)))

        session.tell(kind, clock=session.clock(), values={
            name: session.attempt(name, partial(measure, f)) for name, f in ways.items()})

    def latencies() -> None:
        a, i, o = np.ones(16, np.float32), tensor(16, writable=True), tensor(16, readable=True)

        def write() -> Any:
            return context.write_tensor(i, a)

        def dispatch() -> Any:
            return context.dispatch(graph, {"x": i}, {"y": o})

        def wait() -> Any:
            return context.fence().wait()

        ways: dict[str, Callable[[], Any]] = {
            "fence, wait": wait,
            "dispatch, wait": lambda: (dispatch(), wait()),
            "write, wait": lambda: (write(), wait()),
            "read": lambda: context.read_tensor(o).result(),
            "write, dispatch, read": lambda: (
                write(), dispatch(), context.read_tensor(o).result()),
            "compute": lambda: context.compute(graph, {"x": a}),
        }
        if t is not None:
            z = t.ones(16, device="cuda")
            ways["torch: add, synchronize"] = lambda: (z + z, t.cuda.synchronize())
            ways["torch: to the device, add, back"] = lambda: (
                (v := t.from_numpy(a).cuda()) + v).cpu().numpy()
        row("latencies, us", ways, 300, lambda seconds: round(1e6 * seconds, 1))

    def transfers() -> None:
        count = session.choose(1 << 26, 1 << 12)
        on_device, v = tensor(count, writable=True, readable=True), noise((count,))
        out = np.empty_like(v)
        device = context._state.device

        def write() -> None:
            context.write_tensor(on_device, v)
            context.fence().wait()

        def write_anew() -> None:
            """With transfer memory that has to be allocated again."""
            device.trim()
            write()

        def write_imported() -> None:
            """By a copy on the device from the array's own pages."""
            pages, target = device.import_storage(v.view(np.uint8)), on_device._state.storage
            copy = CopyCommand(pages.backing, 0, target.backing, 0, v.nbytes)
            recording = device.driver.record([copy])
            device.driver.wait(device.driver.submit([recording]))
            recording.free()

        ways: dict[str, Callable[[], Any]] = {
            "write, wait": write,
            "write, wait, nothing kept": write_anew,
            "write from imported pages": write_imported,
            "read": lambda: context.read_tensor(on_device).result(),
            "read into an array": lambda: context.read_tensor(on_device, out).result(),
            "numpy's copy": lambda: np.copyto(out, v),
        }
        if t is not None:
            host, back = t.from_numpy(v), t.from_numpy(out)
            pinned, far = host.pin_memory(), host.cuda()

            def move(to: Any, source: Any) -> None:
                to.copy_(source)
                t.cuda.synchronize()

            for name, to, source in (("pageable to device", far, host),
                                     ("pinned to device", far, pinned),
                                     ("device to pageable", back, far),
                                     ("device to pinned", pinned, far)):
                ways[f"torch: {name}"] = partial(move, to, source)
        row("transfers, GB/s", ways, 5, lambda seconds: round(4e-9 * count / seconds, 2))

    session.run([("latencies", latencies), ("transfers", transfers)])
