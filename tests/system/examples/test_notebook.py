"""The notebook of `examples/` in its own kernel: the output of its cells, and likely mistakes."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from tests.system.examples.conftest import EXAMPLES, with_mistake

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")


@pytest.fixture(scope="module")
def notebook():
    read = nbformat.read(EXAMPLES / "notebook.ipynb", 4)
    nbformat.validate(read)
    assert not any(cell.get("outputs") for cell in read.cells)  # of nobody's machine
    return read


def run(notebook, *edits):
    """Outputs of the code cells: texts by MIME type."""
    edited = copy.deepcopy(notebook)
    cells = [cell for cell in edited.cells if cell.cell_type == "code"]
    if edits:
        text = with_mistake("\0".join(cell.source for cell in cells), *edits)
        for cell, source in zip(cells, text.split("\0"), strict=True):
            cell.source = source
    nbclient.NotebookClient(edited, timeout=None, kernel_name="python3").execute()
    return [
        {kind: text for output in cell.outputs for kind, text in output.get("data", {}).items()}
        for cell in cells
    ]


def test_what_the_cells_show(notebook, device):
    found, information, operand, graph, difference, tensor, deviation, _ = run(notebook)
    assert "<DeviceInfo CPU (" in found["text/plain"]
    assert information["text/plain"].startswith("<DeviceInfo CPU") == (device == "cpu")
    assert information["text/html"].startswith("<table>")
    assert operand["text/plain"] == "<MLOperand conv2d [smooth]: float32[1, 1, 1, 200]>"
    steps = {"cpu": "(0 Vulkan, 2 CPU)", "vulkan": "(2 Vulkan, 0 CPU)"}[device]
    assert graph["text/plain"].startswith(f"<GraphReport 2 steps {steps}")
    assert "conv2d [smooth]" in graph["text/html"]
    assert float(difference["text/plain"]) < 1e-6
    assert tensor["text/plain"] == "<MLTensor float32[1, 1, 1, 200] readable writable>"
    assert "float32" in tensor["text/html"]
    assert float(deviation["text/plain"]) == pytest.approx(smoothed().std(), rel=1e-4)


def smoothed():
    """The curve after smoothing it five times."""
    window = np.exp(-np.linspace(-2, 2, 21) ** 2)
    noise = np.random.default_rng(0).normal(0, 0.3, 200)
    curve = np.sin(np.linspace(0, 6, 200)) + noise
    for _ in range(5):
        curve = np.convolve(curve, window / window.sum(), "same")
    return curve


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            ("padding=", "pads="),
            "TypeError: conv2d [smooth]: got an unexpected keyword argument 'pads'; it takes "
            "input, filter, padding, strides, dilations, groups, input_layout, filter_layout, "
            "bias, label; did you mean padding?",
        ),
        (
            ("await builder", "builder"),
            "AttributeError: no attribute 'report': this is an MLPromise of an MLGraph: call "
            ".result() or await it first",
        ),
        (
            ("readable=True, writable=True", "readable=True"),
            "TypeError: write_tensor: <MLTensor float32[1, 1, 1, 200] readable> was not created "
            "with writable=True",
        ),
        (
            ('"curve": noisy}', '"curve": noisy[:100]}'),
            "TypeError: compute: input 'curve': float32[100], 400 bytes, where "
            "float32[1, 1, 1, 200] has 800",
        ),
    ],
    ids=["wrong option", "no await", "not writable", "too short"],
)
def test_mistakes(notebook, monkeypatch, edit, message):
    monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu")
    with pytest.raises(nbclient.exceptions.CellExecutionError) as caught:
        run(notebook, edit)
    assert f"{caught.value.ename}: {caught.value.evalue}" == message
