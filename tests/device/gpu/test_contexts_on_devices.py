"""Contexts on a GPUDevice, and tensors that can't be shared with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import webnn_vk
from tests.support.discriminating import assert_allclose
from webnn_vk import InvalidStateError, NotSupportedError


def test_importable_to_web_gpu(own_device: Any) -> None:
    """The explainer's name, on a context created on a GPUDevice."""
    context = webnn_vk.ml.create_context(own_device).result(60)
    descriptor = webnn_vk.MLTensorDescriptor(
        "float32", (4,), readable=True, importable_to_web_gpu=True
    )
    tensor = context.create_tensor(descriptor).result(60)
    assert tensor.importable_to_web_gpu
    with own_device.import_external_buffer(tensor).result(60) as buffer:
        own_device.queue.write_buffer(buffer, 4, np.float32([5, 6]))
    assert context.read_tensor(tensor).result(60).tolist() == [0, 5, 6, 0]
    plain_tensor = context.create_tensor({"data_type": "float32", "shape": [4]}).result(60)
    assert not plain_tensor.importable_to_web_gpu


def test_contexts_on_a_gpu_device(own_device: Any) -> None:
    """Two contexts and the device share one order; tensors still belong to their context."""
    first = webnn_vk.ml.create_context(own_device).result(60)
    second = webnn_vk.ml.create_context(own_device).result(60)
    assert first.accelerated and second.accelerated
    assert first.device_info.index == own_device.adapter.info.index
    tensor = first.create_exportable_tensor(
        {"data_type": "float32", "shape": [2], "readable": True}, own_device
    ).result(60)
    with pytest.raises(TypeError, match="another context"):
        second.export_to_gpu(tensor)
    first.destroy()
    own_device.destroy()
    made = second.create_tensor(
        {"data_type": "float32", "shape": [2], "writable": True, "readable": True}
    ).result(60)
    second.write_tensor(made, np.float32([1, 2]))
    assert second.read_tensor(made).result(60).tolist() == [1, 2]
    with pytest.raises(InvalidStateError, match="GPUDevice is lost"):
        webnn_vk.ml.create_context(own_device).result(60)


def test_tensor_for_another_device(own_device: Any, device: Any) -> None:
    context = webnn_vk.ml.create_context(own_device).result(60)
    tensor = context.create_exportable_tensor(
        {"data_type": "float32", "shape": [2]}, own_device
    ).result(60)
    with pytest.raises(TypeError, match="another GPUDevice"):
        device.import_external_buffer(tensor).result(60)


def test_what_cannot_be_shared(own_device: Any, cpu_context: Any, vulkan_context: Any) -> None:
    descriptor = {"data_type": "float32", "shape": [2]}
    with pytest.raises(NotSupportedError, match="CPU device"):
        cpu_context.create_exportable_tensor(descriptor, own_device).result(60)
    with pytest.raises(TypeError, match="GPUDevice .*is expected, not str"):
        vulkan_context.create_exportable_tensor(descriptor, "device").result(60)
    with pytest.raises(TypeError, match="GPUDevice .*is expected, not str"):
        webnn_vk.ml.create_context("high-performance").result(60)
    with pytest.raises(NotSupportedError, match="create_context\\(gpu_device\\)"):
        vulkan_context.create_tensor({**descriptor, "importable_to_web_gpu": True}).result(60)
    with pytest.raises(TypeError, match="dimension 0"):
        vulkan_context.create_exportable_tensor(
            {"data_type": "float32", "shape": [0]}, own_device
        ).result(60)


def test_without_external_memory(adapter: Any) -> None:
    """Two opened devices can't share then; one still can."""
    settings = webnn_vk.Settings(mask=("external_memory_fd",), device=str(adapter.info.index))
    descriptor = {"data_type": "float32", "shape": [2], "readable": True}
    with adapter.request_device(settings=settings).result(60) as device:
        with webnn_vk.ml.create_context(settings=settings).result(60) as elsewhere:
            with pytest.raises(NotSupportedError, match="VK_KHR_external_memory_fd"):
                elsewhere.create_exportable_tensor(descriptor, device).result(60)
            with pytest.raises(NotSupportedError, match="VK_KHR_external_memory_fd"):
                elsewhere.create_exportable_tensor(descriptor).result(60)
        with webnn_vk.ml.create_context(device).result(60) as context:
            tensor = context.create_exportable_tensor(descriptor, device).result(60)
            with context.export_to_gpu(tensor) as buffer:
                device.queue.write_buffer(buffer, 0, np.float32([3, 4]))
            assert context.read_tensor(tensor).result(60).tolist() == [3, 4]
            with pytest.raises(NotSupportedError, match="VK_KHR_external_memory_fd"):
                tensor.export_fd()


def test_contexts_of_a_device_have_one_copy_of_a_file(own_device: Any, tmp_path: Path) -> None:
    """A range of a file, and what graphs make of it, is on the device once. It outlives the context
    that has loaded it."""
    numbers = np.random.default_rng(1).normal(size=(1024, 512)).astype(np.float32)
    numbers.tofile(tmp_path / "weights")
    x = np.random.default_rng(2).normal(size=(4, 1024)).astype(np.float32)

    def built(context: webnn_vk.MLContext) -> webnn_vk.MLGraph:
        builder = webnn_vk.MLGraphBuilder(context)
        weights = np.memmap(tmp_path / "weights", np.float32, "r", 0, (1024, 512))
        given = builder.input("x", {"data_type": "float32", "shape": [4, 1024]})
        product = builder.matmul(given, builder.constant(weights))
        return builder.build({"y": product}).result(60)

    def in_use(context: webnn_vk.MLContext) -> int:
        context.fence().wait()
        return context._state.device.memory_in_use()

    contexts = [webnn_vk.ml.create_context(own_device).result(60) for _ in range(3)]
    start = in_use(contexts[0])
    graphs = [built(contexts[0])]
    alone = in_use(contexts[0]) - start
    assert alone >= numbers.nbytes
    graphs += map(built, contexts[1:])
    assert in_use(contexts[2]) - start - alone < numbers.nbytes / 8
    contexts[0].destroy()
    for context, graph in zip(contexts[1:], graphs[1:], strict=True):
        got = context.compute(graph, {"x": x})["y"]
        assert_allclose(got, x @ numbers, rtol=1e-4, atol=1e-3)
