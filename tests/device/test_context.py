"""Contexts, tensors and dispatch as a user sees them, on the CPU device and on Vulkan."""

import array
import asyncio
import copy
import gc
import pickle
import threading

import numpy as np
import pytest

import webnn_vk
from tests.support.contexts import open_context
from tests.support.drivers import require_vulkan
from webnn_vk import (
    InvalidStateError,
    MLGraphBuilder,
    MLOperandDescriptor,
    MLTensorDescriptor,
    NotSupportedError,
    Settings,
    background,
    ml,
)
from webnn_vk.runtime import Run

F4 = MLOperandDescriptor("float32", (4,))


def test_flags_of_a_descriptor_are_bools():
    descriptor = MLTensorDescriptor("float32", [4], readable=1, writable="")
    assert descriptor == MLTensorDescriptor("float32", (4,), readable=True)
    assert (descriptor.readable, descriptor.writable) == (True, False)


def graph_of(context, make, **inputs):
    builder = MLGraphBuilder(context)
    operands = {n: builder.input(n, d) for n, d in inputs.items()}
    return builder.build(make(builder, **operands)).result()


def floats(*values):
    return np.array(values, np.float32)


@pytest.fixture
def fresh(context):
    """A context of its own on the same device, to destroy."""
    device = context.device_info.name if context.device_info.is_vulkan else "cpu"
    with ml.create_context(settings=Settings(device=device)).result() as made:
        yield made


def tensor(context, readable=True, writable=True, shape=(4,), data_type="float32"):
    descriptor = MLTensorDescriptor(data_type, shape, readable=readable, writable=writable)
    return context.create_tensor(descriptor).result()


# -- compute and the odd graphs --------------------------------------------------------------------
def test_no_input(context):
    graph = graph_of(
        context, lambda b: {"y": b.add(b.constant(floats(1, 2, 3, 4)), b.constant("float32", 1))}
    )
    assert graph.inputs == {}
    np.testing.assert_array_equal(context.compute(graph, {})["y"], [2, 3, 4, 5])


def test_one_operand_under_two_names(context):
    def make(b, a):
        y = b.neg(a)
        return {"x": y, "y": y}

    graph = graph_of(context, make, a=F4)
    results = context.compute(graph, {"a": floats(1, -2, 3, 0)})
    for name in ("x", "y"):
        np.testing.assert_array_equal(results[name], [-1, 2, -3, 0])


def test_inputs_and_constants_through_identity_and_views(context):
    def make(b, a):
        c = b.constant(np.arange(4, dtype=np.int32))
        return {
            "a": b.identity(a),
            "again": b.identity(a),
            "c": b.identity(c),
            "flat": b.reshape(b.identity(c), [2, 2]),
            "sum": b.add(b.identity(a), a),
        }

    graph = graph_of(context, make, a=F4)
    for values in (floats(1, 2, 3, 4), floats(5, 6, 7, 8)):
        results = context.compute(graph, {"a": values})
        np.testing.assert_array_equal(results["a"], values)
        np.testing.assert_array_equal(results["again"], values)
        np.testing.assert_array_equal(results["c"], [0, 1, 2, 3])
        np.testing.assert_array_equal(results["flat"], [[0, 1], [2, 3]])
        np.testing.assert_array_equal(results["sum"], 2 * values)


def test_every_output_is_written_at_each_dispatch(context):
    graph = graph_of(context, lambda b, a: {"c": b.identity(b.constant(floats(7, 7, 7, 7)))}, a=F4)
    assert list(graph.inputs) == []
    out = tensor(context)
    for _ in range(2):
        context.write_tensor(out, floats(0, 0, 0, 0))
        context.dispatch(graph, {}, {"c": out})
        np.testing.assert_array_equal(context.read_tensor(out).result(), [7, 7, 7, 7])


def test_unused_inputs_do_not_belong_to_the_graph(context):
    builder = MLGraphBuilder(context)
    builder.input("unused", F4)
    a = builder.input("a", F4)
    with pytest.warns(RuntimeWarning, match="no output depends on the inputs 'unused'") as warned:
        graph = builder.build({"y": builder.abs(a)}).result()
    assert warned[0].filename == __file__
    assert list(graph.inputs) == ["a"]
    assert graph.outputs == {"y": F4}
    data = floats(1, 2, 3, 4)
    reason = (
        r"\['a', 'unused'\] were given, \['a'\] are expected; no output depends on \['unused'\]"
    )
    with pytest.raises(TypeError, match=f"compute: inputs {reason}"):
        context.compute(graph, {"a": data, "unused": data})
    with pytest.raises(TypeError, match=f"dispatch: inputs {reason}"):
        context.dispatch(graph, {"a": tensor(context), "unused": tensor(context)},
                         {"y": tensor(context)})
    with pytest.raises(TypeError, match=r"were given, \['a'\] are expected$"):
        context.compute(graph, {"z": data})


def test_an_intermediate_may_also_be_an_output(context):
    def make(b, a):
        e = b.exp(a)
        return {"e": e, "y": b.mul(b.reshape(e, [2, 2]), b.constant("float32", 2))}

    graph = graph_of(context, make, a=F4)
    results = context.compute(graph, {"a": floats(0, 0, 0, 0)})
    np.testing.assert_allclose(results["e"], np.ones(4), rtol=1e-6)
    np.testing.assert_allclose(results["y"], np.full((2, 2), 2), rtol=1e-6)


def test_chained_dispatches_need_no_wait(context):
    graph = graph_of(context, lambda b, a, c: {"y": b.add(a, c)}, a=F4, c=F4)
    x, y, z = (tensor(context) for _ in range(3))
    context.write_tensor(y, floats(1, 1, 1, 1))
    for _ in range(8):  # Fibonacci
        context.dispatch(graph, {"a": x, "c": y}, {"y": z})
        x, y, z = y, z, x
    np.testing.assert_array_equal(context.read_tensor(y).result(), [34] * 4)


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


def test_asyncio(context):
    async def run():
        builder = MLGraphBuilder(context)
        a = builder.input("a", F4)
        graph = await builder.build({"y": builder.relu(a)})
        x = await context.create_tensor(MLTensorDescriptor("float32", (4,), writable=True))
        y = await context.create_tensor(MLTensorDescriptor("float32", (4,), readable=True))
        context.write_tensor(x, floats(-1, 2, -3, 4))
        context.dispatch(graph, {"a": x}, {"y": y})
        return await context.read_tensor(y)

    np.testing.assert_array_equal(asyncio.run(run()), [0, 2, 0, 4])


def test_arguments_by_the_names_of_the_idl(context):
    descriptor = {"data_type": "float32", "shape": [4], "readable": True, "writable": True}
    x = context.create_tensor(descriptor=descriptor).result()
    y = context.create_tensor(descriptor=descriptor).result()
    c = context.create_constant_tensor(descriptor=F4, input_data=floats(1, 2, 3, 4)).result()
    builder = MLGraphBuilder(context=context)
    a = builder.input(name="a", descriptor=F4)
    total = builder.add(a=a, b=builder.constant(tensor=c))
    for constant in (
        builder.constant(descriptor=F4, buffer=floats(1, 1, 1, 1)),
        builder.constant(F4, buffer=floats(1, 1, 1, 1)),
        builder.constant(data_type="float32", value=1),
        builder.constant(array=floats(1, 1, 1, 1)),
    ):
        total = builder.add(total, constant)
    graph = builder.build(outputs={"y": total}).result()
    context.write_tensor(tensor=x, input_data=floats(0, 0, 0, 1))
    context.dispatch(graph=graph, inputs={"a": x}, outputs={"y": y})
    out = np.empty(4, np.float32)
    context.read_tensor(tensor=y, output=out).result()
    assert out.tolist() == [5, 6, 7, 9]
    assert context.compute(graph=graph, inputs={"a": out})["y"].tolist() == [10, 12, 14, 17]


def test_how_objects_print(context):
    device = context.device_info.name
    builder = MLGraphBuilder(context)
    assert repr(builder) == f"<MLGraphBuilder on {device}: 0 operators>"
    a = builder.input("a\u202e", F4)
    assert repr(a) == r"<MLOperand input 'a\\u202e': float32[4]>"
    y = builder.abs(a)
    assert repr(builder) == f"<MLGraphBuilder on {device}: 1 operators>"
    graph = builder.build({"y": y}).result()
    assert repr(builder) == f"<MLGraphBuilder on {device}: built>"
    assert repr(graph) == r"<MLGraph ('a\\u202e': float32[4]) → ('y': float32[4])>"
    graph.destroy()
    assert repr(graph).endswith(" destroyed>")
    made = tensor(context)
    assert repr(made) == "<MLTensor float32[4] readable writable>"
    assert repr(tensor(context, False, False)) == "<MLTensor float32[4]>"
    made.destroy()
    assert repr(made) == "<MLTensor float32[4] readable writable destroyed>"


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
    graph = graph_of(context, lambda b, x: {"y": b.neg(x)}, x=F4)
    given = {**graph.inputs["x"], "readable": True}
    assert given == {"data_type": "float32", "shape": (4,), "readable": True}
    assert context.create_tensor(given).result().readable
    full = dict(MLTensorDescriptor("int8", (1,), writable=True))
    assert MLTensorDescriptor(**full) == MLTensorDescriptor("int8", (1,), writable=True)
    with pytest.raises(KeyError, match="size"):
        F4["size"]


def test_html_for_notebooks(context):
    graph = graph_of(context, lambda b, x: {"y": b.neg(x, label="<i>")}, **{"x": F4})
    for shown, parts in (
        (graph, ["<td>input</td><td>x</td><td>float32</td><td>[4]</td>", "<caption>MLGraph: 1 st"]),
        (graph.report(), ["<th>kernel</th>", "neg [&lt;i&gt;]"]),
        (tensor(context), ["<td>float32</td>", "<td>16</td>", "<td>readable writable</td>"]),
        (context.device_info, [f"<caption>{context.device_info.name}</caption>", "max_tensor"
                               if not context.device_info.is_vulkan else "<td>features</td>"]),
    ):
        html = shown._repr_html_()
        assert html.startswith("<table>") and html.count("<tr>") == html.count("</tr>") > 0
        assert all(part in html for part in parts), html
    assert repr(graph.report()).startswith("<GraphReport 1 steps")
    default = ", the default" * context.device_info.default
    assert repr(context.device_info) == f"<DeviceInfo {context.device_info}{default}>"
    made = tensor(context, False, False)
    made.destroy()
    assert "<td>destroyed</td>" in made._repr_html_()


def test_the_default_is_marked(vulkan, monkeypatch):
    index = webnn_vk.ml.create_context(settings=webnn_vk.Settings(device="vulkan")).result(60)
    index = index.device_info.index
    for device, default in ((str(index), True), ("cpu", False)):
        monkeypatch.setenv("WEBNN_VK_DEVICE", device)
        made = webnn_vk.ml.create_context(settings=webnn_vk.Settings(device=index)).result(60)
        with made as context:
            assert context.device_info.default == default
        assert [d.default for d in webnn_vk.devices() if d.index == index] == [default]


def test_dir_is_free_of_internals(context):
    graph = graph_of(context, lambda b, x: {"y": b.neg(x)}, x=F4)
    builder = MLGraphBuilder(context)
    for thing, public in (
        (context, "compute"), (graph, "inputs"), (tensor(context), "nbytes"),
        (builder, "conv2d"), (builder.input("a", F4), "shape"), (context.lost, "result"),
    ):
        names = dir(thing)
        assert public in names and "__class__" in names
        assert [n for n in names if n.startswith("_") and not n.endswith("__")] == []
    assert {"send", "set_result", "hint", "reject"}.isdisjoint(dir(context.lost))
    assert {"importlib", "Any", "annotations"}.isdisjoint(dir(webnn_vk))
    assert {"ml", "gpu", "MLGraphBuilder", "__version__"} <= set(dir(webnn_vk))


# -- asyncio ---------------------------------------------------------------------------------------
def test_computing_under_asyncio(context):
    graph = graph_of(context, lambda b, x: {"y": b.neg(x)}, x=F4)
    data = floats(1, 2, 3, 4)

    async def use():
        promises = [context.compute_async(graph, {"x": data}), context.compute_async(
            graph, {"x": [5, 6, 7, 8]})]
        data[:] = 0  # copied before
        return await asyncio.gather(*promises)

    first, second = asyncio.run(asyncio.wait_for(use(), 60))
    assert first["y"].tolist() == [-1, -2, -3, -4] and second["y"].tolist() == [-5, -6, -7, -8]
    with pytest.raises(TypeError, match="compute_async: inputs .'z'. were given, .'x'. are"):
        context.compute_async(graph, {"z": data}).result(20)
    graph.destroy()
    with pytest.raises(InvalidStateError, match="destroyed"):
        context.compute_async(graph, {"x": data}).result(20)


def test_async_with(context):
    device = context.device_info.name if context.device_info.is_vulkan else "cpu"

    async def use():
        async with await ml.create_context(settings=Settings(device=device)) as own:
            builder = MLGraphBuilder(own)
            async with await builder.build({"y": builder.neg(builder.input("x", F4))}) as graph:
                async with await own.create_tensor(F4) as made:
                    pass
        return own, graph, made

    own, graph, made = asyncio.run(asyncio.wait_for(use(), 60))
    assert own.lost.done()
    assert repr(graph).endswith(" destroyed>") and repr(made).endswith(" destroyed>")


def test_promises_in_place_of_their_results(context):
    hint = r"call .result\(\) or await it first"
    graph = graph_of(context, lambda b, x: {"y": b.neg(x)}, x=F4)
    made = context.create_tensor({"data_type": "float32", "shape": [4], "readable": True})
    read = context.read_tensor(made.result(20))
    with pytest.raises(TypeError, match=rf"MLContext is expected, not an MLPromise.*{hint}"):
        MLGraphBuilder(ml.create_context(settings=Settings(device="cpu")))
    with pytest.raises(TypeError, match=rf"not an MLPromise of an MLTensor float32\[4\]: {hint}"):
        context.dispatch(graph, {"x": made}, {"y": made})
    with pytest.raises(TypeError, match=rf"an array is expected, not .*an array float32.*{hint}"):
        context.compute(graph, {"x": read})
    builder = MLGraphBuilder(context)
    again = builder.build({"y": builder.neg(builder.input("x", F4))})
    with pytest.raises(TypeError, match=rf"MLGraph is expected, not an MLPromise of an.*{hint}"):
        context.compute(again, {"x": floats(1, 2, 3, 4)})


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


def test_dispatch_errors(context, fresh):
    graph = graph_of(context, lambda b, a: {"y": b.abs(a)}, a=F4)
    x, y = tensor(context), tensor(context)
    for inputs, outputs, message in (
        ({}, {"y": y}, r"inputs \[\] were given, \['a'\] are expected"),
        ({"b": x}, {"y": y}, r"\['b'\]"),
        ({1: x}, {"y": y}, r"inputs \['1'\] were given, \['a'\] are expected"),
        ({"a": x}, {"y": x}, "more than once"),
        ({"a": tensor(context, shape=(2, 2))}, {"y": y}, r"'a' is float32\[2, 2\], float32\[4\]"),
        ({"a": tensor(context, data_type="int32")}, {"y": y}, r"int32\[4\], float32\[4\]"),
        ({"a": tensor(fresh)}, {"y": y}, "another context"),
        ({"a": context.create_constant_tensor(F4, floats(1, 2, 3, 4)).result()}, {"y": y},
         "constant tensor"),
    ):
        with pytest.raises(TypeError, match=message):
            context.dispatch(graph, inputs, outputs)
    with pytest.raises(TypeError, match="the graph belongs to another context"):
        fresh.dispatch(graph, {"a": tensor(fresh)}, {"y": tensor(fresh)})
    with pytest.raises(TypeError, match="inputs and outputs are mappings"):
        context.dispatch(graph, [x], {"y": y})
    with pytest.raises(TypeError, match="an MLGraph is expected, not NoneType"):
        context.dispatch(None, {"a": x}, {"y": y})
    graph.destroy()
    graph.destroy()
    with pytest.raises(InvalidStateError, match="graph was destroyed"):
        context.dispatch(graph, {"a": x}, {"y": y})


def test_compute_errors(context, fresh):
    graph = graph_of(context, lambda b, a: {"y": b.abs(a)}, a=F4)
    with pytest.raises(TypeError, match="the graph belongs to another context"):
        fresh.compute(graph, {"a": floats(1, 2, 3, 4)})
    with pytest.raises(TypeError, match=r"inputs \['b'\] were given, \['a'\] are expected"):
        context.compute(graph, {"b": floats(1)})
    with pytest.raises(TypeError, match="compute: input 'a'.*8 bytes"):
        context.compute(graph, {"a": floats(1, 2)})
    with pytest.raises(TypeError, match=r"inputs \['1', 'a'\] were given"):
        context.compute(graph, {1: floats(1), "a": floats(1, 2, 3, 4)})
    with pytest.raises(TypeError, match="mapping of names"):
        context.compute(graph, None)


# -- ends ------------------------------------------------------------------------------------------
def test_destroyed_tensors(context):
    t = tensor(context)
    pending = context.read_tensor(t)
    t.destroy()
    t.destroy()
    try:
        pending.result(timeout=10)  # the read may have been faster
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
        graph_of(context, lambda b, a: {"y": b.mul(a, b.constant(constant))}, a=F4)
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


def test_destroying_the_context_ends_everything(fresh):
    graph = graph_of(fresh, lambda b, a: {"y": b.abs(a)}, a=F4)
    x, y = tensor(fresh), tensor(fresh)
    builder = MLGraphBuilder(fresh)
    a = builder.input("a", F4)
    assert not fresh.lost.done()
    fresh.destroy()
    fresh.destroy()
    assert "destroy()" in fresh.lost.result().message
    for call in (
        lambda: fresh.dispatch(graph, {"a": x}, {"y": y}),
        lambda: fresh.write_tensor(x, floats(1, 2, 3, 4)),
        lambda: fresh.read_tensor(y).result(),
        lambda: fresh.create_tensor(F4).result(),
        lambda: fresh.create_constant_tensor(F4, floats(1, 2, 3, 4)).result(),
        lambda: MLGraphBuilder(fresh),
        lambda: builder.abs(a),
        lambda: builder.build({"y": a}).result(),
    ):
        with pytest.raises(InvalidStateError):
            call()


def test_collected_objects_give_their_memory_back(fresh):
    def use():
        graph = graph_of(fresh, lambda b, a: {"y": b.exp(b.neg(a))}, a=F4)
        fresh.compute(graph, {"a": floats(1, 2, 3, 4)})

    use()
    gc.collect()
    fresh.fence().wait(10)
    while not fresh._state.timeline.idle:
        pass
    before = fresh._state.device.memory_in_use()
    for _ in range(20):
        use()
    gc.collect()
    while not fresh._state.timeline.idle:
        pass
    assert fresh._state.device.memory_in_use() == before


# -- choosing a device -----------------------------------------------------------------------------
def test_options_of_create_context():
    with pytest.raises(TypeError, match="power_preference: 'fast' is not one of"):
        ml.create_context(power_preference="fast").result()
    with ml.create_context(accelerated=False, settings=Settings()).result() as context:
        assert context.accelerated is False
        assert not context.device_info.is_vulkan
    with pytest.raises(NotSupportedError, match="no such device"):
        ml.create_context(settings=Settings(device="no such device")).result()


def test_devices_lists_the_cpu_last():
    *_, last = webnn_vk.devices()
    assert last.type == "numpy" and not last.is_vulkan
    assert "NumPy" in str(last)


def test_limits_are_derived_from_the_records(context):
    limits = context.op_support_limits()
    assert limits["gather_nd"]["indices"]["data_types"] == ["int32", "uint32", "int64"]
    assert limits["conv2d"]["input"]["rank_range"] == {"min": 4, "max": 4}
    assert limits["max_tensor_byte_length"] > 2**27
    assert limits["preferred_input_layout"] == (
        "nhwc" if context.device_info.is_vulkan else "nchw"
    )
    assert {"input", "constant", "output", "is_nan", "l2_pool2d"} <= set(limits)


def test_nothing_that_a_device_has_once_is_copied(context):
    """A copy of a tensor would get around "given more than once" and outlive destroy()."""
    builder = MLGraphBuilder(context)
    descriptor = {"data_type": "float32", "shape": [2]}
    operand = builder.input("x", descriptor)
    graph = builder.build({"y": builder.abs(operand)}).result()
    tensor = context.create_tensor(descriptor).result()
    for given in (context, builder, operand, graph, tensor):
        name = type(given).__name__
        for call in (copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=f"a copy of this {name} can't be made"):
                call(given)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(TypeError, match=f"this {name} can't be pickled"):
                pickle.dumps(given, protocol)


@pytest.mark.parametrize("what", ["tensor", "context"])
@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_a_read_that_ends_amid_destroy_is_rejected(device, what, monkeypatch):
    """destroy() comes after it in the order of the calls, but its effect is immediate."""
    if device == "vulkan":
        require_vulkan()
    descriptor = {"data_type": "int32", "shape": [2], "readable": True}
    with open_context(device) as context:
        tensor = context.create_tensor(descriptor).result()
        go_on, shielded = threading.Event(), background.shielded
        context._state.lane.enqueue(Run(lambda: go_on.wait(30), print))
        promise, fence = context.read_tensor(tensor), context.fence()
        destroyed = {"tensor": tensor, "context": context}[what]
        last_steps = (tensor._state._end, context._state._destroy)

        def late(function, *arguments):
            if function in last_steps:
                go_on.set()
                assert fence.wait(30)
            return shielded(function, *arguments)

        monkeypatch.setattr(background, "shielded", late)
        destroyed.destroy()
        monkeypatch.undo()
        with pytest.raises(InvalidStateError, match="destroy"):
            promise.result(30)
