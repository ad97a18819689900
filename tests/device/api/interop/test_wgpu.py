"""Tensors lent to wgpu-py's devices, with the real library."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from tests.device.api.interop.conftest import doubling, floats, make_tensor, read
from tests.support.contexts import open_over, returns_to, settled_bytes
from tests.support.drivers import require_vulkan
from tests.support.faults import FaultyDriver
from webnn_vk import InvalidStateError, NotSupportedError, OperationError, ml
from webnn_vk.api.interop.wgpu import is_device, matching

wgpu = pytest.importorskip("wgpu")

pytestmark = pytest.mark.device

# data[i] = data[i] + 10
SHADER = """
@group(0) @binding(0) var<storage, read_write> data: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&data)) { data[id.x] += 10.0; }
}
"""


@pytest.fixture(scope="module")
def adapter():
    require_vulkan()
    found = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] == "Vulkan"]
    if not found:
        pytest.skip("wgpu finds no Vulkan adapter")
    return found[0]


@pytest.fixture
def device(adapter):
    made = adapter.request_device_sync()
    yield made
    made.destroy()


@pytest.fixture
def context(device):
    with ml.create_context(device).result() as made:
        yield made


def exportable(context, device, data=None, *, shape=(4,), data_type="float32"):
    if data is not None:
        data = np.asarray(data, np.float32) if isinstance(data, list) else data
        shape, data_type = data.shape, data.dtype.name
    tensor = context.create_exportable_tensor(
        {"data_type": data_type, "shape": shape, "readable": True, "writable": True}, device
    ).result()
    if data is not None:
        context.write_tensor(tensor, data)
    return tensor


def contents(buffer, data_type=np.float32):
    return np.frombuffer(buffer._device.queue.read_buffer(buffer), data_type)


def add_ten(device, buffer):
    module = device.create_shader_module(code=SHADER)
    pipeline = device.create_compute_pipeline(
        layout="auto", compute={"module": module, "entry_point": "main"})
    group = device.create_bind_group(
        layout=pipeline.get_bind_group_layout(0),
        entries=[{"binding": 0, "resource": {"buffer": buffer, "offset": 0, "size": buffer.size}}])
    encoder = device.create_command_encoder()
    run = encoder.begin_compute_pass()
    run.set_pipeline(pipeline)
    run.set_bind_group(0, group)
    run.dispatch_workgroups(-(-buffer.size // 256))
    run.end()
    device.queue.submit([encoder.finish()])


def test_the_context_is_on_the_same_hardware(device, context):
    assert context.device_info.name == device.adapter.info["device"]
    assert context.accelerated
    assert context.compute(doubling(context), {"x": floats(1, 2, 3, 4)})["y"].tolist() == [
        2, 4, 6, 8]


def test_export(device, context):
    tensor = exportable(context, device, [1, 2, 3, 4])
    assert tensor.importable_to_web_gpu
    buffer = context.export_to_gpu(tensor)
    assert isinstance(buffer, wgpu.GPUBuffer)
    flags = wgpu.BufferUsage
    assert buffer.usage == flags.STORAGE | flags.COPY_SRC | flags.COPY_DST
    assert buffer.size == 16
    assert contents(buffer).tolist() == [1, 2, 3, 4]


def test_the_explainers_descriptor_and_asyncio(device):
    async def go():
        context = await ml.create_context(device)
        tensor = await context.create_tensor({"data_type": "float32", "shape": [2],
                                              "importable_to_web_gpu": True, "readable": True})
        buffer = context.export_to_gpu(tensor)
        device.queue.write_buffer(buffer, 0, floats(3, 4))
        buffer.destroy()
        found = await context.read_tensor(tensor)
        context.destroy()
        return found.tolist()

    assert asyncio.run(go()) == [3, 4]


def test_exporting_twice_gives_one_buffer(device, context):
    tensor = exportable(context, device, [1, 2, 3, 4])
    buffer = context.export_to_gpu(tensor)
    assert context.export_to_gpu(tensor) is buffer
    kept = weakref.ref(buffer)
    del buffer
    gc.collect()
    assert context.export_to_gpu(tensor) is kept()
    kept().destroy()
    gc.collect()
    assert kept() is None
    assert contents(context.export_to_gpu(tensor)).tolist() == [1, 2, 3, 4]


def test_what_cannot_be_exported(device, context, open_kind):
    with pytest.raises(TypeError, match="create_exportable_tensor"):
        context.export_to_gpu(make_tensor(context))
    other = open_kind("vulkan")
    with pytest.raises(TypeError, match="another context"):
        context.export_to_gpu(exportable(other, device))
    tensor = exportable(context, device)
    if "external_memory_fd" in context.device_info.features:
        with pytest.raises(TypeError, match="created for a wgpu.GPUDevice"):
            tensor.export_fd()
    tensor.destroy()
    with pytest.raises(InvalidStateError):
        context.export_to_gpu(tensor)
    with pytest.raises(TypeError, match="wgpu"):
        context.create_exportable_tensor({"data_type": "int8", "shape": [1]}, "gpu").result()


def test_while_exported_the_tensor_is_the_buffers(device, context):
    x, y = exportable(context, device, [1, 2, 3, 4]), make_tensor(context)
    graph = doubling(context)
    array = x.to_numpy()
    with pytest.raises(TypeError, match="held by a NumPy view"):
        context.export_to_gpu(x)
    del array
    buffer = context.export_to_gpu(x)
    for call in (
        lambda: context.write_tensor(x, floats(0, 0, 0, 0)),
        lambda: context.read_tensor(x).result(),
        lambda: context.dispatch(graph, {"x": x}, {"y": y}),
        lambda: context.dispatch(graph, {"x": y}, {"y": x}),
        x.to_numpy,
    ):
        with pytest.raises(TypeError, match="held by an exported wgpu.GPUBuffer"):
            call()
    buffer.destroy()
    buffer.destroy()
    context.dispatch(graph, {"x": x}, {"y": y})
    assert read(context, y).tolist() == [2, 4, 6, 8]


def test_each_side_sees_the_others_writes(device, context):
    x, y = exportable(context, device, [1, 2, 3, 4]), exportable(context, device)
    graph = doubling(context)
    for _ in range(3):
        context.dispatch(graph, {"x": x}, {"y": y})
        buffer = context.export_to_gpu(y)
        add_ten(device, buffer)
        buffer.destroy()
        x, y = y, x
    context.dispatch(graph, {"x": x}, {"y": y})
    # ((v·2 + 10)·2 + 10)·2 + 10, doubled
    assert read(context, y).tolist() == [16 * v + 140 for v in (1, 2, 3, 4)]


@pytest.mark.parametrize("kind", ["cpu", "hidden"])
def test_contexts_on_other_devices(device, open_kind, kind):
    context = open_kind(kind)
    x, y = exportable(context, device, [1, 2, 3, 4]), exportable(context, device)
    context.dispatch(doubling(context), {"x": x}, {"y": y})
    buffer = context.export_to_gpu(y)
    add_ten(device, buffer)
    buffer.destroy()
    assert read(context, y).tolist() == [12, 14, 16, 18]


@pytest.mark.parametrize(("data_type", "count", "size"), [
    ("float16", 3, 8), ("float16", 4, 8), ("int8", 5, 8), ("uint8", 1, 4), ("int64", 1, 8)])
def test_sizes_are_multiples_of_four(device, context, data_type, count, size):
    data = np.arange(1, count + 1).astype(data_type)
    tensor = exportable(context, device, data)
    buffer = context.export_to_gpu(tensor)
    assert buffer.size == size
    found = contents(buffer, np.uint8)
    assert found[:data.nbytes].tobytes() == data.tobytes()
    assert not found[data.nbytes:].any()
    device.queue.write_buffer(buffer, 0, np.full(size, 3, np.uint8))
    buffer.destroy()
    assert read(context, tensor).tobytes() == b"\3" * data.nbytes


def test_the_buffer_outlives_tensor_and_context(device):
    context = ml.create_context(device).result()
    destroyed, dropped, lost = (exportable(context, device, [i, 2, 3, 4]) for i in range(3))
    buffers = [context.export_to_gpu(tensor) for tensor in (destroyed, dropped, lost)]
    destroyed.destroy()
    del dropped
    gc.collect()
    context.destroy()
    for i, buffer in enumerate(buffers):
        assert contents(buffer).tolist() == [i, 2, 3, 4]
        buffer.destroy()
    with pytest.raises(InvalidStateError):
        context.export_to_gpu(lost)


def test_a_destroyed_device(adapter, context):
    for hooked in (False, True):
        device = adapter.request_device_sync()
        tensor = exportable(context, device) if hooked else None
        device.destroy()
        with pytest.raises(InvalidStateError, match="destroyed or lost"):
            context.create_exportable_tensor({"data_type": "int8", "shape": [4]}, device).result()
        with pytest.raises(InvalidStateError, match="destroyed or lost"):
            ml.create_context(device).result()
        if hooked:
            with pytest.raises(InvalidStateError, match="export_to_gpu"):
                context.export_to_gpu(tensor)
            assert read(context, tensor).tolist() == [0, 0, 0, 0]


def test_destroying_the_device_gives_everything_back(adapter, context):
    device = adapter.request_device_sync()
    tensors = [exportable(context, device, [i, 2, 3, 4]) for i in range(2)]
    buffers = [context.export_to_gpu(tensor) for tensor in tensors]
    add_ten(device, buffers[0])
    device.destroy()
    assert read(context, tensors[0]).tolist() == [10, 12, 13, 14]
    assert read(context, tensors[1]).tolist() == [1, 2, 3, 4]
    for buffer in buffers:
        buffer.destroy()
    context.write_tensor(tensors[0], floats(5, 6, 7, 8))
    assert read(context, tensors[0]).tolist() == [5, 6, 7, 8]


def test_a_device_that_is_gone_gives_back_what_was_exported(adapter, context):
    device = adapter.request_device_sync()
    tensor = exportable(context, device, [1, 2, 3, 4])
    buffer = context.export_to_gpu(tensor)
    type(device).destroy(device)  # like a loss: there is no notification
    buffer.destroy()
    assert read(context, tensor).tolist() == [1, 2, 3, 4]


def test_no_memory_for_the_buffer(device, context, monkeypatch):
    tensor = exportable(context, device, [1, 2, 3, 4])
    create = device.create_buffer

    def refuse(**options):
        if options["size"] == 16:
            raise wgpu.GPUOutOfMemoryError("injected")
        return create(**options)

    monkeypatch.setattr(device, "create_buffer", refuse)
    with pytest.raises(OperationError, match=r"float32\[4\].*16 bytes.*injected"):
        context.export_to_gpu(tensor)
    assert read(context, tensor).tolist() == [1, 2, 3, 4]


def test_failed_work_is_told(device):
    context, driver = open_over(FaultyDriver)
    with context:
        x, y = make_tensor(context, [1, 2, 3, 4]), exportable(context, device)
        graph = doubling(context)
        read(context, x)
        driver.fail_submit()
        context.dispatch(graph, {"x": x}, {"y": y})
        with pytest.raises(OperationError, match="injected"):
            context.export_to_gpu(y)
        context.dispatch(graph, {"x": x}, {"y": y})
        assert contents(context.export_to_gpu(y)).tolist() == [2, 4, 6, 8]


def test_threads(device, context):
    tensor = exportable(context, device, [0, 0, 0, 0])
    for round_ in range(1, 11):
        buffers, arrays, start = [], [], threading.Barrier(6)

        def export(buffers=buffers, start=start):
            start.wait()
            try:
                buffers.append(context.export_to_gpu(tensor))
            except TypeError:
                return

        def view(arrays=arrays, start=start):
            start.wait()
            try:
                arrays.append(tensor.to_numpy())
            except TypeError:
                return

        threads = [threading.Thread(target=target) for target in (export, view) * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        # Either the one buffer, for callers that asked while it existed, or one view.
        assert len({id(buffer) for buffer in buffers}) + len(arrays) == 1
        if arrays:
            arrays[0][...] += 1
            arrays[0].release()
        else:
            device.queue.write_buffer(buffers[0], 0, np.full(4, round_, np.float32))
            closing = [threading.Thread(target=buffers[0].destroy) for _ in range(2)]
            for thread in closing:
                thread.start()
            for thread in closing:
                thread.join(60)
        assert read(context, tensor).tolist() == [round_] * 4


def test_nothing_leaks(device, context):
    tensor = exportable(context, device, np.zeros(1000, np.float32))
    context.export_to_gpu(tensor).destroy()
    del tensor
    gc.collect()
    before, living = settled_bytes(context), []
    for i in range(50):
        tensor = exportable(context, device, shape=(1000,))
        buffer = context.export_to_gpu(tensor)
        living.append(weakref.ref(buffer))
        if i % 2:
            buffer.destroy()
        del buffer
    del tensor
    gc.collect()
    assert returns_to(context, before)
    assert not any(reference() for reference in living)


def test_devices_go_with_their_last_user(adapter, context):
    device = adapter.request_device_sync()
    buffer = context.export_to_gpu(exportable(context, device))
    gone = weakref.ref(device)
    del device, buffer
    gc.collect()
    assert gone() is None


def test_matching_by_ids_then_by_name():
    def adapter_of(vendor, device, name):
        return SimpleNamespace(adapter=SimpleNamespace(
            info={"vendor_id": vendor, "device_id": device, "device": name}))

    profiles = [SimpleNamespace(name=name, vendor_id=vendor, device_id=device)
                for name, vendor, device in (("a", 1, 1), ("b", 1, 2), ("c", 1, 2))]
    assert matching(adapter_of(1, 1, "a"), profiles) == 0
    assert matching(adapter_of(1, 2, "c"), profiles) == 2
    assert matching(adapter_of(1, 2, "renamed"), profiles) == 1
    assert matching(adapter_of(0, 0, "b"), profiles) == 1
    with pytest.raises(NotSupportedError, match="a, b, c"):
        matching(adapter_of(7, 7, "d"), profiles)
    assert not is_device(None) and not is_device(adapter_of(1, 1, "a"))
