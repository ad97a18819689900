"""Child processes with limited resources: limits, environment and compilers are set by the test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.contexts import open_context
from tests.support.paths import ROOT
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.store import build_pack

#: Every child starts with this: y = relu(x @ w + b) + x, in kernels that fuse.
COMMON = '''
import os, resource, signal, sys, threading, time, warnings
import numpy as np
import webnn_vk as webnn
from webnn_vk import MLGraphBuilder, ml

SHAPE = {"data_type": "float32", "shape": [4, 4]}
W = np.arange(16, dtype=np.float32).reshape(4, 4) - 8

def build(context, last="add"):
    builder = MLGraphBuilder(context)
    x = builder.input("x", SHAPE)
    y = builder.relu(builder.add(builder.matmul(x, builder.constant(W)), x))
    return builder.build({"y": getattr(builder, last)(y, x)})

def check(context, graph=None):
    """The graph computes what NumPy does."""
    graph = graph or build(context).result(120)
    x = np.arange(16, dtype=np.float32).reshape(4, 4) / 4
    y = context.compute(graph, {"x": x})["y"]
    np.testing.assert_allclose(y, np.maximum(x @ W + x, 0) + x, rtol=1e-5)
    return graph

def said(caught):
    return [str(warning.message) for warning in caught]

def threads():
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("webnn_vk"))

def lower(what, value):
    """Lower a limit of this process; returns what puts it back."""
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (value, hard))
    return lambda: resource.setrlimit(what, (soft, hard))
'''


@pytest.fixture(scope="session")
def pack(vulkan: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Precompiled shaders of the children's graph, unfused, as planned without a cache, which may
    tell how fast the processor gathers."""
    if find_compiler() is None:
        pytest.skip("no GLSL compiler to make a pack with")
    names: dict[str, Any] = {}
    exec(COMMON, names)
    path = tmp_path_factory.mktemp("pack") / "pack.bin"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEBNN_VK_CACHE", "off")
        context = open_context(skip_passes=("fuse",))
    with context:
        program = names["build"](context).result(120)._executable.program
        build_pack(program.kernels, path)
    return path


@pytest.fixture
def child() -> Callable[..., str]:
    """Runs Python code in a new process, with `COMMON` before it, and returns its output; ``first``
    comes before the library is imported."""

    def run(code: str, *, timeout: float = 280, environment: Mapping[str, str | None] = {},
            command: tuple[str, ...] = (), first: str = "") -> str:
        given = {"PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1", **environment}
        full = {**os.environ, **{k: v for k, v in given.items() if v is not None}}
        for name, value in given.items():
            if value is None:
                full.pop(name, None)
        done = subprocess.run(
            [*command, sys.executable, "-c", first + COMMON + code], capture_output=True, text=True,
            env=full, timeout=timeout,
        )
        assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
