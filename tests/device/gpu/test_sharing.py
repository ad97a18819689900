"""Exported tensors: the interop cases of the web-platform-tests' tensor.https.any.js, by name."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np
import pytest

import webnn_vk
from tests.support.gpu_shaders import ALL, contents, double, needs_compiler
from webnn_vk import InvalidStateError, MLGraphBuilder, NotSupportedError
from webnn_vk.driver import CopyCommand

TYPES = ("float32", "float16")


@pytest.fixture(params=TYPES)
def data_type(request: pytest.FixtureRequest) -> str:
    return request.param


def exportable(pair: Any, data_type: str, shape: tuple[int, ...] = (2, 4), **flags: bool) -> Any:
    context, device = pair
    descriptor = {
        "data_type": data_type, "shape": shape, "readable": True, "writable": True, **flags,
    }
    return context.create_exportable_tensor(descriptor, device).result(60)


def numbers(data_type: str, shape: tuple[int, ...] = (2, 4), start: int = 1) -> np.ndarray:
    count = int(np.prod(shape))
    return (np.arange(start, start + count) % 509).reshape(shape).astype(data_type)


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
    """The round trip, nothing of which waits: dispatch, export, shader, destroy, dispatch."""
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
    """What the context had queued before still reaches the buffer."""
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


def test_no_copy(pair: Any, monkeypatch: pytest.MonkeyPatch, compiler: None) -> None:
    """Exporting and returning records no copy and takes no memory."""
    context, device = pair
    tensor, values = exportable(pair, "float32", (256, 1024)), numbers("float32", (256, 1024))
    context.write_tensor(tensor, values)
    context.fence().wait(60)
    with context.export_to_gpu(tensor) as buffer:
        double(device, buffer).wait(60)  # pipelines are there now
    context.fence().wait(60)
    used = context._state.device.memory_in_use(), device._state.device.memory_in_use()
    copied = []
    for driver in {context._state.device.driver, device._state.device.driver}:
        record = driver.record

        def watched(commands: Any, record: Any = record) -> Any:
            copied.extend(c for c in commands if isinstance(c, CopyCommand))
            return record(commands)

        monkeypatch.setattr(driver, "record", watched)
    for _ in range(3):
        buffer = context.export_to_gpu(tensor)
        double(device, buffer).wait(60)
        assert (context._state.device.memory_in_use(), device._state.device.memory_in_use()) == used
        buffer.destroy()
    context.fence().wait(60)
    assert copied == []
    assert np.array_equal(context.read_tensor(tensor).result(60), values * 16)
    assert copied  # reading does copy: the watch works


@pytest.mark.parametrize("cycles", [1000])
def test_nothing_leaks(pair: Any, cycles: int) -> None:
    context, device = pair
    keep, values = exportable(pair, "float32"), numbers("float32")
    context.write_tensor(keep, values)

    def cycle() -> None:
        buffer = context.export_to_gpu(keep)
        buffer.destroy()

    cycle()
    context.fence().wait(60)
    before = context._state.device.memory_in_use(), device._state.device.memory_in_use()
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(cycles):
        cycle()
    # Tensors that come and go with their buffers, in all orders.
    for i in range(60):
        tensor = exportable(pair, "float32", (64, 64))
        buffer = context.export_to_gpu(tensor)
        orders = (buffer, tensor), (tensor, buffer), (buffer,), (tensor,), ()
        for thing in orders[i % 5]:
            thing.destroy()
        del tensor, buffer, orders
        thing = None
    gc.collect()
    context.fence().wait(60)
    device.queue.on_submitted_work_done().result(60)
    context.fence().wait(60)
    assert (context._state.device.memory_in_use(), device._state.device.memory_in_use()) == before
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert np.array_equal(context.read_tensor(keep).result(60), values)


def test_what_is_destroyed_keeps_no_memory(pair: Any) -> None:
    """Though the objects are still there; a buffer that is out keeps its memory, not longer."""
    context, device = pair

    def used() -> tuple[int, int]:
        context.fence().wait(60)
        device.queue.on_submitted_work_done().result(60)
        gc.collect()
        return context._state.device.memory_in_use(), device._state.device.memory_in_use()

    before, values = used(), numbers("float32")
    back, out, dropped = (exportable(pair, "float32") for _ in range(3))
    context.export_to_gpu(back).destroy()
    context.export_to_gpu(dropped)
    context.write_tensor(out, values)
    buffer = context.export_to_gpu(out)
    for tensor in back, out, dropped:
        tensor.destroy()
    assert np.array_equal(contents(device, buffer), values.ravel())
    buffer.destroy()
    for tensor in back, out, dropped:
        with pytest.raises(InvalidStateError):
            context.export_to_gpu(tensor)
    # A buffer that is destroyed after its tensor is gone.
    last = context.export_to_gpu(exportable(pair, "float32"))
    gc.collect()
    last.destroy()
    assert used() == before


def test_importable_to_web_gpu(own_device: Any) -> None:
    """The explainer's name, on a context made on a GPUDevice."""
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
    """Two contexts and the device share one order; tensors stay those of their context."""
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
