"""Few rows, then products, beside cuBLAS. Weights are constants, as in models."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..measured_graph import MeasuredGraph, add_constant, add_input, noise
from ..networks import integer_product
from ..pytorch import add_peer, cuda_randn, torch, torch_seconds
from ..session import Session


def run(session: Session) -> None:
    contexts: dict[str, Any] = {}

    def product(dtype: str, m: int, n: int, k: int, way: str = "default",
                transposed: bool = False) -> None:
        if way not in contexts:
            masked = ("cooperative_matrix",) if way == "scalar" else ()
            contexts[way] = session.open_context(masked)
        # Of a few rows several products with weights of their own: the weights of one would stay
        # in the cache.
        chain = 6 if m <= 16 and n == k and dtype != "int8" else 1
        size = np.dtype(dtype).itemsize

        def describe(b: Any) -> dict[str, Any]:
            if dtype == "int8":
                w = (noise((k, n)) * 40).clip(-128, 127).astype(np.int8)
                return integer_product(b, m, k, w)
            x = add_input(b, "a", dtype, m, k)
            for _ in range(chain):
                w = add_constant(b, dtype, *((n, k) if transposed else (k, n)), over=k)
                x = b.gemm(x, w, b_transpose=transposed)
            return {"y": x}

        def peer() -> Callable[[], Any]:
            t = torch()
            if dtype == "int8":
                a, w = (t.randint(-128, 128, s, device="cuda", dtype=t.int8)
                        for s in ((m, k), (n, k)))
                return lambda: t._int_mm(a, w.T)
            a, weights = cuda_randn((m, k), dtype), [
                cuda_randn((n, k), dtype, k).T if transposed else cuda_randn((k, n), dtype, k)
                for _ in range(chain)]

            def products() -> Any:
                x = a
                for w in weights:
                    x = x @ w
                return x
            return products

        feed = noise((m, k), "float32" if dtype == "int8" else dtype)
        measured = MeasuredGraph(session, contexts[way], describe, {
            "a": (feed * 40 + 128).clip(0, 255).astype(np.uint8) if dtype == "int8" else feed})
        row = add_peer(session, measured.times(), peer if way == "default" else None)
        measured.destroy()
        if torch() is not None and dtype == "float32":
            torch().backends.cuda.matmul.allow_tf32 = True
            row["torch_tf32"] = session.attempt("tf32", lambda: torch_seconds(session, peer()))
            torch().backends.cuda.matmul.allow_tf32 = False
        if row["device"]:
            row["teraflops"] = 2e-12 * chain * m * n * k / row["device"]
            row["gigabytes"] = 1e-9 * chain * n * k * size / row["device"]  # of weights
        session.tell("product", dtype=dtype, way=way, m=m, n=n, k=k, chain=chain,
                     transposed=transposed, **row)

    f16 = [(1024,) * 3, (2048,) * 3, (4096,) * 3, (8192,) * 3, (512, 4096, 4096),
           (128, 4096, 4096), (512, 14336, 4096), (128, 768, 768), (512, 768, 3072),
           (196, 1024, 256), (64, 64, 65536)]
    f32 = [(1024,) * 3, (4096,) * 3, (512, 4096, 4096), (128, 768, 768)]
    rows = [("float16", 1, False), ("float16", 4, False), ("float16", 8, False),
            ("float16", 16, False), ("float16", 8, True), ("float32", 8, False),
            ("float16", 1, True), ("float16", 16, True), ("float32", 1, False),
            ("float32", 16, False), ("float32", 1, True)]
    plans: list[tuple[Any, ...]] = session.choose(
        [(d, m, 4096, 4096, "default", t) for d, m, t in rows]
        + [("float16", *s) for s in f16] + [("float32", *s) for s in f32]
        + [("int8", *s) for s in ((1024,) * 3, (4096,) * 3, (512, 4096, 4096))]
        + [("float16", *s, "scalar") for s in ((1024,) * 3, (4096,) * 3)],
        [("float16", 1, 128, 128, "default", True), ("float32", 64, 64, 64),
         ("int8", 64, 64, 64), ("float16", 64, 64, 64, "scalar")])
    session.run([(f"product {plan}", partial(product, *plan)) for plan in plans])
