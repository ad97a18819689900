"""Exported tensors: the interop cases of the web-platform-tests' tensor.https.any.js, by name."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import webnn_vk
from tests.support.exportable import exportable, numbers
from tests.support.gpu_shaders import ALL, contents, double, needs_compiler
from webnn_vk import InvalidStateError, MLGraphBuilder

TYPES = ("float32", "float16")


@pytest.fixture(params=TYPES)
def data_type(request: pytest.FixtureRequest) -> str:
    return request.param


def add_graph(context: Any, data_type: str, shape: tuple[int, ...] = (2, 4)) -> Any:
    builder = MLGraphBuilder(context)
    a = builder.input("A", {"data_type": data_type, "shape": shape})
    b = builder.input("B", {"data_type": data_type, "shape": shape})
    return builder.build({"C": builder.add(a, b)}).result(120)


def plain(context: Any, values: np.ndarray) -> Any:
    made = context.create_tensor(
        {"data_type": values.dtype.name, "shape": values.shape, "writable": True, "readable": True}
    ).result(60)
    context.write_tensor(made, values)
    return made


def test_export_tensor(pair: Any, data_type: str) -> None:
    context, device = pair
    tensor = exportable(pair, data_type, (2, 2))
    assert tensor.importable_to_web_gpu
    buffer = context.export_to_gpu(tensor)
    assert isinstance(buffer, webnn_vk.gpu.GPUBuffer)
    assert buffer.usage == ALL
    assert buffer.size == 4 * np.dtype(data_type).itemsize
    assert not contents(device, buffer, data_type).any()  # new tensors are zeroed


def test_size_is_the_packed_byte_length(pair: Any) -> None:
    context, device = pair
    tensor = exportable(pair, "float16", (3,))
    values = np.float16([1, 2, 3])
    context.write_tensor(tensor, values)
    buffer = context.export_to_gpu(tensor)
    assert buffer.size == 6
    assert np.array_equal(contents(device, buffer, "float16"), values)
    assert device.queue.read_buffer(buffer).result(60).nbytes == 6
    needs_compiler()
    double(device, buffer, "float16")  # the last number, half a word, too
    assert np.array_equal(contents(device, buffer, "float16"), values * 2)


def test_export_wrong_tensor(pair: Any, data_type: str) -> None:
    context, device = pair
    descriptor = {"data_type": data_type, "shape": [2, 2]}
    wrong = context.create_tensor(descriptor).result(60)
    assert not wrong.importable_to_web_gpu
    with pytest.raises(TypeError, match="create_exportable_tensor"):
        context.export_to_gpu(wrong)
    with pytest.raises(TypeError, match="create_exportable_tensor"):
        device.import_external_buffer(wrong).result(60)
    with pytest.raises(TypeError, match="MLTensor"):
        context.export_to_gpu("tensor")
    with pytest.raises(TypeError, match="MLTensor"):
        device.import_external_buffer("tensor").result(60)


def test_export_big_tensor(pair: Any) -> None:
    context, device = pair
    shape = (3, 1024, 1024)
    values = numbers("float32", shape)
    tensor = exportable(pair, "float32", shape)
    context.write_tensor(tensor, values)
    buffer = context.export_to_gpu(tensor)
    assert buffer.size == values.nbytes
    assert np.array_equal(contents(device, buffer).reshape(shape), values)


def test_export_then_destroy_buffer(pair: Any, data_type: str) -> None:
    context, device = pair
    tensor, values = exportable(pair, data_type), numbers(data_type)
    context.write_tensor(tensor, values)
    buffer = context.export_to_gpu(tensor)
    buffer.destroy()
    buffer.destroy()
    assert np.array_equal(context.read_tensor(tensor).result(60), values)
    with pytest.raises(InvalidStateError, match="destroyed"):
        device.queue.read_buffer(buffer)
    context.write_tensor(tensor, values + 1)
    assert np.array_equal(context.read_tensor(tensor).result(60), values + 1)


def test_export_then_destroy_tensor(pair: Any, data_type: str, compiler: None) -> None:
    context, device = pair
    tensor, values = exportable(pair, data_type), numbers(data_type)
    context.write_tensor(tensor, values)
    buffer = context.export_to_gpu(tensor)
    tensor.destroy()
    double(device, buffer, data_type)
    assert np.array_equal(contents(device, buffer, data_type), values.ravel() * 2)
    with pytest.raises(InvalidStateError):
        context.export_to_gpu(tensor)
    buffer.destroy()
    with pytest.raises(InvalidStateError):
        context.read_tensor(tensor).result(60)


def test_buffer_outlives_collected_tensor(pair: Any) -> None:
    context, device = pair
    tensor, values = exportable(pair, "float32"), numbers("float32")
    context.write_tensor(tensor, values)
    buffer = context.export_to_gpu(tensor)
    del tensor
    gc.collect()
    assert np.array_equal(contents(device, buffer), values.ravel())
    buffer.destroy()


def test_write_tensor_after_export(pair: Any, data_type: str) -> None:
    context, device = pair
    tensor, values = exportable(pair, data_type), numbers(data_type)
    buffer = context.export_to_gpu(tensor)
    with pytest.raises(TypeError, match="held by <GPUBuffer"):
        context.write_tensor(tensor, values)
    buffer.destroy()
    context.write_tensor(tensor, values)
    assert np.array_equal(context.read_tensor(tensor).result(60), values)


def test_read_after_export(pair: Any, data_type: str) -> None:
    context, device = pair
    tensor = exportable(pair, data_type)
    context.export_to_gpu(tensor)
    with pytest.raises(TypeError, match="held by"):
        context.read_tensor(tensor).result(60)
    output = np.empty((2, 4), data_type)
    with pytest.raises(TypeError, match="held by"):
        context.read_tensor(tensor, output).result(60)
    with pytest.raises(TypeError, match="held by"):
        tensor.to_numpy()
    with pytest.raises(TypeError, match="held by"):
        tensor.export_fd()


def test_read_before_export_is_not_disturbed(pair: Any, compiler: None) -> None:
    context, device = pair
    tensor, values = exportable(pair, "float32"), numbers("float32")
    context.write_tensor(tensor, values)
    read = context.read_tensor(tensor)
    buffer = context.export_to_gpu(tensor)
    double(device, buffer)
    assert np.array_equal(read.result(60), values)
    assert np.array_equal(contents(device, buffer), values.ravel() * 2)


def test_export_of_a_viewed_tensor(pair: Any) -> None:
    context, device = pair
    tensor = exportable(pair, "float32")
    with tensor.to_numpy() as array:
        with pytest.raises(TypeError, match="held by a NumPy view"):
            context.export_to_gpu(tensor)
        array[...] = 7
    buffer = context.export_to_gpu(tensor)
    assert contents(device, buffer).tolist() == [7] * 8


def test_dispatch_as_input_after_export(pair: Any, data_type: str) -> None:
    context, device = pair
    graph, values = add_graph(context, data_type), numbers(data_type)
    tensor, other = exportable(pair, data_type), plain(context, values)
    output = plain(context, values)
    context.export_to_gpu(tensor)
    with pytest.raises(TypeError, match="held by"):
        context.dispatch(graph, {"A": tensor, "B": other}, {"C": output})
    assert np.array_equal(context.read_tensor(output).result(60), values)


def test_dispatch_as_output_after_export(pair: Any, data_type: str) -> None:
    context, device = pair
    graph, values = add_graph(context, data_type), numbers(data_type)
    tensor = exportable(pair, data_type)
    a, b = plain(context, values), plain(context, values)
    buffer = context.export_to_gpu(tensor)
    with pytest.raises(TypeError, match="held by"):
        context.dispatch(graph, {"A": a, "B": b}, {"C": tensor})
    assert not contents(device, buffer, data_type).any()
    buffer.destroy()
    context.dispatch(graph, {"A": a, "B": b}, {"C": tensor})
    assert np.array_equal(context.read_tensor(tensor).result(60), values + values)


def test_export_twice(pair: Any, data_type: str) -> None:
    context, device = pair
    tensor = exportable(pair, data_type)
    first = context.export_to_gpu(tensor)
    assert context.export_to_gpu(tensor) is first
    assert device.import_external_buffer(tensor).result(60) is first
    first.destroy()
    second = context.export_to_gpu(tensor)
    assert second is not first
    device.queue.write_buffer(second, 0, numbers(data_type))
    second.destroy()
    assert np.array_equal(context.read_tensor(tensor).result(60), numbers(data_type))


def test_dispatch_gpu_twice(pair: Any, data_type: str, compiler: None) -> None:
    context, device = pair
    graph, values = add_graph(context, data_type), numbers(data_type)
    tensor, other = exportable(pair, data_type), plain(context, values)
    context.write_tensor(tensor, values)
    expected = values
    for _ in range(2):
        with context.export_to_gpu(tensor) as buffer:
            double(device, buffer, data_type)
        output = plain(context, values)
        context.dispatch(graph, {"A": tensor, "B": other}, {"C": output})
        expected = expected * 2
        assert np.array_equal(context.read_tensor(output).result(60), expected + values)


def test_webnn_dispatch_only(pair: Any, data_type: str) -> None:
    context, device = pair
    graph, values = add_graph(context, data_type), numbers(data_type)
    a, b = plain(context, values), plain(context, values)
    tensor = exportable(pair, data_type)
    context.dispatch(graph, {"A": a, "B": b}, {"C": tensor})
    buffer = context.export_to_gpu(tensor)
    assert np.array_equal(contents(device, buffer, data_type), (values + values).ravel())


def test_dispatch_from_webgpu_then_webnn(pair: Any, data_type: str, compiler: None) -> None:
    """The round trip, without waiting: dispatch, export, shader, destroy, dispatch."""
    context, device = pair
    graph, values = add_graph(context, data_type), numbers(data_type)
    a, b = plain(context, values), plain(context, values)
    shared = exportable(pair, data_type)
    output = plain(context, values)
    context.dispatch(graph, {"A": a, "B": b}, {"C": shared})
    buffer = context.export_to_gpu(shared)
    double(device, buffer, data_type)
    buffer.destroy()
    context.dispatch(graph, {"A": shared, "B": a}, {"C": output})
    assert np.array_equal(context.read_tensor(output).result(60), values * 5)


def test_long_alternation_without_waits(pair: Any, compiler: None) -> None:
    context, device = pair
    shape = (64, 256)
    builder = MLGraphBuilder(context)
    a = builder.input("A", {"data_type": "float32", "shape": shape})
    graph = builder.build({"C": builder.linear(a, alpha=0.5, beta=1.0)}).result(120)
    tensors = [exportable(pair, "float32", shape) for _ in range(2)]
    context.write_tensor(tensors[0], np.full(shape, 8, np.float32))
    for i in range(40):
        source, target = tensors[i % 2], tensors[(i + 1) % 2]
        context.dispatch(graph, {"A": source}, {"C": target})  # x / 2 + 1
        with context.export_to_gpu(target) as buffer:
            double(device, buffer)
    # x + 2 each time
    assert np.array_equal(
        context.read_tensor(tensors[0]).result(60), np.full(shape, 88, np.float32)
    )


def test_destroy_context_after_export(pair: Any, data_type: str, compiler: None) -> None:
    """Work that the context had queued before still reaches the buffer."""
    context, device = pair
    graph, values = add_graph(context, data_type), numbers(data_type)
    a, b = plain(context, values), plain(context, values)
    tensor = exportable(pair, data_type)
    context.dispatch(graph, {"A": a, "B": b}, {"C": tensor})
    buffer = context.export_to_gpu(tensor)
    context.destroy()
    double(device, buffer, data_type)
    assert np.array_equal(contents(device, buffer, data_type), values.ravel() * 4)
    buffer.destroy()


def test_destroy_device_after_export(pair: Any, data_type: str, compiler: None) -> None:
    context, device = pair
    graph, values = add_graph(context, data_type), numbers(data_type)
    tensor = exportable(pair, data_type)
    context.write_tensor(tensor, values)
    buffer = context.export_to_gpu(tensor)
    double(device, buffer, data_type)
    device.destroy()
    output = plain(context, values)
    context.dispatch(graph, {"A": tensor, "B": plain(context, values)}, {"C": output})
    assert np.array_equal(context.read_tensor(tensor).result(60), values * 2)
    assert np.array_equal(context.read_tensor(output).result(60), values * 3)
    assert not context.lost.done()
    buffer.destroy()
    with pytest.raises(InvalidStateError, match="GPUDevice is lost"):
        device.queue.read_buffer(buffer)


def test_destroy_device_before_export(pair: Any, data_type: str) -> None:
    context, device = pair
    tensor = exportable(pair, data_type)
    device.destroy()
    with pytest.raises(InvalidStateError, match="GPUDevice is lost"):
        context.export_to_gpu(tensor)
    with pytest.raises(InvalidStateError):
        device.import_external_buffer(tensor).result(60)
    with pytest.raises(InvalidStateError):
        context.create_exportable_tensor({"data_type": data_type, "shape": [2]}, device).result(60)
    context.write_tensor(tensor, numbers(data_type))
    assert np.array_equal(context.read_tensor(tensor).result(60), numbers(data_type))


def test_import_external_buffer(pair: Any) -> None:
    context, device = pair
    tensor, values = exportable(pair, "float32"), numbers("float32")
    context.write_tensor(tensor, values)
    buffer = device.import_external_buffer(tensor).result(60)
    assert np.array_equal(contents(device, buffer), values.ravel())
    with pytest.raises(TypeError, match="held by"):
        context.write_tensor(tensor, values)
    buffer.destroy()
    context.write_tensor(tensor, values)
