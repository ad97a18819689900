"""Networks as PyTorch's two exporters write them, static and dynamic, in single and half precision,
and quantised by ONNX Runtime, compared with ONNX Runtime.

The files are made on demand by a separate environment (`exports/requirements.txt`, torch without
CUDA), which is kept in `.venv-exports` with its output:

    python -m pytest --explore tests/conformance/onnx/test_exports.py
"""

import hashlib
import subprocess
import venv
from pathlib import Path

import numpy as np
import pytest

from tests.support import judges
from tests.support.paths import ROOT
from webnn_vk.onnx import Session

ort = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.explore

SOURCES = Path(__file__).with_name("exports")
ENVIRONMENT = ROOT / ".venv-exports"
TORCH = "torch==2.13.0"
NETWORKS = (
    "resnet50", "mobilenet_v3", "efficientnet_b0", "convnext", "unet", "yolo", "vit", "bert",
    "gpt_step", "lstm", "gru", "small_cnn",
)
FILES = [
    f"{name}.{exporter}.{shapes}"
    for name in NETWORKS
    for exporter in ("dynamo", "legacy")
    for shapes in ("static", "dynamic")
]
HALF = [
    f"{name}.dynamo.static.float16"
    for name in ("mobilenet_v3", "convnext", "vit", "gpt_step", "unet")
]
INT8 = [
    "small_cnn.qdq.int8", "small_cnn.qoperator.int8", "small_cnn.quantised_dynamically.int8",
    "bert.quantised_dynamically.int8",
]
#: Relative to the largest value. float16 has a unit of 1e-3, to which ONNX Runtime rounds after
#: each node and a fused kernel does not. In int8, a value may be rounded to the other side if a
#: float differs in its last bit, which is a step of 1/127 there.
BOUNDS = {"float16": 1e-2, "int8": 2e-2}


def run(*command):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=3600
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{Path(command[0]).name} … {command[-1]}: {last}")


@pytest.fixture(scope="session")
def exports():
    """The folder with the exported files, made if it is missing."""
    parts = [path.read_bytes() for path in sorted(SOURCES.glob("*.*"))]
    folder = ENVIRONMENT / f"exports-{hashlib.sha256(b''.join(parts)).hexdigest()[:12]}"
    if (folder / "done").is_file():
        return folder
    python = ENVIRONMENT / "bin" / "python"
    try:
        if not python.is_file():
            venv.create(ENVIRONMENT, with_pip=True)
        run(python, "-m", "pip", "install", "-q", "--no-deps", TORCH)
        run(python, "-m", "pip", "install", "-q", "-r", SOURCES / "requirements.txt")
        run(python, "-c", "import torch, onnxscript")
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        judges.skip(f"exports from PyTorch: no environment that can make them: {error}")
    run(python, SOURCES / "export.py", folder)
    (folder / "done").touch()
    return folder


def compare(context, path):
    """Our results for each of the model's feeds equal ONNX Runtime's. Returns the graphs' reports.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 3
    theirs, ours = ort.InferenceSession(path, options), Session(path, context)
    bound = BOUNDS.get(path.stem.rsplit(".", 1)[-1], 1e-4)
    reports = []
    for file in sorted(path.parent.glob(f"{path.stem}.[0-9].npz")):
        with np.load(file) as stored:
            feeds = {port.name: stored[port.name] for port in theirs.get_inputs()}
        expected = theirs.run(None, feeds)
        for got, want in zip(ours.run(None, feeds), expected, strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            error = np.abs(got.astype(np.float64) - want).max()
            assert error <= bound * np.abs(want.astype(np.float64)).max(), path.stem
        reports.append(ours.graph(feeds).report())
    return reports


@pytest.mark.parametrize("name", [*FILES, *HALF, *INT8])
def test_on_the_cpu_device(cpu_context, exports, name):
    reports = compare(cpu_context, exports / f"{name}.onnx")
    assert len(reports) == (2 if name.endswith(".dynamic") else 1)


@pytest.mark.parametrize("name", [*FILES, *HALF, *INT8])
def test_on_vulkan_without_a_step_on_the_cpu(vulkan_context, exports, name):
    for report in compare(vulkan_context, exports / f"{name}.onnx"):
        assert {step.device for step in report.steps} == {"vulkan"}


def test_every_export_is_compared(exports):
    assert {path.stem for path in exports.glob("*.onnx")} == {*FILES, *HALF, *INT8}
