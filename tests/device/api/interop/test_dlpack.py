"""DLPack in both directions, with NumPy and with handwritten producers and a consumer."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest

import webnn_vk
from tests.device.api.interop.conftest import KINDS, doubling, floats, make_tensor, read
from tests.device.api.interop.test_numpy import memory_of
from tests.support.contexts import open_over, returns_to, settled_bytes
from tests.support.drivers import require_vulkan
from tests.support.faults import FaultyDriver
from webnn_vk.compiler.types.data_types import ALL_TYPES
from webnn_vk.runtime.reclaim import TRIES

CPU, VULKAN, CUDA = 1, 7, 2


def is_free(tensor):
    """Whether the next call may use it."""
    try:
        tensor._state.use("is_free")
    except TypeError:
        return False
    return True


# -- out of tensors -------------------------------------------------------------------------------
def test_device(mapped):
    assert make_tensor(mapped).__dlpack_device__() == (CPU, 0)


def test_device_of_memory_that_the_host_does_not_see(open_kind):
    hidden = open_kind("hidden")
    tensor = make_tensor(hidden)
    assert tensor.__dlpack_device__() == (VULKAN, hidden.device_info.index)
    tensor.destroy()
    with pytest.raises(webnn_vk.InvalidStateError):
        tensor.__dlpack_device__()


def test_numpy_gets_the_tensors_own_memory(mapped):
    x, y = make_tensor(mapped, [1, 2, 3, 4]), make_tensor(mapped)
    array = np.from_dlpack(x)
    assert np.shares_memory(array, memory_of(x))
    assert array.tolist() == [1, 2, 3, 4]
    graph = doubling(mapped)
    with pytest.raises(TypeError, match="held by a NumPy view"):
        mapped.dispatch(graph, {"x": x}, {"y": y})
    array[0] = 8
    del array
    mapped.dispatch(graph, {"x": x}, {"y": y})
    assert read(mapped, y).tolist() == [16, 4, 6, 8]


def test_read_only_is_passed_on_or_refused(mapped):
    tensor = make_tensor(mapped, writable=False)
    array = np.from_dlpack(tensor)
    assert not array.flags.writeable
    del array
    # A consumer from before DLPack 1.0 would write.
    with pytest.raises(BufferError):
        tensor.__dlpack__()
    assert is_free(tensor)
    assert "dltensor_versioned" in repr(tensor.__dlpack__(max_version=(1, 0)))
    assert is_free(tensor)


def test_a_copy_leaves_the_tensor_free(shared):
    tensor = make_tensor(shared, [1, 2, 3, 4])
    array = np.from_dlpack(tensor, device="cpu", copy=True)
    assert is_free(tensor)
    array[0] = 9
    assert read(shared, tensor).tolist() == [1, 2, 3, 4]
    assert array.tolist() == [9, 2, 3, 4]


def test_memory_that_the_host_does_not_see(open_kind):
    context = open_kind("hidden")
    tensor = make_tensor(context, [1, 2, 3, 4])
    with pytest.raises(BufferError, match=r"dl_device=\(1, 0\)"):
        tensor.__dlpack__()
    with pytest.raises(BufferError, match="a copy only"):
        tensor.__dlpack__(dl_device=(CPU, 0), copy=False)
    assert is_free(tensor)
    array = np.from_dlpack(tensor, device="cpu")
    assert array.tolist() == [1, 2, 3, 4]
    array[1] = 7
    del array
    assert read(context, tensor).tolist() == [1, 7, 3, 4]


def test_other_devices_are_refused(shared):
    tensor = make_tensor(shared)
    with pytest.raises(BufferError, match="the CPU only"):
        tensor.__dlpack__(dl_device=(CUDA, 0))
    with pytest.raises(TypeError, match="readable=True"):
        make_tensor(shared, readable=False).__dlpack__(dl_device=(CPU, 0))
    assert is_free(tensor)


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]


def pointer_of(capsule, name):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return get(capsule, name)


@pytest.mark.parametrize(("data_type", "code"), [
    ("float32", 2), ("float16", 2), ("int32", 0), ("uint32", 1), ("int64", 0), ("uint64", 1),
    ("int8", 0), ("uint8", 1)])
def test_what_a_consumer_finds_in_the_capsule(mapped, data_type, code):
    tensor = make_tensor(mapped, shape=(2, 3), data_type=data_type)
    capsule = tensor.__dlpack__()
    found = DLTensor.from_address(pointer_of(capsule, b"dltensor"))
    assert (found.device_type, found.device_id, found.ndim) == (CPU, 0, 2)
    assert (found.code, found.bits, found.lanes) == (code, 8 * np.dtype(data_type).itemsize, 1)
    assert found.shape[:2] == [2, 3]
    assert found.data + found.byte_offset == memory_of(tensor).ctypes.data
    with pytest.raises(TypeError, match="held"):
        tensor.to_numpy()
    del found, capsule  # never consumed
    assert is_free(tensor)


# -- into tensors ---------------------------------------------------------------------------------
@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_every_type_comes_in(shared, data_type):
    data = np.arange(12).reshape(3, 4).astype(data_type)
    tensor = webnn_vk.from_dlpack(data, shared)
    assert (tensor.data_type, tensor.shape) == (data_type, (3, 4))
    assert tensor.readable and tensor.writable
    data[...] = 0
    assert np.array_equal(read(shared, tensor), np.arange(12).reshape(3, 4))


def test_strides_scalars_bools_and_byte_order(shared):
    data = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for view in (data.transpose(2, 0, 1), data[:, ::2, 1:], data[::-1], data.astype(">f4")):
        assert np.array_equal(read(shared, webnn_vk.from_dlpack(view, shared)), view)
    assert read(shared, webnn_vk.from_dlpack(np.array(5, np.int8), shared)) == 5
    tensor = webnn_vk.from_dlpack(np.array([True, False]), shared, writable=False)
    assert tensor.data_type == "uint8" and not tensor.writable
    assert read(shared, tensor).tolist() == [1, 0]


class Producer:
    """Exports an array as a library from before DLPack 1.0 does."""

    def __init__(self, array, device=(CPU, 0)):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


def test_another_library(shared):
    data = floats(1, 2, 3, 4)
    assert read(shared, webnn_vk.from_dlpack(Producer(data), shared)).tolist() == [1, 2, 3, 4]
    with pytest.raises(BufferError, match=r"Producer on DLPack device \(2, 0\)"):
        webnn_vk.from_dlpack(Producer(data, (CUDA, 0)), shared)


@pytest.mark.device  # beside a context on the CPU too
def test_tensors_of_other_contexts(open_kind, shared):
    for kind in KINDS:
        source = make_tensor(open_kind(kind), [1, 2, 3, 4])
        tensor = webnn_vk.from_dlpack(source, shared)
        assert is_free(source)
        assert read(shared, tensor).tolist() == [1, 2, 3, 4]


def test_what_cannot_come_in(shared):
    before = settled_bytes(shared)
    with pytest.raises(TypeError, match="an MLContext is expected, not str"):
        webnn_vk.from_dlpack(np.ones(2, np.float32), "cpu")
    with pytest.raises(TypeError, match="__dlpack__"):
        webnn_vk.from_dlpack([1, 2], shared)
    for data in (np.zeros(2), np.zeros(2, np.int16), np.zeros(2, np.complex64)):
        with pytest.raises(TypeError, match=f"{data.dtype} is not a data type of tensors"):
            webnn_vk.from_dlpack(data, shared)
    with pytest.raises(TypeError, match="dimension"):
        webnn_vk.from_dlpack(np.zeros((0, 2), np.float32), shared)
    gc.collect()
    assert returns_to(shared, before)


def test_what_there_is_no_memory_for(cpu_context):
    """The array that was to become a tensor is released at once, even if the error is kept."""
    require_vulkan()
    source = make_tensor(cpu_context, [1, 2, 3, 4])
    context, driver = open_over(FaultyDriver)
    with context:
        driver.fail_allocation(times=4 * TRIES)
        with pytest.raises(webnn_vk.UnknownError, match="injected") as raised:
            webnn_vk.from_dlpack(source, context)
        assert raised.value.__traceback__ is not None and is_free(source)
