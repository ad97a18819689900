"""A new process to its first result: empty caches, ours kept, the driver's kept too."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from functools import partial

from ..session import ROOT, Session, with_paths

_PROGRAM = """
import json, sys, time
start = time.perf_counter()
import numpy as np
from bench.gpu.measured_graph import MeasuredGraph
from bench.gpu.networks import encoder
from bench.gpu.session import Session
session = Session(sys.stdout, seconds=0, mask=[m for m in sys.argv[1].split(",") if m])
context = session.open_context(); opened = time.perf_counter()
graph = MeasuredGraph(session, context, lambda b: encoder(b, "float16", 1, 128, 384, 6, 12, 1536),
                      {"x": np.ones((128, 384), np.float16)})
built = time.perf_counter(); graph.run(); first = time.perf_counter()
print(json.dumps({"context_built_first": [opened - start, built - start, first - start],
                  "stages": graph.graph.report().build_seconds}))
"""


def run(session: Session) -> None:
    ours, drivers = tempfile.mkdtemp(), tempfile.mkdtemp()

    def once(keep: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", _PROGRAM, ",".join(session.mask)], text=True,
            capture_output=True, timeout=60, check=True,
            # NVIDIA's driver keeps its own cache where the last variable says.
            env={**with_paths(ROOT), "WEBNN_VK_CACHE": ours, "__GL_SHADER_DISK_CACHE_PATH": keep},
        ).stdout

    def start(turn: str) -> None:
        keep = drivers if turn == "both kept" else tempfile.mkdtemp()
        if turn == "both kept":
            once(keep)
        begun = time.perf_counter()
        text = once(keep)
        session.tell("cold", turn=turn, wall=time.perf_counter() - begun, **json.loads(text))

    session.run([(turn, partial(start, turn)) for turn in ("empty", "ours kept", "both kept")])
