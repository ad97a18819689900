"""Graphs whose products read uniform texel buffers: tensors that change, and graphs from files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import webnn_vk
from tests.support.discriminating import assert_allclose

SHAPE = (32, 64)


def product(context: Any) -> Any:
    """y = relu(a @ w + r): all operands are in texel buffers if the device has them."""
    builder = webnn_vk.MLGraphBuilder(context)
    weights = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    a, r = (builder.input(n, {"data_type": "float32", "shape": SHAPE}) for n in "ar")
    w = builder.constant({"data_type": "float32", "shape": (64, 64)}, weights)
    y = builder.relu(builder.add(builder.matmul(a, w), r))
    return builder.build({"y": y}).result(), weights


class Set:
    """Tensors with random contents, and the graph's results for them."""

    def __init__(self, context: Any, weights: np.ndarray, seed: int) -> None:
        self.context = context
        rng = np.random.default_rng(seed)
        arrays = {n: rng.standard_normal(SHAPE, np.float32) for n in "ar"}
        described = {"data_type": "float32", "shape": SHAPE, "writable": True, "readable": True}
        self.inputs = {n: context.create_tensor(described).result() for n in "ar"}
        self.output = context.create_tensor(described).result()
        for name, array in arrays.items():
            context.write_tensor(self.inputs[name], array)
        self.expected = np.maximum(arrays["a"] @ weights + arrays["r"], 0)

    def check(self, graph: Any) -> None:
        self.context.dispatch(graph, self.inputs, {"y": self.output})
        result = np.frombuffer(self.context.read_tensor(self.output).result(), np.float32)
        assert_allclose(result.reshape(SHAPE), self.expected, rtol=1e-5, atol=1e-5)

    def destroy(self) -> None:
        for tensor in (*self.inputs.values(), self.output):
            tensor.destroy()


def test_each_set_of_tensors_has_views_of_its_own(vulkan_context) -> None:
    """Tensors are exchanged in the same memory; a stale view would show."""
    graph, weights = product(vulkan_context)
    first = Set(vulkan_context, weights, 1)
    for seed in range(2, 6):
        other = Set(vulkan_context, weights, seed)
        first.check(graph)
        other.check(graph)
        other.destroy()
    first.check(graph)
    first.destroy()
    graph.destroy()


def test_a_loaded_graph_reads_texels_too(
    vulkan_context, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBNN_VK_CACHE", str(tmp_path))
    graph, weights = product(vulkan_context)
    vulkan_context.save_graph("product", graph).result()
    loaded = vulkan_context.load_graph("product").result()
    tensors = Set(vulkan_context, weights, 7)
    tensors.check(graph)
    tensors.check(loaded)
    tensors.destroy()
    loaded.destroy()
    graph.destroy()
