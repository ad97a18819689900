"""A graph with its tensors on the device, the time of its runs, and how far its results are off."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from .session import Session


class MeasuredGraph:
    """A graph that ``describe`` builds, with its tensors on the device. ``feeds`` are written to
    its inputs once."""

    def __init__(self, session: Session, context: Any, describe: Callable[[Any], dict[str, Any]],
                 feeds: dict[str, np.ndarray]) -> None:
        import webnn_vk

        start = time.perf_counter()
        builder = webnn_vk.MLGraphBuilder(context)
        self.session, self.context = session, context
        self.graph = builder.build(describe(builder)).result()
        self.build_seconds = time.perf_counter() - start

        def tensor(like: Any, **usage: bool) -> Any:
            return context.create_tensor(
                {"data_type": like.data_type, "shape": list(like.shape), **usage}).result()

        self.inputs = {n: tensor(d, writable=True) for n, d in self.graph.inputs.items()}
        self.outputs = {n: tensor(d, readable=True) for n, d in self.graph.outputs.items()}
        for name, array in feeds.items():
            context.write_tensor(self.inputs[name], array)

    def run(self, times: int = 1) -> None:
        """Run the graph several times, and wait."""
        for _ in range(times):
            self.context.dispatch(self.graph, self.inputs, self.outputs)
        self.context.fence().wait()

    def read(self) -> dict[str, np.ndarray]:
        return {n: np.asarray(self.context.read_tensor(t).result())
                for n, t in self.outputs.items()}

    def destroy(self) -> None:
        for part in (self.graph, *self.inputs.values(), *self.outputs.values()):
            part.destroy()

    def times(self) -> dict[str, Any]:
        """Measure seconds a run: ``queued`` among others, ``alone`` with a wait, ``device`` as the
        sum of its kernels. ``clocks``: before the warm-up, after it, at the end."""
        session, before = self.session, self.session.clock()
        self.run(2)
        session.warm(lambda: self.run(4))
        warmed = session.clock()
        start = time.perf_counter()
        self.run(4)
        one = (time.perf_counter() - start) / 4
        count = int(min(1000, max(4, session.choose(0.15, 0.02) / max(one, 1e-5))))
        start = time.perf_counter()
        self.run(count)
        queued = (time.perf_counter() - start) / count
        alone = []
        for _ in range(10):
            start = time.perf_counter()
            self.run()
            alone.append(time.perf_counter() - start)
        with self.context.profile(every=1, roofline=False) as profile:
            self.run(10)
        return {
            "device": sum(k.mean for k in profile.report.kernels), "queued": queued,
            "alone": float(np.median(alone)), "build": self.build_seconds,
            "clocks": [before, warmed, session.clock()], "dispatches": len(profile.report.kernels),
            "kernels": sum_by_kernel(profile.report),
        }


def sum_by_kernel(report: Any) -> list[dict[str, Any]]:
    """A profile's kernels, summed by name, workgroups and runs, the slowest first."""
    found: dict[Any, dict[str, Any]] = {}
    for k in report.kernels:
        row = found.setdefault((k.kernel, k.groups, k.runs), {
            "kernel": k.kernel, "groups": k.groups, "runs": k.runs, "count": 0, "seconds": 0.0,
            "flops": 0, "bytes": 0, "variant": k.variant, "operators": list(k.operators)[:4]})
        row["count"] += 1
        for name, value in (("seconds", k.mean), ("flops", k.flops), ("bytes", k.bytes)):
            row[name] += value
    return sorted(found.values(), key=lambda row: -row["seconds"])[:40]


@cache
def _block() -> np.ndarray:
    # Its length is a prime number, so that rows of a matrix differ.
    return np.random.default_rng(1).standard_normal(1_000_003, np.float32)


_turns = iter(range(1 << 40))


def noise(shape: Any, dtype: str = "float32", over: int = 1) -> np.ndarray:
    """Normal random numbers of variance 1 / over, from one block, rolled and repeated."""
    values = (np.roll(_block(), 7919 * next(_turns)) * np.float32(over**-0.5)).astype(dtype)
    return np.resize(values, shape)


def add_constant(b: Any, dtype: str, *shape: int, over: int = 1) -> Any:
    return b.constant(noise(shape, dtype, over))


def add_input(b: Any, name: str, dtype: str, *shape: int) -> Any:
    return b.input(name, {"data_type": dtype, "shape": list(shape)})


def relative_error(found: Any, wanted: Any) -> float:
    """The largest difference, relative to the largest wanted value; where that is 0, absolute.
    Infinite for NaN."""
    difference = np.abs(np.asarray(found, np.float64) - wanted)
    if not np.isfinite(difference).all():
        return math.inf
    return float(difference.max() / (np.abs(wanted).max() or 1.0))
