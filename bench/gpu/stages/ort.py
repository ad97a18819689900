"""ONNX Runtime WebGPU beside ours over the same files, each in a process of its own: arrays in,
arrays out. As a program: one file by ONNX Runtime, the result on stdout."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..measured_graph import relative_error
from ..session import ROOT, SHARED, Session, with_paths

WORKLOADS = ("matmul_1024", "conv3x3_56x56_64_64", "mobilenet_v2_224", "resnet50_v1_224",
             "bert_2l_128", "bert_12l_128")


def _workloads(root: str) -> Any:
    """The peers' module of ONNX files; ``root`` is where it keeps them."""
    os.environ["PEERS_ROOT"] = root
    sys.path.insert(0, str(SHARED / "peers"))
    import workloads

    return workloads


def _end_to_end(session: Session, call: Callable[[], Any]) -> tuple[dict[str, Any], Any]:
    """Seconds of the first call and of later ones; the result."""
    start = time.perf_counter()
    result = call()
    first, found = time.perf_counter() - start, list[float]()
    session.warm(call)
    end = time.perf_counter() + session.choose(1.0, 0.2)
    while len(found) < 5 or (time.perf_counter() < end and len(found) < 300):
        start = time.perf_counter()
        result = call()
        found.append(time.perf_counter() - start)
    return {"first": first, "seconds": float(np.median(found)), "least": min(found),
            "clock": session.clock()}, result


def run(session: Session) -> None:
    if not (SHARED / "peers" / "workloads.py").exists():
        session.tell("note", text="no ../shared/peers/workloads.py: no files to compare")
        session.run([])
        return
    root = tempfile.mkdtemp()
    names = session.choose(WORKLOADS, ("softmax_12x128x128",))
    files = _workloads(root)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints what it makes
        files.build_all(list(names))

    def theirs(name: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "bench.gpu.stages.ort", name, root, str(int(session.small))],
            text=True, stdout=subprocess.PIPE, timeout=40, check=True, cwd=ROOT,
            env=with_paths(session.ort))
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def compare(name: str) -> None:
        from webnn_vk.onnx import load

        context, feeds = session.open_context(), files.feeds(name)
        graph = load(files.manifest()[name]["file"], context).result()
        output = next(iter(graph.outputs))
        ours, y = _end_to_end(session, lambda: context.compute(graph, feeds)[output])
        context.destroy()
        np.save(Path(root) / "ours.npy", y)
        peer = session.attempt(f"ort {name}", partial(theirs, name))
        ratio = peer["seconds"] / ours["seconds"] if peer else None
        session.tell("end to end", workload=name, ours=ours, ort=peer, ratio=ratio)

    session.run([(name, partial(compare, name)) for name in names])


def main(name: str, root: str, small: str) -> None:
    session = Session(io.StringIO(), seconds=0, small=bool(int(small)))
    files = _workloads(root)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    inference = onnxruntime.InferenceSession(files.manifest()[name]["file"], options,
                                             providers=["WebGpuExecutionProvider"])
    if "WebGpuExecutionProvider" not in inference.get_providers():
        sys.exit(f"ONNX Runtime {onnxruntime.__version__} has no WebGPU here")
    feeds = files.feeds(name)
    times, y = _end_to_end(session, lambda: inference.run(None, feeds)[0])
    print(json.dumps({**times, "version": onnxruntime.__version__,
                      "providers": inference.get_providers(),
                      "differs": relative_error(np.load(Path(root) / "ours.npy"), y)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
