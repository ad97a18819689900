"""Contexts, graphs and dispatch as a user sees them, on the CPU device and on Vulkan."""

import asyncio
import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import webnn_vk
from tests.support.calls import F4, built, floats, tensor
from tests.support.contexts import returns_to, settled_bytes
from tests.support.discriminating import assert_allclose
from webnn_vk import (
    InvalidStateError,
    MLGraphBuilder,
    MLTensorDescriptor,
    NotSupportedError,
    OperationError,
    Settings,
    ml,
)


def test_a_context_loads_no_compiler(tmp_path):
    """Modules that only builds need are loaded by the first build: a context takes half as long."""
    code = (
        "import sys, webnn_vk\n"
        "context = webnn_vk.ml.create_context().result()\n"
        "parts = ('jinja2', 'webnn_vk.compiler.ops', 'webnn_vk.compiler.ir', "
        "'webnn_vk.compiler.passes', 'webnn_vk.compiler.kernels', 'webnn_vk.runtime.tuning')\n"
        "print([part for part in parts if part in sys.modules])\n"
        "webnn_vk.MLGraphBuilder(context)\n"
        "print([part for part in parts if part in sys.modules])\n"
    )
    # The first process with a set of drivers imports the compiler while it probes them. A cache of
    # its own makes that this test's first process, whatever ran before.
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env=os.environ | {"WEBNN_VK_CACHE": str(tmp_path)},
        )
    before, after = done.stdout.splitlines()
    assert before == "[]"
    assert "webnn_vk.compiler.ops" in after


# -- compute and the odd graphs --------------------------------------------------------------------
def test_no_input(context):
    graph = built(
        context, lambda b: {"y": b.add(b.constant(floats(1, 2, 3, 4)), b.constant("float32", 1))}
    )
    assert graph.inputs == {}
    np.testing.assert_array_equal(context.compute(graph, {})["y"], [2, 3, 4, 5])


def test_one_operand_under_two_names(context):
    def make(b, a):
        y = b.neg(a)
        return {"x": y, "y": y}

    graph = built(context, make, a=F4)
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

    graph = built(context, make, a=F4)
    for values in (floats(1, 2, 3, 4), floats(5, 6, 7, 8)):
        results = context.compute(graph, {"a": values})
        np.testing.assert_array_equal(results["a"], values)
        np.testing.assert_array_equal(results["again"], values)
        np.testing.assert_array_equal(results["c"], [0, 1, 2, 3])
        np.testing.assert_array_equal(results["flat"], [[0, 1], [2, 3]])
        np.testing.assert_array_equal(results["sum"], 2 * values)


def test_every_output_is_written_at_each_dispatch(context):
    graph = built(context, lambda b, a: {"c": b.identity(b.constant(floats(7, 7, 7, 7)))}, a=F4)
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

    graph = built(context, make, a=F4)
    results = context.compute(graph, {"a": floats(0, 0, 0, 0)})
    assert_allclose(results["e"], np.ones(4), rtol=1e-6)
    assert_allclose(results["y"], np.full((2, 2), 2), rtol=1e-6)


def test_chained_dispatches_need_no_wait(context):
    graph = built(context, lambda b, a, c: {"y": b.add(a, c)}, a=F4, c=F4)
    x, y, z = (tensor(context) for _ in range(3))
    context.write_tensor(y, floats(1, 1, 1, 1))
    for _ in range(8):  # Fibonacci
        context.dispatch(graph, {"a": x, "c": y}, {"y": z})
        x, y, z = y, z, x
    np.testing.assert_array_equal(context.read_tensor(y).result(), [34] * 4)


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


def test_html_for_notebooks(context):
    graph = built(context, lambda b, x: {"y": b.neg(x, label="<i>")}, **{"x": F4})
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
    graph = built(context, lambda b, x: {"y": b.neg(x)}, x=F4)
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
    graph = built(context, lambda b, x: {"y": b.neg(x)}, x=F4)
    data = floats(1, 2, 3, 4)

    async def use():
        promises = [context.compute_async(graph, {"x": data}), context.compute_async(
            graph, {"x": [5, 6, 7, 8]})]
        data[:] = 0  # copied before
        return await asyncio.gather(*promises)

    first, second = asyncio.run(asyncio.wait_for(use(), 60))
    assert first["y"].tolist() == [-1, -2, -3, -4] and second["y"].tolist() == [-5, -6, -7, -8]
    with pytest.raises(TypeError, match="compute_async: inputs .'z'. were given, .'x'. are"):
        context.compute_async(graph, {"z": data}).result(60)
    graph.destroy()
    with pytest.raises(InvalidStateError, match="destroyed"):
        context.compute_async(graph, {"x": data}).result(60)


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
    graph = built(context, lambda b, x: {"y": b.neg(x)}, x=F4)
    made = context.create_tensor({"data_type": "float32", "shape": [4], "readable": True})
    read = context.read_tensor(made.result(60))
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


def test_dispatch_errors(context, fresh):
    graph = built(context, lambda b, a: {"y": b.abs(a)}, a=F4)
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
    graph = built(context, lambda b, a: {"y": b.abs(a)}, a=F4)
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


def test_a_build_that_ends_by_no_exception_is_rejected(context, monkeypatch):
    class Panic(BaseException):
        """As libraries written in Rust raise."""

    def panic(*arguments, **more):
        raise Panic("index out of bounds")

    monkeypatch.setattr("webnn_vk.api.build._compiled", panic)
    builder = MLGraphBuilder(context)
    promise = builder.build({"y": builder.abs(builder.input("x", F4))})
    with pytest.raises(OperationError, match="build: Panic: index out of bounds"):
        promise.result(60)


def test_destroying_the_context_ends_everything(fresh):
    graph = built(fresh, lambda b, a: {"y": b.abs(a)}, a=F4)
    x, y = tensor(fresh), tensor(fresh)
    builder = MLGraphBuilder(fresh)
    a = builder.input("a", F4)
    assert not fresh.lost.done()
    fresh.destroy()
    fresh.destroy()
    assert "destroy()" in fresh.lost.result().message
    for call in (
        lambda: fresh.dispatch(graph, {"a": x}, {"y": y}),
        lambda: fresh.compute(graph, {"a": floats(1, 2, 3, 4)}),
        lambda: fresh.write_tensor(x, floats(1, 2, 3, 4)),
        lambda: fresh.read_tensor(y).result(),
        lambda: fresh.create_tensor(F4).result(),
        lambda: fresh.create_constant_tensor(F4, floats(1, 2, 3, 4)).result(),
        lambda: MLGraphBuilder(fresh),
        lambda: builder.abs(a),
        lambda: builder.build({"y": a}).result(),
    ):
        with pytest.raises(InvalidStateError, match="the context is lost: destroy()"):
            call()


def test_collected_objects_give_their_memory_back(fresh):
    def use():
        graph = built(fresh, lambda b, a: {"y": b.exp(b.neg(a))}, a=F4)
        fresh.compute(graph, {"a": floats(1, 2, 3, 4)})

    use()
    before = settled_bytes(fresh)
    for _ in range(20):
        use()
    assert returns_to(fresh, before)


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
    """A copy of a tensor would bypass the check "given more than once" and outlive destroy()."""
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
