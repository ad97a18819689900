"""`bench vendor`: what PyTorch is asked to compute is what our builder is."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import webnn_vk
from bench import vendor
from webnn_vk.tools import ToolError


class _Listening(vendor.Typed):
    """Notes the names of the methods that are called."""

    called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.called.add(name)
        return super().__getattr__(name)


def test_every_method_of_the_builder_has_its_counterpart(cpu_context, monkeypatch) -> None:
    monkeypatch.setattr(vendor, "_BERT_LAYERS", 1)
    for case in vendor._cases():
        builder = webnn_vk.MLGraphBuilder(cpu_context)
        (output,) = case.describe(_Listening(builder, case.data_type)).values()
        assert output.data_type == case.data_type
    missing = {name for name in _Listening.called if name not in vars(vendor.Torch)}
    assert _Listening.called >= {"matmul", "conv2d", "layer_normalization"} and not missing


def test_inputs_and_constants_have_the_type_of_the_case(cpu_context) -> None:
    builder = vendor.Typed(webnn_vk.MLGraphBuilder(cpu_context), "float16")
    x = builder.input("x", {"data_type": "float32", "shape": [2]})
    y = builder.mul(x, builder.constant("float32", 0.5))
    y = builder.add(y, builder.constant(np.array([1.0, 2.0], np.float32)))
    graph = builder.build({"y": y}).result()
    assert graph.inputs["x"].data_type == graph.outputs["y"].data_type == "float16"
    result = cpu_context.compute(graph, {"x": np.array([2.0, 4.0], np.float16)})["y"]
    assert result.dtype == np.float16 and result.tolist() == [2.0, 4.0]


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is here")
def test_without_pytorch_it_says_what_to_install() -> None:
    with pytest.raises(ToolError, match="needs PyTorch: pip install torch"):
        vendor.main(None, None)
