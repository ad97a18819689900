"""The texts in docs/webnn-file.md can be read."""

import re

import numpy as np
from safetensors.numpy import save_file

from tests.support.paths import ROOT
from webnn_vk import webnn_file
from webnn_vk.api.builder import ShapeBuilder

PAGE = (ROOT / "docs" / "webnn-file.md").read_text()


def test_the_text_of_the_page(tmp_path):
    (text,) = re.findall(r"```\n(# A comment\n.*?)```", PAGE, re.DOTALL)
    (tmp_path / "g.webnn").write_text(text)
    save_file({"layer.w": np.zeros((4, 4), np.float32)}, tmp_path / "g.safetensors")
    outputs = webnn_file.build_operands(
        tmp_path / "g.webnn", ShapeBuilder(), dimensions={"batch": 3}
    )
    assert {name: operand.shape for name, operand in outputs.items()} == {
        "left": (3, 2), "product": (3, 4),
    }


def test_the_program_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu")
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names = {}
    exec(compile(program, "webnn-file.md", "exec"), names)
    x = np.array([-1, 2, -3, 4], np.float32)
    got = names["context"].compute(names["graph"], {"x": x})["y"]
    np.testing.assert_array_equal(got, [0, 2, 0, 4])
