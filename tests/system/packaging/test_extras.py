"""Each extra, alone in a fresh environment, provides what the documentation says."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.support.drivers import require_vulkan
from tests.support.gguf_files import text_gguf
from tests.support.text_models import text_folder
from tests.unit.support.test_packages import EXTRAS
from webnn_vk.support import packages

# The first of them waits for the wheel.
pytestmark = pytest.mark.timeout(900)

GRAPH = """
import numpy as np, webnn_vk as webnn
context = webnn.ml.create_context(settings=webnn.Settings(device="cpu", cpu_engine="{engine}"))
context = context.result()
builder = webnn.MLGraphBuilder(context)
x = builder.input("x", {{"data_type": "float32", "shape": [2, 600]}})
values = np.arange(600, dtype=np.float32)
weights = builder.constant({{"data_type": "float32", "shape": [600]}}, values)
graph = builder.build({{"y": builder.relu(builder.add(x, weights))}}).result()
"""
RUNS = """
ones = np.ones((2, 600), np.float32)
assert context.compute(graph, {'x': ones})['y'].sum() == 360600
"""
ONNX = GRAPH.format(engine="numpy") + """
from webnn_vk import onnx
onnx.export(graph, "model.onnx")
graph = onnx.load("model.onnx", context).result()
session = onnx.Session("model.onnx", context)
assert session.run(None, {"x": np.ones((2, 600), np.float32)})[0].sum() == 360600
"""
WEIGHTS = GRAPH.format(engine="numpy") + """
import os
from webnn_vk import webnn_file
webnn_file.save(graph, "model.webnn")
assert os.path.getsize("model.safetensors") > 2400
graph = webnn_file.load("model.webnn", context).result()
"""
ENGINE = GRAPH.format(engine="onnxruntime") + "assert 'ONNX Runtime' in str(context.device_info)\n"
PICTURE = """
import sys
from webnn_vk.tools.cli import main
open("small.webnn", "w").write('''webnn_graph "g" v1 {
  inputs { x: f32[2, 3]; } consts { } nodes { y = relu(x); } outputs { y; }
}''')
assert main(["graph", "small.webnn", "--device", "cpu", "--svg", "small.svg"]) == 0
assert open("small.svg").read().startswith("<svg")
"""
COMPILERS = """
from webnn_vk.codegen import compiler
assert compiler.find_compiler().version.startswith("glslang ")
"""
GENERATION = """
from webnn_vk import ml
from webnn_vk.generate import Model
for path in ("decoder", "decoder.gguf"):
    model = Model.load(path, ml.create_context(accelerated=False).result())
    assert len(model.generate_tokens(model.tokenizer.encode("hello"), 3)) == 3
"""
BRIDGE = """
from webnn_vk.bridge.frames import PROTOCOL, Frame, Kind
from webnn_vk.bridge.session import Session
(hello,) = Session(print).handle(Frame(Kind.HELLO, 1, {"protocol": PROTOCOL}))
assert hello.header["protocol"] == PROTOCOL
"""
RAY = """
from ray import data
from webnn_vk.distributed.ray import Predictor
from webnn_vk.distributed.serve import Deployment
ones = np.ones((2, 600), np.float32)
assert Predictor("model.onnx", device="cpu")({"x": ones})["y"].sum() == 360600
"""
#: Those that `all` leaves out, and that only --explore tries: they take minutes to install.
LARGE = {"ray", "spark"}
CHARTS = "from bench import charts, cpu, dispatch, interop\ncharts.plotting()\n"
#: Extra: its test program, and the folder to run it in ("" for a new one). The demo has its own
#: tests.
DOES = {
    "onnx": ("", ("-c", ONNX + RUNS)),
    "webnn": ("", ("-c", WEIGHTS + RUNS)),
    "cpu": ("", ("-c", ENGINE + RUNS)),
    "pictures": ("", ("-c", PICTURE)),
    "compiler": ("", ("-c", COMPILERS)),
    "bridge": ("", ("-c", BRIDGE)),
    "generate": ("", ("-c", GENERATION)),
    "ray": ("", ("-c", ONNX + RUNS + RAY)),
    "spark": ("", ("-c", ONNX + RUNS + "from webnn_vk.distributed.spark import make_predict_fn\n"
                   "from pyspark.ml.functions import predict_batch_udf\n")),
    "wgpu": ("", ("-c", "import wgpu; assert wgpu.gpu.enumerate_adapters_sync")),
    "bench": ("clone", ("-c", CHARTS)),
    "docs": ("clone", ("-m", "mkdocs", "build", "-q", "-d", "site")),
    "all": ("", ("-c", ONNX + RUNS + WEIGHTS + RUNS + ENGINE + RUNS + PICTURE + COMPILERS
                    + GENERATION + BRIDGE)),
}


def test_every_extra_is_tried():
    assert EXTRAS.keys() - {"demo", "dev", "test"} == DOES.keys()


@pytest.mark.sample(0.25)
@pytest.mark.parametrize("extra", [
    pytest.param(extra, marks=[pytest.mark.explore] * (extra in LARGE)) for extra in DOES])
def test_extra(extra, environment, clone, tmp_path):
    if extra == "wgpu":
        require_vulkan()
    text_folder(tmp_path / "decoder")
    text_gguf(tmp_path / "decoder.gguf")
    folder, arguments = DOES[extra]
    python = environment(extra)
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-W", "ignore", *arguments], capture_output=True, text=True,
        cwd=clone if folder else tmp_path,
        # No GLSL compiler except one that came with the extra.
        env={**variables, "PATH": "", "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    features = [f for f, (its, _) in packages.FEATURES.items()
                if extra == its or extra == "all" and its not in LARGE]
    lacking = f"from webnn_vk.support import packages\nprint(packages.missing({features!r}))"
    done = subprocess.run([python, "-c", lacking], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "[]\n", done.stderr
