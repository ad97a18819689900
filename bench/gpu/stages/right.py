"""Products by each way, integer products and attention against float64; the suite's vectors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from typing import Any

import numpy as np

from ..measured_graph import MeasuredGraph, add_input, relative_error
from ..networks import attention, integer_product
from ..session import ROOT, SHARED, Job, Session, with_paths

#: What a child process computes: some files of the suite's vectors.
_VECTORS = """
import json, sys
from bench.gpu.session import Session
from tests.conformance.wpt import conformance
mask, *names = sys.argv[1:]
context = Session(sys.stdout, seconds=0, mask=[m for m in mask.split(",") if m]).open_context()
tally = conformance.Tally()
for name in names:
    for file, case in conformance.cases(name):
        conformance.run(context, tally, file, case, "default")
    print(json.dumps([tally.passed, tally.failed, tally.skipped, tally.cpu_steps,
                      tally.failures[:20]]), flush=True)
"""


def run(session: Session) -> None:
    rng, contexts = np.random.default_rng(0), dict[str, Any]()
    suite = _suite_children(session)

    def context(way: str) -> Any:
        if way not in contexts:
            masked = ("cooperative_matrix",) if way == "scalar" else ()
            contexts[way] = session.open_context(masked)
        return contexts[way]

    def check(describe: Any, feeds: dict[str, np.ndarray], wanted: np.ndarray, bound: float,
              way: str = "default", **data: Any) -> None:
        measured = MeasuredGraph(session, context(way), describe, feeds)
        measured.run()
        error = relative_error(measured.read()["y"], wanted)
        session.tell("right", way=way, error=error, ok=error <= bound,
                     kernels=[s.kernel for s in measured.graph.report().steps], **data)
        measured.destroy()

    def gemm(way: str, dtype: str, m: int, n: int, k: int, ta: bool, tb: bool) -> None:
        a, w, c = (rng.standard_normal(s).astype(dtype) for s in (
            (k, m) if ta else (m, k), (n, k) if tb else (k, n), (n,)))
        x, y, z = (v.astype(np.float64) for v in (a, w, c))
        check(lambda b: {"y": b.relu(b.gemm(
                  add_input(b, "a", dtype, *a.shape), b.constant(w), c=b.constant(c),
                  a_transpose=ta, b_transpose=tb))},
              {"a": a}, np.maximum((x.T if ta else x) @ (y.T if tb else y) + z, 0),
              2e-3 if dtype == "float16" else 1e-5, way,
              what="gemm", dtype=dtype, size=[m, n, k], transposed=[ta, tb])

    def integers(m: int, n: int, k: int) -> None:
        a, w = rng.integers(0, 256, (m, k), np.uint8), rng.integers(-128, 128, (k, n), np.int8)
        check(partial(integer_product, m=m, k=k, w=w), {"a": a},
              (a.astype(np.float64) - 128) @ w.astype(np.float64) * 1e-4, 1e-5,
              what="integers", dtype="int8", size=[m, n, k])

    def attend(rows: int, keys: int, dtype: str) -> None:
        q, k, v = (rng.standard_normal((4, n, 64)).astype(dtype) for n in (rows, keys, keys))
        s = (q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1)) * 0.125
        e = np.exp(s - s.max(-1, keepdims=True))
        check(partial(attention, dtype=dtype, heads=4, rows=rows, keys=keys),
              {"q": q, "k": k, "v": v}, e / e.sum(-1, keepdims=True) @ v.astype(np.float64),
              4e-3 if dtype == "float16" else 1e-5, what="attention", dtype=dtype,
              size=[rows, keys])

    sizes = [(33, 65, 47), (64, 64, 64), (128, 128, 128), (130, 257, 96), (512, 384, 1000),
             (1, 1024, 512), (7, 2048, 333), (48, 32, 4096), (1024, 1024, 1024)]
    jobs: list[Job] = [
        (f"gemm {way} {dtype} {size} {layout}", partial(gemm, way, dtype, *size, *layout))
        for way in ("default", "scalar") for size in sizes[: session.choose(9, 4)]
        for dtype in ("float16", "float32")
        for layout in ((False, False), (False, True), (True, False))]
    jobs += [(f"integers {s}", partial(integers, *s))
             for s in ((64, 64, 64), (130, 200, 513), (1000, 257, 768))[: session.choose(3, 1)]]
    jobs += [(f"attention {s} {dtype}", partial(attend, *s, dtype))
             for s in ((1, 512), (4, 777), (64, 64), (257, 1000))[: session.choose(4, 2)]
             for dtype in ("float32", "float16")]
    jobs += [(f"suite, part {n}", partial(_suite_result, session, *child))
             for n, child in enumerate(suite)]
    session.run(jobs)


def _suite_children(session: Session) -> list[tuple[subprocess.Popen[str], int]]:
    """Processes that run the suite's vectors, where the suite is there, each with its number."""
    folder = SHARED / "wpt" / "conformance"
    files = sorted(folder.glob("*.json"), key=lambda f: -f.stat().st_size)
    if session.small:
        files = [f for f in files if f.stem in ("relu", "softmax")]
    count = min(len(files), max(1, min(8, (os.cpu_count() or 2) // 2)))
    children = []
    for n in range(count):
        names = [f.stem for f in files[n::count]]
        cases = sum(len(json.loads(f.read_text())["cases"]) for f in files[n::count])
        children.append((subprocess.Popen(
            [sys.executable, "-c", _VECTORS, ",".join(session.mask), *names], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=with_paths(ROOT)), cases))
    if not children:
        session.tell("note", text=f"no vectors of the suite in {folder}")
    return children


def _suite_result(session: Session, process: subprocess.Popen[str], cases: int) -> None:
    try:
        left = max(1.0, session.deadline + 2 - time.monotonic())
        text, error = process.communicate(timeout=left)
    except subprocess.TimeoutExpired:
        process.kill()  # its results so far still count
        text, error = process.communicate()
    if not text:
        raise RuntimeError(error[-400:])
    passed, failed, skipped, cpu, failures = json.loads(text.splitlines()[-1])
    session.tell("right", what="suite", cases=cases, passed=passed, failed=failed, skipped=skipped,
                 cpu_steps=cpu, failures=failures,
                 ok=not failed and not cpu and passed + skipped == cases)
