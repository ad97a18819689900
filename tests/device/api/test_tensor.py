"""Tensors: written data is read back, errors, destruction (§8.3.2 to §8.3.6, §8.5)."""

import array
import gc
import threading

import numpy as np
import pytest

from tests.support.calls import F4, built, floats, tensor
from tests.support.contexts import open_context
from tests.support.drivers import require_vulkan
from webnn_vk import InvalidStateError, MLGraphBuilder, MLTensorDescriptor
from webnn_vk.runtime.work import Run
from webnn_vk.support import background


def test_flags_of_a_descriptor_are_bools():
    descriptor = MLTensorDescriptor("float32", [4], readable=1, writable="")
    assert descriptor == MLTensorDescriptor("float32", (4,), readable=True)
    assert (descriptor.readable, descriptor.writable) == (True, False)


def test_new_tensors_are_zero_and_writes_are_copies(context):
    t = tensor(context, data_type="float16", shape=(3,))
    first = context.read_tensor(t)
    data = np.array([1, 2, 3], np.float16)
    context.write_tensor(t, data)
    data[:] = 9
    second = context.read_tensor(t)
    np.testing.assert_array_equal(first.result(), np.zeros(3, np.float16))
    np.testing.assert_array_equal(second.result(), [1, 2, 3])
    assert second.result().dtype == np.float16


def test_scalars_and_every_data_type_go_in_and_out(context):
    for name in ("float32", "float16", "int32", "uint32", "int64", "uint64", "int8", "uint8"):
        for shape in ((), (1, 3)):
            t = tensor(context, data_type=name, shape=shape)
            data = np.full(shape, 5, name)
            context.write_tensor(t, data)
            back = context.read_tensor(t).result()
            assert (back.dtype, back.shape) == (np.dtype(name), shape)
            np.testing.assert_array_equal(back, data)


def test_read_into_a_buffer(context):
    t = tensor(context)
    context.write_tensor(t, floats(1, 2, 3, 4))
    out = np.empty(4, np.float32)
    assert context.read_tensor(t, out).result() is None
    np.testing.assert_array_equal(out, [1, 2, 3, 4])
    raw = bytearray(16)
    context.read_tensor(t, raw).result()
    assert np.frombuffer(raw, np.float32).tolist() == [1, 2, 3, 4]
    values = array.array("f", [0] * 4)
    context.read_tensor(t, values).result()
    assert values.tolist() == [1, 2, 3, 4]
    larger = np.zeros(6, np.float32)
    context.read_tensor(t, larger).result()
    assert larger.tolist() == [1, 2, 3, 4, 0, 0]
    for wrong in (np.empty(4, np.int32), np.empty(3, np.float32), bytes(16), [0] * 4,
                  np.empty((4, 2), np.float32)[:, 0]):
        with pytest.raises(TypeError, match="read_tensor"):
            context.read_tensor(t, wrong).result()


# -- manners of the objects ------------------------------------------------------------------------
def test_a_tensor_as_an_array(context):
    made = tensor(context, shape=(2, 2), data_type="float16")
    assert (made.dtype, made.nbytes, made.ndim) == (np.float16, 8, 2)
    context.write_tensor(made, [[1, 2], [3, 4]])
    array = np.asarray(made)
    context.write_tensor(made, [[0, 0], [0, 0]])
    assert array.dtype == np.float16 and array.tolist() == [[1, 2], [3, 4]]
    assert np.asarray(made, np.float64).dtype == np.float64
    assert np.asarray(made).tolist() == [[0, 0], [0, 0]]
    with pytest.raises(TypeError, match="np.asarray: .* was not created with readable=True"):
        np.asarray(tensor(context, readable=False))
    with made.to_numpy(), pytest.raises(TypeError, match="np.asarray: .* is held by"):
        np.asarray(made)
    with pytest.raises(ValueError, match="a copy; to_numpy"):
        made.__array__(copy=False)
    made.destroy()
    with pytest.raises(InvalidStateError, match="np.asarray: .* was destroyed"):
        np.asarray(made)


def test_descriptors_unpack(context):
    graph = built(context, lambda b, x: {"y": b.neg(x)}, x=F4)
    given = {**graph.inputs["x"], "readable": True}
    assert given == {"data_type": "float32", "shape": (4,), "readable": True}
    assert context.create_tensor(given).result().readable
    full = dict(MLTensorDescriptor("int8", (1,), writable=True))
    assert MLTensorDescriptor(**full) == MLTensorDescriptor("int8", (1,), writable=True)
    with pytest.raises(KeyError, match="size"):
        F4["size"]


# -- errors ----------------------------------------------------------------------------------------
def test_write_errors(context):
    t = tensor(context)
    with pytest.raises(TypeError, match=r"float32\[3\], 12 bytes, where float32\[4\] has 16"):
        context.write_tensor(t, floats(1, 2, 3))
    with pytest.raises(TypeError, match="elements are float64, float32"):
        context.write_tensor(t, np.zeros(4))
    with pytest.raises(TypeError, match="buffer protocol"):
        context.write_tensor(t, "text")
    with pytest.raises(TypeError, match=r"write_tensor: float32\[2\], 8 bytes, where"):
        context.write_tensor(t, [1, 2])
    with pytest.raises(TypeError, match="not created with writable=True"):
        context.write_tensor(tensor(context, writable=False), floats(1, 2, 3, 4))
    with pytest.raises(TypeError, match="not created with readable=True"):
        context.read_tensor(tensor(context, readable=False)).result()
    with pytest.raises(TypeError, match="an MLTensor is expected, not str"):
        context.write_tensor("t", floats(1))


NCHW = {"data_type": "float32", "shape": [1, 3, 4, 5]}
NHWC_ARRAY = np.arange(60, dtype=np.float32).reshape(1, 4, 5, 3)


def test_arrays_of_another_shape_are_refused_everywhere(context):
    builder = MLGraphBuilder(context)
    graph = builder.build({"y": builder.neg(builder.input("x", NCHW))}).result()
    state = context.create_tensor({**NCHW, "writable": True}).result()
    for call in (
        lambda data: context.compute(graph, {"x": data}),
        lambda data: context.write_tensor(state, data),
        lambda data: MLGraphBuilder(context).constant(NCHW, data),
        lambda data: context.create_constant_tensor(NCHW, data).result(),
    ):
        with pytest.raises(TypeError, match=r"float32\[1, 4, 5, 3\] where float32\[1, 3, 4, 5\] is "
                           "expected; it looks like NHWC for NCHW"):
            call(NHWC_ARRAY)
        with pytest.raises(TypeError, match=r"elements are uint8, float32 .* is uint8\[8, 10, 3\]"):
            call(np.zeros((8, 10, 3), np.uint8))
        for fitting in (NHWC_ARRAY.ravel(), NHWC_ARRAY.tobytes(), NHWC_ARRAY.transpose(0, 3, 1, 2),
                        bytearray(240), np.zeros(240, np.uint8), [0.5] * 60):
            call(fitting)


def test_numbers_bools_and_flags_in_place_of_arrays(context):
    builder = MLGraphBuilder(context)
    mask = builder.input("mask", {"data_type": np.uint8, "shape": [2, 2]})
    x = builder.input("x", {"data_type": "f4", "shape": [2, 2]})
    step = builder.input("step", {"data_type": np.dtype("float32"), "shape": []})
    given = builder.constant(np.array([True, False]))
    assert (given.data_type, given.shape) == ("uint8", (2,))
    flags = builder.logical_and(mask, given)
    graph = builder.build({"y": builder.add(x, step), "flags": flags}).result()
    result = context.compute(
        graph, {"mask": np.array([[True, True], [False, True]]), "x": [[1, 2], [3, 4]], "step": 0.5}
    )
    assert result["y"].tolist() == [[1.5, 2.5], [3.5, 4.5]]
    assert result["flags"].tolist() == [[1, 0], [0, 0]]


def test_create_tensor_errors(context):
    for descriptor, message in (
        ({"data_type": "float32"}, "lacks shape"),
        ({"data_type": "float64", "shape": [1]}, "not a data type"),
        ({"data_type": "float32", "shape": [0]}, "dimension 0 is 0"),
        ({"data_type": "float32", "shape": [-1]}, "outside 0"),
        ({"data_type": "float32", "shape": [True]}, "not a bool"),
        ({"data_type": "float32", "shape": [1.5]}, "integer is expected"),
        ({"data_type": "float32", "shape": [2**16, 2**16]}, "elements"),
        ({"data_type": "float32", "shape": [1] * 9}, "rank 9 exceeds 8"),
        ({"data_type": "float32", "shape": 4}, "sequence of integers"),
        ({"data_type": "float32", "shape": [4], "readible": True}, "readible"),
        ({"data_type": "float32", "shape": [4], 3: 1, "x": 1}, "unknown members 3, x"),
        ({"data_type": "float32", 3: 1}, "lacks shape; it has 3, data_type"),
        (None, "a descriptor is expected"),
    ):
        with pytest.raises(TypeError, match=message):
            context.create_tensor(descriptor).result()


# -- ends ------------------------------------------------------------------------------------------
def test_destroyed_tensors(context):
    t = tensor(context)
    pending = context.read_tensor(t)
    t.destroy()
    t.destroy()
    try:
        pending.result(timeout=60)  # the read may have been faster
    except InvalidStateError:
        pass
    for call in (lambda: context.write_tensor(t, floats(1, 2, 3, 4)),
                 lambda: context.read_tensor(t).result()):
        with pytest.raises(TypeError, match="destroyed") as caught:
            call()
        assert isinstance(caught.value, InvalidStateError)
        assert caught.value.name == "InvalidStateError"


def test_destroying_a_constant_tensor_leaves_the_graph_valid(context):
    constant = context.create_constant_tensor(F4, floats(1, 2, 3, 4)).result()
    assert (constant.constant, constant.readable, constant.writable) == (True, False, False)
    graphs = [
        built(context, lambda b, a: {"y": b.mul(a, b.constant(constant))}, a=F4)
        for _ in range(2)
    ]
    constant.destroy()
    gc.collect()
    for graph in graphs:
        result = context.compute(graph, {"a": floats(1, 1, 1, 1)})["y"]
        np.testing.assert_array_equal(result, [1, 2, 3, 4])
    builder = MLGraphBuilder(context)
    with pytest.raises(TypeError, match="destroyed"):
        builder.constant(constant)


def test_a_constant_tensor_destroyed_before_build(context):
    constant = context.create_constant_tensor(F4, floats(1, 2, 3, 4)).result()
    builder = MLGraphBuilder(context)
    y = builder.neg(builder.constant(constant))
    constant.destroy()
    with pytest.raises(TypeError, match="destroyed"):
        builder.build({"y": y}).result()


@pytest.mark.parametrize("what", ["tensor", "context"])
@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_a_read_that_ends_amid_destroy_is_rejected(device, what, monkeypatch):
    """destroy() comes after it in the order of the calls, but takes effect at once."""
    if device == "vulkan":
        require_vulkan()
    descriptor = {"data_type": "int32", "shape": [2], "readable": True}
    with open_context(device) as context:
        tensor = context.create_tensor(descriptor).result()
        go_on, run_on_worker = threading.Event(), background.run_on_worker
        context._state.stream.enqueue(Run(lambda: go_on.wait(60), print))
        promise, fence = context.read_tensor(tensor), context.fence()
        destroyed = {"tensor": tensor, "context": context}[what]
        last_steps = (tensor._state._end, context._state._destroy)

        def late(function, *arguments):
            if function in last_steps:
                go_on.set()
                assert fence.wait(60)
            return run_on_worker(function, *arguments)

        monkeypatch.setattr(background, "run_on_worker", late)
        destroyed.destroy()
        monkeypatch.undo()
        with pytest.raises(InvalidStateError, match="destroy"):
            promise.result(60)
