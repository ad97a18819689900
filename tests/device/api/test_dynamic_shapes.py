"""Named dimensions: one build for many shapes, each equal to the graph of that shape."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.support.contexts import open_context, open_over
from tests.support.discriminating import assert_allclose
from tests.support.faults import FaultyDriver
from webnn_vk import (
    InvalidStateError,
    MLDynamicDimension,
    MLGraphBuilder,
    OperationError,
    from_dlpack,
)

N, T = MLDynamicDimension("n", 6), {"name": "t", "max_size": 40}


@pytest.fixture(params=["cpu", pytest.param("vulkan", marks=pytest.mark.device)])
def context(request):
    if request.param == "vulkan":
        request.getfixturevalue("vulkan")
    with open_context(device=request.param, experimental=["dynamic-shapes"]) as context:
        yield context


def encoder(builder, n, t):
    """Attention with two heads, a residual and a mean over ``t``."""
    rng = np.random.default_rng(3)

    def weights(*shape):
        return builder.constant(rng.uniform(-0.5, 0.5, shape).astype(np.float32))

    x = builder.input("x", {"data_type": "float32", "shape": [n, t, 16]})
    mask = builder.input("mask", {"data_type": "float32", "shape": [n, t]})

    def heads(y):
        return builder.transpose(builder.reshape(y, [n, t, 2, 8]), permutation=[0, 2, 1, 3])

    q, k, v = (heads(builder.matmul(x, weights(16, 16))) for _ in range(3))
    scores = builder.matmul(q, builder.transpose(k, permutation=[0, 1, 3, 2]))
    scores = builder.add(scores, builder.reshape(mask, [n, 1, 1, t]))
    y = builder.matmul(builder.softmax(scores, 3), v)
    y = builder.reshape(builder.transpose(y, permutation=[0, 2, 1, 3]), [n, t, 16])
    y = builder.layer_normalization(builder.add(x, y))
    return {"y": y, "mean": builder.reduce_mean(y, axes=[1])}


def feeds(n, t):
    rng = np.random.default_rng((n, t))
    x = rng.uniform(-1, 1, (n, t, 16)).astype(np.float32)
    return {"x": x, "mask": np.log(rng.uniform(0.5, 1, (n, t))).astype(np.float32)}


def built(context, make, *dimensions):
    builder = MLGraphBuilder(context)
    return builder.build(make(builder, *dimensions)).result()


def test_each_shape_is_equal_to_its_static_graph(context):
    graph = built(context, encoder, N, T)
    pick = random.Random(4)
    shapes = [(6, 40), (1, 1), (1, 40), (6, 1), (5, 5)]
    shapes += [(pick.randint(1, 6), pick.randint(1, 40)) for _ in range(7)]
    for n, t in shapes:
        given = feeds(n, t)
        wanted = context.compute(built(context, encoder, n, t), given)
        described = {name: array.shape for name, array in given.items()}
        computed = graph.compute_shapes(described)
        for _ in range(2):  # the second time with the commands recorded
            got = context.compute(graph, given)
            for name, array in wanted.items():
                assert got[name].shape == array.shape == computed[name]
                assert_allclose(got[name], array, rtol=1e-4, atol=1e-5)


def test_dispatch_takes_the_sizes_of_the_tensors(context):
    graph = built(context, encoder, N, T)
    for n, t in ((2, 7), (4, 3), (2, 7)):
        given = feeds(n, t)
        tensors = {
            name: context.create_tensor(
                {"data_type": "float32", "shape": array.shape, "writable": True}
            ).result()
            for name, array in given.items()
        }
        for name, array in given.items():
            context.write_tensor(tensors[name], array)
        shapes = graph.compute_shapes({name: a.shape for name, a in given.items()})
        outputs = {
            name: context.create_tensor(
                {"data_type": "float32", "shape": shape, "readable": True}
            ).result()
            for name, shape in shapes.items()
        }
        context.dispatch(graph, tensors, outputs)
        wanted = context.compute(built(context, encoder, n, t), given)
        for name, tensor in outputs.items():
            assert_allclose(
                context.read_tensor(tensor).result(), wanted[name], rtol=1e-4, atol=1e-5
            )
        wrong = {**outputs, "mean": outputs["y"]}
        with pytest.raises(TypeError):
            context.dispatch(graph, tensors, wrong)


FACTORS = [f"f{i}" for i in range(10)]


def sums(builder, n, t):
    """More parameters than the push constants hold."""
    def given(name, *shape):
        return builder.input(name, {"data_type": "float32", "shape": shape})

    y = given("x", n, t)
    for i, name in enumerate(FACTORS):
        added = builder.constant(np.array(i + 0.5, np.float32))
        y = builder.add(builder.mul(y, given(name, *((n, 1) if i % 2 else (1, t)))), added)
    return {"y": y}


def terms(n, t):
    """Inputs of ``sums``, and its result."""
    rng = np.random.default_rng((n, t))
    arrays = {"x": rng.random((n, t), np.float32)}
    wanted = arrays["x"]
    for i, name in enumerate(FACTORS):
        arrays[name] = rng.random((n, 1) if i % 2 else (1, t), np.float32)
        wanted = wanted * arrays[name] + np.float32(i + 0.5)
    return arrays, wanted


@pytest.mark.device
@pytest.mark.parametrize("device_type", ["cpu", "discrete"])
def test_parameters_beyond_the_push_constants(vulkan, device_type):
    """They lie in a buffer, of which each shape has its own: nothing is compiled for it, and
    dispatches with different shapes may wait together."""
    draft = {"experimental": ["dynamic-shapes"], "limits": {"device_type": device_type}}
    with open_context("vulkan", **draft) as context:
        graph = built(context, sums, N, T)
        compiled = len(graph._shapes._compiled)
        for made in graph._shapes._compiled:
            dispatches = [*made.executable.program.dispatches]
            assert any(step.spec.param_storage == "buffer" for step in dispatches)
        pending = []
        for n, t in ((2, 8), (3, 12), (2, 8), (5, 9), (3, 12), (4, 7)):
            arrays, wanted = terms(n, t)
            tensors = {}
            for name, array in arrays.items():
                described = {"data_type": "float32", "shape": array.shape, "writable": True}
                tensors[name] = context.create_tensor(described).result()
                context.write_tensor(tensors[name], array)
            out = {"data_type": "float32", "shape": (n, t), "readable": True}
            y = context.create_tensor(out).result()
            context.dispatch(graph, tensors, {"y": y})
            pending.append((context.read_tensor(y), wanted))
        for read, wanted in pending:
            assert_allclose(read.result(), wanted, rtol=1e-5)
        assert len(graph._shapes._compiled) == compiled


class NoWindow(FaultyDriver):
    """Of a GPU whose memory the host can't write."""

    def allocate(self, size, **options):
        allocation = super().allocate(size, **options)
        if not options.get("host"):
            allocation.mapped = None
        return allocation


@pytest.mark.device
@pytest.mark.parametrize("wrap", [FaultyDriver, NoWindow])
def test_parameters_that_are_not_there(vulkan, wrap):
    """No run takes what is in their memory for them."""
    context, driver = open_over(wrap, experimental=["dynamic-shapes"])
    with context:
        graph = built(context, sums, N, T)
        for n, t in ((2, 8), (3, 12)):
            arrays, wanted = terms(n, t)
            if n == 3:
                driver.fail_submit()
                with pytest.raises(OperationError, match="injected: vkQueueSubmit"):
                    context.compute(graph, arrays)
                assert driver.injected["submit"] == 1
            if n == 3 and wrap is NoWindow:
                with pytest.raises(OperationError, match="injected: vkQueueSubmit"):
                    context.compute(graph, arrays)
            else:
                found = context.compute(graph, arrays)["y"]
                assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("call", ["compute", "compute_async", "dispatch"])
@pytest.mark.parametrize("fault", ["lost", "allocation"])
def test_faults_where_sizes_are_compiled(vulkan, call, fault):
    context, driver = open_over(FaultyDriver, experimental=["dynamic-shapes"])
    with context:
        graph = built(context, sums, N, T)
        graph._shapes._compiled.clear()
        arrays, y = terms(2, 8)
        tensors = {n: from_dlpack(array, context) for n, array in (arrays | {"y": y}).items()}
        calls = {
            "compute": lambda: context.compute(graph, arrays),
            "compute_async": lambda: context.compute_async(graph, arrays).result(60),
            "dispatch": lambda: context.dispatch(
                graph, {name: tensors[name] for name in arrays}, {"y": tensors["y"]}),
        }
        if fault == "lost":
            driver.lose_at()
            with pytest.raises(InvalidStateError, match="lost.*injected"):
                calls[call]()
            assert "injected" in context.lost.result(60).message
        else:
            driver.fail_allocation(times=1000)
            with pytest.raises(OperationError, match=f"{call}: out of memory: injected"):
                calls[call]()


def test_shapes_that_do_not_fit_are_refused(cpu_context):
    with open_context(device="cpu", experimental=["dynamic-shapes"]) as context:
        graph = built(context, encoder, N, T)
        for x, mask, message in (
            ((7, 3, 16), (7, 3), "dimension 'n' is 7; 1 … 6 are accepted"),
            ((2, 3, 16), (2, 4), r"'mask' has shape \[2, 4\]; dimension 1, t, is 3 for n 2, t 3"),
            ((2, 3, 15), (2, 3), r"'x' has shape \[2, 3, 15\]; dimension 2, 16, is 16"),
            ((2, 3), (2, 3), r"'x' has shape \[2, 3\], float32\[n, t, 16\] is expected"),
        ):
            arrays = {"x": np.zeros(x, np.float32), "mask": np.zeros(mask, np.float32)}
            with pytest.raises(TypeError, match=f"^compute: .*{message}"):
                context.compute(graph, arrays)
            with pytest.raises(TypeError, match=f"^compute_shapes: .*{message}"):
                graph.compute_shapes({"x": x, "mask": mask})
        graph.destroy()
        with pytest.raises(InvalidStateError):
            graph.compute_shapes({"x": (1, 1, 16), "mask": (1, 1)})


def test_operators_check_shapes_at_dispatch(cpu_context):
    with open_context(device="cpu", experimental=["dynamic-shapes"]) as context:
        def make(builder, n):
            x = builder.input("x", {"data_type": "float32", "shape": [n]})
            return {"y": builder.slice(x, [2], [3], label="part")}

        graph = built(context, make, {"name": "n", "max_size": 9})
        y = context.compute(graph, {"x": np.arange(5, dtype=np.float32)})["y"]
        np.testing.assert_array_equal(y, [2, 3, 4])
        with pytest.raises(TypeError, match=r"slice \[part\]"):
            context.compute(graph, {"x": np.zeros(4, np.float32)})
        with pytest.raises(TypeError, match=r"slice \[part\]"):
            graph.compute_shapes({"x": (4,)})


def test_dimensions_in_the_builder(cpu_context):
    with open_context(device="cpu", experimental=["dynamic-shapes"]) as context:
        builder = MLGraphBuilder(context)
        x = builder.input("x", {"data_type": "float32", "shape": [N, 4]})
        assert x.shape == (N, 4) and repr(x) == "<MLOperand input 'x': float32[n, 4]>"
        both = builder.concat([x, x], 0)
        assert str(both.shape[0]) == "2*n" and both.shape[0].max_size == 12
        again = builder.reshape(both, [both.shape[0] * 2, 2])
        assert str(again.shape[0]) == "4*n"
        for use in (bool, int, range, lambda d: d < 3):
            with pytest.raises(TypeError, match="'n': its size is known only at dispatch"):
                use(x.shape[0])
        with pytest.raises(TypeError, match="dimension 'm': no input has it"):
            builder.reshape(x, [{"name": "m", "max_size": 3}, 4])
        with pytest.raises(TypeError, match="dimension 'n' has 1 … 7 elements here, and 1 … 6"):
            builder.input("z", {"data_type": "float32", "shape": [{"name": "n", "max_size": 7}]})
        with pytest.raises(TypeError, match="add: .*dimensions from the last on have to be equal"):
            builder.add(x, builder.constant(np.zeros((3, 4), np.float32)))
        other = MLGraphBuilder(context)
        other.input("x", {"data_type": "float32", "shape": [N]})
        with pytest.raises(TypeError, match="belongs to another builder"):
            other.input("y", {"data_type": "float32", "shape": [both.shape[0]]})


@pytest.mark.parametrize("copies", [False, True])
def test_a_donated_input_is_updated_in_place(vulkan, copies):
    with open_context(experimental=["dynamic-shapes"]) as context:
        builder = MLGraphBuilder(context)
        past = builder.input("past", {"data_type": "float32", "shape": [9, 4]})
        new = builder.input("new", {"data_type": "float32", "shape": [N, 4]})
        at = builder.input("at", {"data_type": "int32", "shape": [N, 1]})
        outputs = {"present": builder.scatter_nd(past, at, new)}
        if copies:
            outputs["y"] = builder.mul(past, builder.reduce_sum(outputs["present"]))
        graph = builder.build(outputs, donate={"past": "present"}).result()
        (note,) = graph.report().donated
        assert ("a copy" in note) == copies
        rng = np.random.default_rng(1)
        expected = np.zeros((9, 4), np.float32)
        cache = context.create_tensor(
            {"data_type": "float32", "shape": [9, 4], "readable": True, "writable": True}
        ).result()
        context.write_tensor(cache, expected)
        for n in (1, 6, 3):
            rows = rng.permutation(9)[:n].astype(np.int32)[:, None]
            update = rng.normal(size=(n, 4)).astype(np.float32)
            tensors = {"past": cache}
            for name, array in {"new": update, "at": rows}.items():
                tensors[name] = context.create_tensor({
                    "data_type": array.dtype.name, "shape": array.shape, "writable": True
                }).result()
                context.write_tensor(tensors[name], array)
            results = {"present": cache}
            before = expected.copy()
            expected[rows[:, 0]] = update
            if copies:
                results["y"] = context.create_tensor(
                    {"data_type": "float32", "shape": [9, 4], "readable": True}
                ).result()
            context.dispatch(graph, tensors, results)
            np.testing.assert_array_equal(context.read_tensor(cache).result(), expected)
            if copies:
                y = context.read_tensor(results["y"]).result()
                assert_allclose(y, before * expected.sum(), rtol=1e-4, atol=1e-5)


class Asked(dict):
    """A table of tuned schedules that keeps what is looked up."""

    def __init__(self):
        super().__init__({("nothing", ""): None})
        self.keys_asked = set()

    def get(self, key, default=None):
        self.keys_asked.add(key)
        return default


def test_tuned_schedules_are_found_and_kernels_are_tuned(vulkan):
    with open_context(experimental=["dynamic-shapes"]) as context:
        state, tuned = context._state, []

        def tuner(nodes, available):
            tuned.append(sorted(node.title for node in nodes))

        def asked(rows, columns):
            builder, table = MLGraphBuilder(context), Asked()
            state._compiled_for["now"] = replace(state.target, tuned=table), tuner
            a = builder.input("a", {"data_type": "float32", "shape": [rows, columns]})
            b = builder.input("b", {"data_type": "float32", "shape": [columns, 64]})
            builder.build({"c": builder.softmax(builder.matmul(a, b), 1)}).result()
            return table.keys_asked

        static = asked(6, 40)
        assert any(family == "matmul" for family, _ in static)
        assert static <= asked(N, T)
        assert len(tuned) > 2 and tuned[0] == tuned[1] != []


@pytest.mark.parametrize("odd", [
    {"name": "n"}, {"max_size": 3}, {"name": "", "max_size": 3}, {"name": "n", "max_size": 0},
    {"name": "n", "max_size": 2.5}, {"name": "n", "max_size": 3, "min_size": 4},
    {"name": "n", "max_size": 3, "least": 1}, {"name": 3, "max_size": 3},
    {"name": "n", "max_size": 2**31},
])
def test_odd_dimensions_are_refused(odd, cpu_context):
    with open_context(device="cpu", experimental=["dynamic-shapes"]) as context:
        with pytest.raises(TypeError):
            MLGraphBuilder(context).input("x", {"data_type": "float32", "shape": [odd]})


def test_computed_dimensions_of_inputs_are_checked(cpu_context):
    """A cache, and a mask as long as the cache and the new tokens together."""
    with open_context(device="cpu", experimental=["dynamic-shapes"]) as context:
        def make(builder, past, new):
            a = builder.input("past", {"data_type": "float32", "shape": [past]})
            b = builder.input("new", {"data_type": "float32", "shape": [new]})
            mask = builder.input("mask", {"data_type": "float32", "shape": [past + new]})
            return {"y": builder.mul(builder.concat([a, b], 0), mask)}

        past, new = MLDynamicDimension("past", 20), MLDynamicDimension("new", 4)
        graph = built(context, make, past, new)
        a, b = np.ones(5, np.float32), np.full(2, 3, np.float32)
        mask = np.arange(7, dtype=np.float32)
        y = context.compute(graph, {"past": a, "new": b, "mask": mask})["y"]
        np.testing.assert_array_equal(y, [0, 1, 2, 3, 4, 15, 18])
        with pytest.raises(TypeError, match="past . new|new . past"):
            context.compute(graph, {"past": a, "new": b, "mask": mask[1:]})


def test_tensors_have_known_shapes(cpu_context):
    with open_context(device="cpu", experimental=["dynamic-shapes"]) as context:
        with pytest.raises(TypeError):
            context.create_tensor(built(context, encoder, N, T).inputs["x"]).result()
