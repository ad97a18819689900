"""Donated inputs: an output of a graph updates an input's tensor in place."""

import warnings

import numpy as np
import pytest

from tests.support.contexts import open_over
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.faults import FaultyDriver
from webnn_vk import (
    InvalidStateError,
    MLContext,
    MLGraphBuilder,
    MLOperandDescriptor,
    MLTensorDescriptor,
    OperationError,
    Settings,
    ml,
)
from webnn_vk.api import compute


def _operand(builder, name, shape, kind="float32"):
    return builder.input(name, MLOperandDescriptor(kind, shape))


def _tensor(context, data):
    descriptor = MLTensorDescriptor(data.dtype.name, data.shape, readable=True, writable=True)
    tensor = context.create_tensor(descriptor).result()
    context.write_tensor(tensor, data)
    return tensor


def _scatter_graph(context, shape=(6, 4), count=2):
    builder = MLGraphBuilder(context)
    past = _operand(builder, "past", shape)
    present = builder.scatter_nd(
        past, _operand(builder, "at", (count, 1), "int32"),
        _operand(builder, "rows", (count, *shape[1:])),
    )
    return builder.build({"present": present}, donate={"past": "present"}).result()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("at", [[1, 4], [3, 3], [-1, 0]])
def test_a_scatter_updates_a_donated_tensor(context: MLContext, shared, at):
    rng = np.random.default_rng(3)
    data = rng.normal(size=(6, 4)).astype(np.float32)
    rows = rng.normal(size=(2, 4)).astype(np.float32)
    graph = _scatter_graph(context)
    past = _tensor(context, data)
    present = past if shared else _tensor(context, np.zeros_like(data))
    places = _tensor(context, np.array(at, np.int32)[:, None])
    inputs = {"past": past, "at": places, "rows": _tensor(context, rows)}
    expected = data.copy()
    for _ in range(2):
        context.dispatch(graph, inputs, {"present": present})
        expected[at[0]] = rows[0]
        expected[at[1]] = rows[1]
        np.testing.assert_array_equal(context.read_tensor(present).result(), expected)
    if not shared:
        np.testing.assert_array_equal(context.read_tensor(past).result(), data)


def test_compute_takes_donated_inputs_from_arrays(context: MLContext):
    data = np.arange(24, dtype=np.float32).reshape(6, 4)
    rows = -np.ones((2, 4), np.float32)
    feeds = {"past": data, "at": np.array([[5], [2]], np.int32), "rows": rows}
    expected = data.copy()
    expected[[5, 2]] = -1
    np.testing.assert_array_equal(
        context.compute(_scatter_graph(context), feeds)["present"], expected
    )


@pytest.mark.parametrize("how", ["compute", "compute_async"])
def test_compute_updates_a_donated_tensor(context: MLContext, how):
    """The output is in the tensor, not in the result; others are arrays. Calls with arrays go on
    beside it, in memory of their own."""
    builder = MLGraphBuilder(context)
    past, x = _operand(builder, "past", (3,)), _operand(builder, "x", (3,))
    present = builder.add(past, x)
    outputs = {"present": present, "twice": builder.mul(present, builder.constant("float32", 2))}
    graph = builder.build(outputs, donate={"past": "present"}).result()
    tensor, other = (_tensor(context, np.full(3, n, np.float32)) for n in (1, 5))

    def run(past, x):
        made = getattr(context, how)(graph, {"past": past, "x": np.full(3, x, np.float32)})
        return made if how == "compute" else made.result()

    for x, total in ((2, 3), (3, 6)):
        result = run(tensor, x)
        assert list(result) == ["twice"] and result["twice"].tolist() == [2 * total] * 3
        assert context.read_tensor(tensor).result().tolist() == [total] * 3
        result = run(np.ones(3, np.float32), 1)
        assert result["present"].tolist() == [2] * 3 and result["twice"].tolist() == [4] * 3
    assert run(other, 1)["twice"].tolist() == [12] * 3
    assert context.read_tensor(tensor).result().tolist() == [6] * 3
    for wrong, message in (
        ({"past": tensor, "x": other}, "input 'x' is a tensor"),
        ({"past": _tensor(context, np.ones(2, np.float32)), "x": np.ones(3)}, "is expected"),
        ({"past": tensor}, "x"),
    ):
        with pytest.raises(TypeError, match=message):
            made = getattr(context, how)(graph, wrong)
            made.result()
    other.destroy()
    with pytest.raises(TypeError, match="destroyed"):
        made = getattr(context, how)(graph, {"past": other, "x": np.ones(3, np.float32)})
        made.result()


def _triple(context, results=0):
    """past × 3 + x in place of past; n times that for each of further results."""
    builder = MLGraphBuilder(context)
    past, x = _operand(builder, "past", (3,)), _operand(builder, "x", (3,))
    present = builder.add(builder.mul(past, builder.constant("float32", 3)), x)
    more = {f"y{n}": builder.mul(present, builder.constant("float32", n)) for n in range(results)}
    return builder.build({"present": present, **more}, donate={"past": "present"}).result()


def test_runs_without_results_wait_for_their_ends(context: MLContext):
    """The next run's inputs come into the same memory."""
    graph = _triple(context)
    for _ in range(20):
        tensor = _tensor(context, np.zeros(3, np.float32))
        for x in (1, 2, 3, 4):
            assert context.compute(graph, {"past": tensor, "x": np.full(3, x, np.float32)}) == {}
        assert context.read_tensor(tensor).result().tolist() == [58] * 3


@pytest.mark.parametrize("how", ["compute", "compute_async"])
def test_a_run_without_results_that_fails(how):
    require_vulkan()
    context, driver = open_over(FaultyDriver)
    with context:
        graph, tensor = _triple(context), _tensor(context, np.zeros(3, np.float32))
        feeds = {"past": tensor, "x": np.ones(3, np.float32)}
        assert context.compute(graph, feeds) == {}
        driver.fail_submit()
        with pytest.raises(OperationError, match="injected"):
            made = getattr(context, how)(graph, feeds)
            made.result(60)
        assert driver.injected["submit"] == 1


@pytest.mark.parametrize("results", [0, 1])
@pytest.mark.parametrize("how", ["compute", "compute_async"])
def test_a_tensor_that_is_lent_while_the_call_is_under_way(context, monkeypatch, how, results):
    graph, tensor = _triple(context, results), _tensor(context, np.zeros(3, np.float32))
    feeds = {"past": tensor, "x": np.ones(3, np.float32)}
    views, prepared = [], compute._prepared

    def lent_meanwhile(*given):
        made = prepared(*given)
        views.append(tensor.to_numpy())
        return made

    with monkeypatch.context() as patched:
        patched.setattr(compute, "_prepared", lent_meanwhile)
        with pytest.raises(InvalidStateError, match="another one gave the memory to someone"):
            getattr(context, how)(graph, feeds).result(60)
    assert views[0].tolist() == [0] * 3
    views.pop().release()
    context.compute(graph, feeds)
    assert context.read_tensor(tensor).result().tolist() == [1] * 3


@pytest.mark.parametrize("results", [0, 1, 2])
def test_promised_runs_update_a_tensor_in_the_order_of_the_calls(context: MLContext, results):
    graph = _triple(context, results)
    for _ in range(20):
        tensor = _tensor(context, np.zeros(3, np.float32))
        promises = [
            context.compute_async(graph, {"past": tensor, "x": np.full(3, x, np.float32)})
            for x in (1, 2, 3, 4)
        ]
        read = context.read_tensor(tensor)
        context.write_tensor(tensor, np.zeros(3, np.float32))
        for promise, total in zip(promises, (1, 5, 18, 58), strict=True):
            found = {name: array.tolist() for name, array in promise.result(60).items()}
            assert found == {f"y{n}": [n * total] * 3 for n in range(results)}
        assert read.result(60).tolist() == [58] * 3


def test_promised_runs_of_a_lost_context_reject(context: MLContext):
    graph, tensor = _scatter_graph(context), _tensor(context, np.zeros((6, 4), np.float32))
    feeds = {"at": np.array([[5], [2]], np.int32), "rows": np.ones((2, 4), np.float32)}
    settings = Settings(device="vulkan" if context.device_info.is_vulkan else "cpu")
    with ml.create_context(settings=settings).result() as other:
        own_graph, own = _scatter_graph(other), _tensor(other, np.zeros((6, 4), np.float32))
        promises = [other.compute_async(own_graph, {"past": own, **feeds}) for _ in range(20)]
    for promise in promises:
        try:
            assert promise.result(60) == {}
        except InvalidStateError as error:
            assert "lost" in str(error)
    assert context.compute_async(graph, {"past": tensor, **feeds}).result(60) == {}


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_engines_of_the_cpu_device(engine):
    """Results are written while the input is read, in the same tensor."""
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    settings = Settings(device="cpu", cpu_engine=engine)
    data = np.random.default_rng(9).normal(size=(300, 300)).astype(np.float32)
    with ml.create_context(settings=settings).result() as context:
        builder = MLGraphBuilder(context)
        past = _operand(builder, "past", data.shape)
        present = builder.matmul(builder.transpose(past), past)
        graph = builder.build({"present": present}, donate={"past": "present"}).result()
        assert graph.report().donated[0].endswith("is kept on the CPU device")
        tensor = _tensor(context, data)
        context.dispatch(graph, {"past": tensor}, {"present": tensor})
        result = context.read_tensor(tensor).result()
    assert_allclose(result, data.T @ data, rtol=1e-3, atol=1e-3)


def test_operators_on_the_cpu_beside_a_device(context: MLContext):
    """A step of the CPU reads a donated input, before and after the device has written it."""
    if not context.device_info.is_vulkan:
        pytest.skip("everything is on the CPU")
    data = np.random.default_rng(4).normal(size=(8, 8)).astype(np.float32)
    settings = Settings(device=context.device_info.name, force_cpu=("transpose",))
    with ml.create_context(settings=settings).result() as mixed:
        builder = MLGraphBuilder(mixed)
        past = _operand(builder, "past", data.shape)
        present = builder.matmul(past, builder.transpose(past))
        late = builder.add(builder.transpose(present), builder.relu(past))
        outputs = {"present": present, "late": late}
        graph = builder.build(outputs, donate={"past": "present"}).result()
        assert graph.report().count("cpu") == 2
        tensor, other = _tensor(mixed, data), _tensor(mixed, np.zeros_like(data))
        mixed.dispatch(graph, {"past": tensor}, {"present": tensor, "late": other})
        product = data @ data.T
        first, second = mixed.read_tensor(tensor).result(), mixed.read_tensor(other).result()
    assert_allclose(first, product, rtol=1e-4, atol=1e-5)
    assert_allclose(second, product.T + np.maximum(data, 0), rtol=1e-4, atol=1e-5)


def test_without_the_pass_a_copy_is_kept(context: MLContext):
    if not context.device_info.is_vulkan:
        pytest.skip("the CPU device has no such pass")
    settings = Settings(device=context.device_info.name, skip_passes=("donate",))
    with ml.create_context(settings=settings).result() as plain:
        graph = _scatter_graph(plain)
        assert graph.report().copies == 1 and "a copy is kept" in graph.report().donated[0]
        tensor = _tensor(plain, np.zeros((6, 4), np.float32))
        at = _tensor(plain, np.array([[1], [2]], np.int32))
        rows = _tensor(plain, np.ones((2, 4), np.float32))
        plain.dispatch(graph, {"past": tensor, "at": at, "rows": rows}, {"present": tensor})
        assert plain.read_tensor(tensor).result().sum(axis=1).tolist() == [0, 4, 4, 0, 0, 0]


def test_only_what_is_scattered_is_written(context: MLContext):
    if not context.device_info.is_vulkan:
        pytest.skip("the CPU device keeps a copy")
    report = _scatter_graph(context, (4096, 64), 1).report()
    assert report.copies == 0 and report.arena_bytes == 0
    assert report.donated == ("present takes over past: written in place",)
    (step,) = report.steps
    assert step.dispatches == 1 and step.bytes < 1024


@pytest.mark.parametrize("kind", ["int8", "float16", "float32", "int64"])
@pytest.mark.parametrize("index_type", ["int32", "uint32", "int64"])
def test_scatters_of_every_width(context: MLContext, kind, index_type):
    rng = np.random.default_rng(5)
    for form, shape in [("nd", (7, 3)), ("nd", (5, 8)), ("nd", (4, 3, 2)), ("elements", (5, 6))]:
        builder = MLGraphBuilder(context)
        past = _operand(builder, "past", shape, kind)
        coordinates = 2 if len(shape) == 3 else 1
        if form == "nd":
            at = rng.integers(0, 3, (6, coordinates)).astype(index_type)
            updates = (6, *shape[coordinates:])
        else:
            at = rng.integers(0, 5, (4, 6)).astype(index_type)
            updates = at.shape
        scatter = getattr(builder, f"scatter_{form}")
        present = scatter(
            past, _operand(builder, "at", at.shape, index_type),
            _operand(builder, "rows", updates, kind),
        )
        graph = builder.build({"present": present}, donate={"past": "present"}).result()
        data, rows = (rng.integers(-9, 9, s).astype(kind) for s in (shape, updates))
        expected = data.copy()
        if form == "nd":
            for place, row in zip(at, rows, strict=True):
                expected[tuple(place)] = row
        else:
            for i, j in np.ndindex(at.shape):
                expected[at[i, j], j] = rows[i, j]
        tensor = _tensor(context, data)
        feeds = {"past": tensor, "at": _tensor(context, at), "rows": _tensor(context, rows)}
        context.dispatch(graph, feeds, {"present": tensor})
        np.testing.assert_array_equal(context.read_tensor(tensor).result(), expected)


def test_elements_in_place_and_others_behind_a_copy(context: MLContext):
    """x + y at the same element is in place; a transpose is not, nor is a reader that comes after
    the update. Results are the same as without donation."""
    rng = np.random.default_rng(7)
    data = rng.normal(size=(16, 16)).astype(np.float32)
    other = rng.normal(size=(16, 16)).astype(np.float32)

    def add(b, x, y):
        return {"present": b.add(x, y)}

    def transposed(b, x, y):
        return {"present": b.add(b.transpose(x), y)}

    def read_later(b, x, y):
        present = b.add(x, y)
        return {"present": present, "other": b.matmul(present, b.sub(b.transpose(x), y))}

    def unchanged(b, x, y):
        return {"present": b.reshape(b.identity(x), x.shape), "other": b.add(x, y)}

    def reshaped(b, x, y):
        turned = b.transpose(b.reshape(x, (1, 16, 16)), permutation=(0, 2, 1))
        return {"present": b.add(x, b.reshape(turned, (16, 16)))}

    def row(b, x, y):
        return {"present": b.add(x, b.slice(x, [8, 0], [1, 16]))}

    def column(b, x, y):
        return {"present": b.add(x, b.slice(x, [0, 3], [16, 1]))}

    expected = {
        reshaped: [data + data.T], row: [data + data[8:9]], column: [data + data[:, 3:4]],
        add: [data + other], transposed: [data.T + other],
        read_later: [data + other, (data + other) @ (data.T - other)],
        unchanged: [data, data + other],
    }
    for build, wanted in expected.items():
        builder = MLGraphBuilder(context)
        x, y = (_operand(builder, name, (16, 16)) for name in ("past", "y"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # not all of them read y
            graph = builder.build(build(builder, x, y), donate={"past": "present"}).result()
        if context.device_info.is_vulkan and build in (add, transposed):
            in_place = build is add
            (note,) = graph.report().donated
            assert note.endswith("written in place") == in_place, note
            assert graph.report().copies == (not in_place)
        tensor = _tensor(context, data)
        outputs = {"present": tensor}
        if len(wanted) > 1:
            outputs["other"] = _tensor(context, np.zeros_like(data))
        inputs = {"past": tensor, "y": _tensor(context, other)}
        context.dispatch(graph, {n: t for n, t in inputs.items() if n in graph.inputs}, outputs)
        for result, array in zip(outputs.values(), wanted, strict=True):
            read = context.read_tensor(result).result()
            assert_allclose(read, array, rtol=1e-5, atol=1e-5)


def test_a_graph_that_must_be_in_place(context: MLContext):
    """Graphs that would keep a copy are refused then."""
    def built(make):
        builder = MLGraphBuilder(context)
        past, other = _operand(builder, "past", (4, 4)), _operand(builder, "other", (4, 4))
        return builder.build({"y": make(builder, past, other)}, donate={"past": "y"}, in_place=True)

    def add(b, past, other):
        return b.add(past, other)

    def late(b, past, other):
        return b.add(b.transpose(past), other)

    if context.device_info.is_vulkan:
        assert built(add).result().report().donated[0].endswith("written in place")
        with pytest.raises(OperationError, match="'past' is not updated in place: a copy is"):
            built(late).result()
    else:
        for make in (add, late):
            with pytest.raises(OperationError, match="a copy of past is kept on the CPU"):
                built(make).result()
    # Without donations there is nothing to refuse.
    builder = MLGraphBuilder(context)
    x = _operand(builder, "x", (4,))
    builder.build({"y": builder.neg(x)}, in_place=True).result()


def test_donations_that_are_wrong(context: MLContext):
    builder = MLGraphBuilder(context)
    past, half = _operand(builder, "past", (4,)), _operand(builder, "half", (4,), "float16")
    short, second = _operand(builder, "short", (2,)), _operand(builder, "second", (4,))
    present = builder.add(builder.add(past, second), builder.concat([short, short], 0))
    outputs = {"present": present, "cast": builder.neg(half)}
    for donate, message in [
        ({"pasts": "present"}, "donate names 'pasts'"),
        ({"past": "presents"}, "donate names 'presents'"),
        ({"half": "present"}, "must be equal"),
        ({"short": "present"}, "must be equal"),
        ({"past": "present", "second": "present"}, "two inputs"),
        ({"past": 3}, "donate names"),
        (5, "mapping"),
    ]:
        with pytest.raises(TypeError, match=message):
            builder.build(outputs, donate=donate).result()
    builder.build(outputs, donate={"past": "present"}).result()


def test_only_donated_pairs_share_a_tensor(context: MLContext):
    builder = MLGraphBuilder(context)
    a, b = _operand(builder, "a", (4,)), _operand(builder, "b", (4,))
    graph = builder.build(
        {"x": builder.add(a, b), "y": builder.sub(a, b)}, donate={"a": "x"}
    ).result()
    one, two, three = (_tensor(context, np.full(4, n, np.float32)) for n in (1, 2, 3))
    for inputs, outputs in [
        ({"a": one, "b": two}, {"x": two, "y": three}),
        ({"a": one, "b": two}, {"x": three, "y": one}),
        ({"a": one, "b": one}, {"x": two, "y": three}),
        ({"a": one, "b": two}, {"x": three, "y": three}),
        ({"a": one, "b": one}, {"x": one, "y": three}),
        ({"a": one, "b": two}, {"x": one, "y": one}),
    ]:
        with pytest.raises(TypeError, match="more than once"):
            context.dispatch(graph, inputs, outputs)
    context.dispatch(graph, {"a": one, "b": two}, {"x": one, "y": three})
    assert context.read_tensor(one).result().tolist() == [3] * 4
    assert context.read_tensor(three).result().tolist() == [-1] * 4


def test_a_saved_graph_keeps_its_donations(context: MLContext):
    graph = _scatter_graph(context)
    context.save_graph("donation test", graph).result()
    loaded = context.load_graph("donation test").result()
    data = np.zeros((6, 4), np.float32)
    tensor = _tensor(context, data)
    at = _tensor(context, np.array([[1], [2]], np.int32))
    rows = _tensor(context, np.ones((2, 4), np.float32))
    context.dispatch(loaded, {"past": tensor, "at": at, "rows": rows}, {"present": tensor})
    assert context.read_tensor(tensor).result().sum() == 8
    assert loaded.report().donated == graph.report().donated


def _random_outputs(b, x, y, rng):
    """Some of the results of random operators on matrices [8, 8]."""
    values, computed = [x, y], []
    for _ in range(int(rng.integers(3, 9))):
        p, q = (values[i] for i in rng.integers(0, len(values), 2))
        match rng.integers(0, 8):
            case 0:
                made = b.add(p, q)
            case 1:
                made = b.transpose(p)
            case 2:
                made = b.mul(p, b.slice(q, [int(rng.integers(8)), 0], [1, 8]))
            case 3:
                made = b.concat([b.slice(p, [4, 0], [4, 8]), b.slice(q, [0, 0], [4, 8])], 0)
            case 4:
                made = b.matmul(b.tanh(p), b.tanh(q))
            case 5:
                at = b.constant(rng.integers(0, 8, (2, 1)).astype(np.int32))
                made = b.scatter_nd(p, at, b.slice(q, [2, 0], [2, 8]))
            case 6:
                made = b.reshape(b.relu(b.reshape(p, [64])), [8, 8])
            case _:
                made = b.sub(b.reshape(p, [8, 8]), b.reduce_max(q, axes=[0], keep_dimensions=True))
        values.append(made)
        computed.append(made)
    chosen = rng.permutation(len(computed))[: rng.integers(1, 4)]
    return {f"out{n}": computed[i] for n, i in enumerate(chosen)}


@pytest.mark.parametrize("seed", range(10))
def test_random_graphs_give_the_same_with_donations(context: MLContext, seed):
    arrays = np.random.default_rng(seed).normal(size=(2, 8, 8)).astype(np.float32)
    results = []
    for donated in (False, True):
        rng = np.random.default_rng(seed)
        builder = MLGraphBuilder(context)
        names = [_operand(builder, name, (8, 8)) for name in ("x", "y")]
        outputs = _random_outputs(builder, *names, rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # not all of them read both
            used = builder.build(outputs)
            donate = None
            if donated:
                inputs = list(used.result().inputs)
                again = MLGraphBuilder(context)
                names = [_operand(again, name, (8, 8)) for name in ("x", "y")]
                outputs = _random_outputs(again, *names, np.random.default_rng(seed))
                donate = dict(zip(rng.permutation(inputs).tolist(), outputs, strict=False))
                used = again.build(outputs, donate=donate)
            graph = used.result()
        given = {"x": arrays[0], "y": arrays[1]}
        sources = {name: _tensor(context, given[name]) for name in graph.inputs}
        targets = {name: _tensor(context, np.zeros((8, 8), np.float32)) for name in outputs}
        for past, present in (donate or {}).items():
            targets[present] = sources[past]
        context.dispatch(graph, sources, targets)
        results.append({n: context.read_tensor(t).result() for n, t in targets.items()})
    for name, array in results[0].items():
        assert_allclose(results[1][name], array, rtol=1e-5, atol=1e-5)
