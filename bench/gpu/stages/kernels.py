"""Attention, convolutions, normalisation and element-wise steps, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .. import networks
from ..measured_graph import MeasuredGraph, add_constant, add_input, noise
from ..pytorch import add_peer, cuda_randn, torch
from ..session import Session


def run(session: Session) -> None:
    context = session.open_context()
    f: Any = torch().nn.functional if torch() is not None else None

    def row(what: str, dtype: str, describe: Any, shapes: dict[str, Any], peer: Any,
            size: int = 0) -> None:
        feeds = {n: noise(s, dtype) for n, s in shapes.items()}
        measured = MeasuredGraph(session, context, describe, feeds)
        times = add_peer(session, measured.times(), peer)
        measured.destroy()
        rate = 1e-9 * size * np.dtype(dtype).itemsize / times["device"] if times["device"] else None
        session.tell("kernel", what=what, dtype=dtype, gigabytes=rate if size else None, **times)

    def attention(dtype: str, heads: int, rows: int, keys: int) -> None:
        shapes = {"q": (heads, rows, 64), "k": (heads, keys, 64), "v": (heads, keys, 64)}

        def peer() -> Callable[[], Any]:
            q, k, v = (cuda_randn((1, *s), dtype) for s in shapes.values())
            return lambda: f.scaled_dot_product_attention(q, k, v)
        row(f"attention {heads} x {rows} rows x {keys} keys x 64", dtype,
            partial(networks.attention, dtype=dtype, heads=heads, rows=rows, keys=keys), shapes,
            peer)

    def conv(dtype: str, batch: int, c: int, side: int, o: int, k: int, stride: int = 1,
             groups: int = 1) -> None:
        shape, filters = (batch, c, side, side), (o, c // groups, k, k)

        def describe(b: Any) -> dict[str, Any]:
            return {"y": b.relu(b.conv2d(
                add_input(b, "x", dtype, *shape),
                add_constant(b, dtype, *filters, over=c // groups * k**2),
                bias=add_constant(b, dtype, o), padding=[k // 2] * 4, strides=[stride] * 2,
                groups=groups))}

        def peer() -> Callable[[], Any]:
            x, w = (cuda_randn(s, dtype).to(memory_format=torch().channels_last)
                    for s in (shape, filters))
            bias = cuda_randn((o,), dtype)
            return lambda: f.relu(f.conv2d(x, w, bias, stride, k // 2, 1, groups))
        row(f"conv {batch}x{c}x{side}x{side} -> {o}, {k}x{k}/{stride}, groups {groups}", dtype,
            describe, {"x": shape}, peer)

    def rows_of(what: str, dtype: str, n: int, length: int) -> None:
        ones, zeros = np.ones(length, dtype), np.zeros(length, dtype)
        steps: dict[str, Callable[[Any, Any], Any]] = {
            "layer norm": lambda b, x: b.layer_normalization(
                x, scale=b.constant(ones), bias=b.constant(zeros), axes=[1]),
            "softmax": lambda b, x: b.softmax(x, 1), "gelu": lambda b, x: b.gelu(x),
            "relu": lambda b, x: b.relu(x), "sum": lambda b, x: b.reduce_sum(x, axes=[1]),
        }

        def peer() -> Callable[[], Any]:
            x = cuda_randn((n, length), dtype)
            one, zero = (torch().tensor(v, device="cuda") for v in (ones, zeros))
            functions: dict[str, Callable[[], Any]] = {
                "layer norm": lambda: f.layer_norm(x, (length,), one, zero),
                "softmax": lambda: f.softmax(x, 1), "gelu": lambda: f.gelu(x),
                "relu": lambda: f.relu(x), "sum": lambda: x.sum(1)}
            return functions[what]
        row(f"{what} {n}x{length}", dtype,
            lambda b: {"y": steps[what](b, add_input(b, "x", dtype, n, length))},
            {"x": (n, length)}, peer, n * length * (1 if what == "sum" else 2))

    both = ("float16", "float32")
    usual: list[tuple[Callable[..., None], Any]] = (
        [(attention, (d, 16, 1024, 1024)) for d in both]
        + [(attention, ("float16", 8, 4096, 4096)), (attention, ("float16", 8, 4, 4096))]
        + [(conv, (d, 16, 256, 28, 256, 3)) for d in both]
        + [(conv, (d, 1, 64, 56, 64, 3)) for d in both]
        + [(conv, ("float16", 1, 3, 224, 64, 7, 2)), (conv, ("float16", 1, 96, 112, 96, 3, 1, 96))]
        + [(rows_of, (w, d, 8192, 4096)) for w in ("layer norm", "softmax", "gelu", "relu", "sum")
           for d in both])
    small: list[tuple[Callable[..., None], Any]] = [
        (attention, ("float16", 2, 64, 64)), (conv, ("float32", 1, 8, 8, 8, 3)),
        *((rows_of, (w, "float16", 64, 128)) for w in ("layer norm", "sum"))]
    plans = session.choose(usual, small)
    session.run([(f"{job.__name__} {plan}", partial(job, *plan)) for job, plan in plans])
