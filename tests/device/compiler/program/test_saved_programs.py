"""A program written by one process and run by another, without builder and compiler passes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tests.support import discrete, models
from tests.support.loading import set_up
from tests.support.paths import ROOT
from tests.support.saving import save_program
from webnn_vk import MLGraphBuilder
from webnn_vk.compiler.program import compile_program
from webnn_vk.compiler.program.serial import load

CHILD = """
import sys
from pathlib import Path
import numpy as np
import webnn_vk.api.build
import webnn_vk.compiler.ir.graph
import webnn_vk.compiler.passes
import webnn_vk.compiler.kernels
import webnn_vk.api.builder
from tests.support.loading import set_up
from webnn_vk.compiler.program.serial import load
from webnn_vk.tools.devices import open_context

def refuse(*args, **named):
    raise AssertionError("this process compiles nothing")

webnn_vk.api.build.compile_program = webnn_vk.compiler.kernels.lower.plan = refuse
webnn_vk.compiler.ir.graph.Graph.__init__ = webnn_vk.compiler.ir.graph.Node.__init__ = refuse
webnn_vk.api.builder.MLGraphBuilder.__init__ = refuse
folder = Path(sys.argv[1])
feeds = dict(np.load(folder / "feeds.npz"))
with open_context("vulkan") as context:
    saved = load(folder)
    graph = set_up(context, saved.program, saved.constants)
    np.savez(folder / "results.npz", **context.compute(graph, feeds))
    print(graph.report().count("cpu"), graph.report().count("vulkan"))
"""


def partly_on_the_cpu(context):
    """Softmax, triangular and concat on the CPU, with constants on both sides."""
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [6, 10]})
    random = np.random.default_rng(0)
    w = builder.constant(random.standard_normal((10, 10), np.float32))
    y = builder.softmax(builder.matmul(x, w), 1)
    y = builder.add(builder.concat([y, w], 0), builder.constant("float32", 0.5))
    y = builder.triangular(y, upper=False)
    return models.capture(context, lambda: builder.build({"y": builder.tanh(y)}))


#: MobileNetV2 on a thumbnail.
SMALL = (1, 3, 64, 64)
GRAPHS = {
    "mobilenet_v2": (partial(models.mobilenet, shape=SMALL), (), {"image": SMALL}),
    "lstm": (models.lstm, (), {"x": (5, 2, 16)}),
    "mixed": (partly_on_the_cpu, ("softmax", "triangular", "concat"), {"x": (6, 10)}),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_another_process_gets_the_same_bits(vulkan_context, tmp_path, name):
    discrete.require_same_device()
    make, forced, given = GRAPHS[name]
    random = np.random.default_rng(4)
    feeds = {key: random.standard_normal(shape, np.float32) for key, shape in given.items()}
    target = replace(vulkan_context._state.target, force_cpu=forced)
    program, constants = compile_program(make(vulkan_context), target)
    save_program(program, constants, tmp_path)
    np.savez(tmp_path / "feeds.npz", **feeds)
    wanted = vulkan_context.compute(set_up(vulkan_context, program, constants), feeds)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)], cwd=ROOT, env=dict(os.environ),
        capture_output=True, text=True, timeout=300,
    )
    assert done.returncode == 0, done.stderr
    on_cpu, on_device = map(int, done.stdout.split())
    assert (on_cpu > 0) == bool(forced) and on_device > 0
    got = dict(np.load(tmp_path / "results.npz"))
    assert got.keys() == wanted.keys()
    for key, array in wanted.items():
        assert array.any()
        np.testing.assert_array_equal(got[key].view(np.uint8), array.view(np.uint8))
    # Once more here, from the file.
    saved = load(tmp_path)
    again = vulkan_context.compute(
        set_up(vulkan_context, saved.program, saved.constants), feeds
    )
    for key, array in wanted.items():
        np.testing.assert_array_equal(again[key].view(np.uint8), array.view(np.uint8))
