"""PyTorch's times on the same GPU, by replays of a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from .session import Session


@cache
def torch() -> Any:
    """PyTorch, if it has CUDA."""
    try:
        import torch as found

        return found if found.cuda.is_available() else None
    except Exception:
        return None


def torch_times(session: Session, function: Callable[[], Any]) -> tuple[float, bool]:
    """Measure one call by replays of a CUDA graph, or by calls where capture fails: its seconds,
    and whether it was captured."""
    t = torch()
    with t.no_grad():
        for _ in range(3):
            function()
        t.cuda.synchronize()
        call = function
        try:
            graph = t.cuda.CUDAGraph()
            with t.cuda.graph(graph):
                function()
            call = graph.replay
        except Exception:
            t.cuda.synchronize()
        session.warm(lambda: (call(), t.cuda.synchronize()))
        first, last = (t.cuda.Event(enable_timing=True) for _ in range(2))

        def seconds(count: int) -> float:
            first.record()
            for _ in range(count):
                call()
            last.record()
            t.cuda.synchronize()
            return float(first.elapsed_time(last)) / 1e3 / count

        count = int(min(1000, max(3, 0.08 / max(seconds(3), 1e-6))))
        return float(np.median([seconds(count) for _ in range(3)])), call is not function


def torch_seconds(session: Session, function: Callable[[], Any]) -> float:
    """The seconds of one call (`torch_times`)."""
    return torch_times(session, function)[0]


def add_peer(session: Session, times: dict[str, Any],
             peer: Callable[[], Callable[[], Any]] | None, ours: str = "device") -> dict[str, Any]:
    """Add PyTorch's time, and the ratio to ours. ``peer`` makes the function to measure."""
    if peer is None or torch() is None:
        return times
    measured = session.attempt("torch", lambda: torch_times(session, peer()))
    seconds, graph = measured or (None, None)
    ratio = seconds / times[ours] if seconds and times[ours] else None
    return {**times, "torch": seconds, "torch_graph": graph, "torch_clock": session.clock(),
            "ratio": ratio}


def cuda_randn(shape: Any, dtype: str, over: int = 1) -> Any:
    """Normal random numbers of variance 1 / over on the GPU."""
    t = torch()
    return t.randn(tuple(shape), device="cuda", dtype=getattr(t, dtype)) * over**-0.5
