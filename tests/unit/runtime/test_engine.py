"""CPU steps on ONNX Runtime: which engine computes a step, in which memory, and error messages."""

import re
import sys
import threading

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime.capi.onnxruntime_pybind11_state as onnx_errors

import webnn_vk
from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from webnn_vk import MLGraphBuilder, NotSupportedError, OperationError, Settings, ml
from webnn_vk.compiler.types.data_types import ALL_TYPES
from webnn_vk.runtime import engine_selection, onnx_engine
from webnn_vk.runtime.engine_selection import find_engine


def built(context, describe, **inputs):
    """A graph of ``describe(builder, *operands)``, a mapping of outputs."""
    builder = MLGraphBuilder(context)
    operands = [
        builder.input(name, {"data_type": a.dtype.name, "shape": a.shape})
        for name, a in inputs.items()
    ]
    return builder.build(describe(builder, *operands)).result()


def dispatched(context, graph, x, times=1):
    """The outputs through tensors."""
    source = context.create_tensor(
        {"data_type": "float32", "shape": x.shape, "writable": True}
    ).result()
    context.write_tensor(source, x)
    targets = {
        name: context.create_tensor(
            {"data_type": d.data_type, "shape": d.shape, "readable": True}
        ).result()
        for name, d in graph.outputs.items()
    }
    for _ in range(times):
        context.dispatch(graph, {"x": source}, targets)
    return {name: context.read_tensor(tensor).result() for name, tensor in targets.items()}


X = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)


def test_the_report_says_who_computes_what(engine_context):
    graph = built(engine_context, lambda b, x: {
        "y": b.pow(b.cast(b.relu(x), "int32"), b.cast(x, "int32")), "z": b.reshape(x, [8]),
    }, x=X)
    kernels = {line.operators[0]: line.kernel for line in graph.report().lines}
    assert kernels == {
        "relu": "onnxruntime", "cast": "onnxruntime", "pow": "numpy", "reshape": "onnxruntime",
    }
    why = {line.operators[0]: line.variant for line in graph.report().lines}
    assert "wrap around" in why["pow"] and why["relu"] == "region 0"
    assert "engine" in graph.report().build_seconds
    made = engine_context.compute(graph, {"x": X})
    whole = np.trunc(X).astype(np.int64)
    expected = np.where(whole < 0, 0, np.maximum(whole, 0) ** np.maximum(whole, 0))
    np.testing.assert_array_equal(made["y"], expected)
    np.testing.assert_array_equal(made["z"], X.reshape(-1))
    alone = built(engine_context, lambda b, x: {"z": b.reshape(x, [8])}, x=X)
    assert [(x.kernel, x.variant) for x in alone.report().lines] == [("numpy", "a view")]


@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_types_without_a_kernel_of_the_engine(engine_context, data_type):
    """They are computed in others that have one."""
    limits = np.iinfo(data_type) if "int" in data_type else np.finfo(data_type)
    x = np.array([[limits.max, limits.min], [1, limits.max]], data_type)
    condition = np.array([[1, 0], [0, 1]], np.uint8)
    builder = MLGraphBuilder(engine_context)
    operand = builder.input("x", {"data_type": data_type, "shape": [2, 2]})
    graph = builder.build({
        "chosen": builder.where(
            builder.constant(condition), operand, builder.reverse(operand)
        ),
        "upper": builder.triangular(operand, upper=True),
    }).result()
    assert {line.kernel for line in graph.report().lines} == {"onnxruntime"}
    made = engine_context.compute(graph, {"x": x})
    np.testing.assert_array_equal(made["chosen"], np.where(condition, x, x[::-1, ::-1]))
    np.testing.assert_array_equal(made["upper"], np.triu(x))


def test_as_the_reference_by_both_ways(engine_context, cpu_context):
    weight = np.random.default_rng(0).standard_normal((4, 300)).astype(np.float32)

    def describe(b, x):
        product = b.matmul(x, b.constant(weight))
        return {"y": b.softmax(product, 1), "z": b.reduce_sum(product, axes=[1])}

    expected = cpu_context.compute(built(cpu_context, describe, x=X), {"x": X})
    graph = built(engine_context, describe, x=X)
    for name, array in engine_context.compute(graph, {"x": X}).items():
        assert_allclose(array, expected[name], rtol=1e-5, atol=1e-6)
    for name, array in dispatched(engine_context, graph, X, times=2).items():
        assert_allclose(array, expected[name], rtol=1e-5, atol=1e-6)


def test_constant_tensors_are_bound(engine_context):
    tensor = engine_context.create_constant_tensor(
        {"data_type": "float32", "shape": [4]}, np.arange(4, dtype=np.float32)
    ).result()
    graph = built(engine_context, lambda b, x: {"y": b.mul(x, b.constant(tensor))}, x=X)
    got = engine_context.compute(graph, {"x": X})["y"]
    np.testing.assert_array_equal(got, X * np.arange(4, dtype=np.float32))


def test_weights_are_not_copied(engine_context):
    weight = np.ones((4, 300), np.float32)
    graph = built(engine_context, lambda b, x: {"y": b.add(
        b.constant(np.ones((300,), np.float32)), b.matmul(x, b.constant(weight)))}, x=X)
    executable = graph._executable
    own = {executable.constant(n).__array_interface__["data"][0]
           for n in range(len(executable.program.constants))}
    (region,) = [
        run.__self__ for run in executable._runs[0].__self__._runs if hasattr(run, "__self__")
    ]
    used = {a.__array_interface__["data"][0] for a in region._arrays.values()}
    assert len(used) == 2 and used <= own


@pytest.mark.parametrize("known", [False, True])
def test_results_are_the_callers_own(known):
    """No result shares memory with inputs, other results or weights, and each outlives all others.
    """
    size = 70_000  # more than one thread computes without an arena
    x = np.linspace(-1, 1, size, dtype=np.float32)
    kept = x.copy()
    with open_context("cpu", cpu_engine="onnxruntime") as context:
        graph = built(context, lambda b, x: {
            "z": b.reshape(b.reshape(x, [2, size // 2]), [size]), "y": b.identity(x),
            "again": b.relu(b.identity(x)), "a": b.relu(x),
            "one": b.reduce_max(b.cast(b.relu(x), "int32")),
            **({"known": b.relu(b.constant(kept))} if known else {}),
        }, x=x)
        # A result known at build time is copied, by a step of our own.
        assert (graph._executable._whole is None) == known
        results = [context.compute(graph, {"x": x}) for _ in range(2)]
        for result in results:
            assert list(result) == ["z", "y", "again", "a", "one", "known"][: 5 + known]
        arrays = [x, kept, *(array for result in results for array in result.values())]
        for number, array in enumerate(arrays):
            assert array.flags.writeable
            assert not any(np.shares_memory(array, other) for other in arrays[number + 1 :])
        for array in (kept, *results[0].values()):
            array.fill(-1)
        del graph
    relu = np.maximum(np.linspace(-1, 1, size, dtype=np.float32), 0)
    for name, expected in (
        ("z", x), ("y", x), ("again", relu), ("a", relu), ("one", 1),
    ):
        np.testing.assert_array_equal(results[1][name], expected, err_msg=name)
    if known:
        np.testing.assert_array_equal(results[1]["known"], relu)
    np.testing.assert_array_equal(x, np.linspace(-1, 1, size, dtype=np.float32))


@pytest.mark.parametrize("how", ["unaligned", "strided", "read-only", "list", "bytes", "flat"])
def test_inputs_however_they_lie(engine_context, how):
    graph = built(engine_context, lambda b, x: {"y": b.exp(x)}, x=X)
    assert graph._executable._whole is not None
    unaligned = np.zeros(X.nbytes + 1, np.uint8)[1:]
    unaligned[:] = X.reshape(-1).view(np.uint8)
    given = {
        "unaligned": unaligned.view(np.float32).reshape(X.shape),
        "strided": np.repeat(X, 2, 1)[:, ::2],
        "read-only": np.frombuffer(X.tobytes(), np.float32).reshape(X.shape),
        "list": X.tolist(),
        "bytes": X.tobytes(),
        "flat": X.reshape(-1),
    }[how]
    got = engine_context.compute(graph, {"x": given})["y"]
    assert_allclose(got, np.exp(X), rtol=1e-5)
    promised = engine_context.compute_async(graph, {"x": given}).result()["y"]
    np.testing.assert_array_equal(promised, got)


def test_several_threads_at_once(engine_context):
    graph = built(engine_context, lambda b, x: {"y": b.exp(x)}, x=X)
    wrong = []

    def work(factor):
        for _ in range(50):
            got = engine_context.compute(graph, {"x": X * factor})["y"]
            if not np.allclose(got, np.exp(X * factor), rtol=1e-5):
                wrong.append(factor)

    threads = [threading.Thread(target=work, args=(np.float32(n),)) for n in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_errors_name_the_operator(engine_context, monkeypatch):
    graph = built(engine_context, lambda b, x: {"y": b.exp(x, label="wave")}, x=X)
    region = graph._executable._runs[0].__self__._runs[0].__self__

    class Failing:
        def run(self, outputs, inputs):
            raise RuntimeError(
                "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while "
                f"running Exp node. Name:'0:Exp' Status Message: {message}"
            )

        def run_with_iobinding(self, binding):
            self.run(None, None)

        def io_binding(self):
            return session.io_binding()

    session, message = region._session, "no luck"
    monkeypatch.setattr(region, "_session", Failing())
    with pytest.raises(OperationError, match=r"exp \[wave\]: ONNX Runtime: .*no luck"):
        engine_context.compute(graph, {"x": X})
    with pytest.raises(OperationError, match=r"exp \[wave\]: ONNX Runtime: .*no luck"):
        dispatched(engine_context, graph, X)
    message = "Failed to allocate memory for requested buffer of size 9"
    with pytest.raises(OperationError, match="compute: out of memory: ONNX Runtime: .*Failed to"):
        engine_context.compute(graph, {"x": X})


def resampled(b, x):
    """ONNX Runtime moves the transpose behind the Resize, and refuses that when it runs."""
    early = b.exp(x, label="early")
    small = b.resample2d(
        b.transpose(early, permutation=[0, 2, 3, 1]), mode="linear", sizes=[2, 1], label="small"
    )
    return {"y": b.relu(small), "early": early}


PIXELS = np.linspace(-1, 1, 2 * 4 * 5 * 8, dtype=np.float32).reshape(2, 4, 5, 8)
CALLS = {
    "compute": lambda context, graph: context.compute(graph, {"x": PIXELS}),
    "compute_async": lambda context, graph: context.compute_async(graph, {"x": PIXELS}).result(60),
    "dispatch": lambda context, graph: dispatched(context, graph, PIXELS, times=2),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_step_refused_in_a_run_goes_to_numpy(engine_context, cpu_context, call):
    expected = cpu_context.compute(built(cpu_context, resampled, x=PIXELS), {"x": PIXELS})
    graph = built(engine_context, resampled, x=PIXELS)
    assert {line.kernel for line in graph.report().lines} == {"onnxruntime"}
    for _ in range(2):
        for name, array in CALLS[call](engine_context, graph).items():
            assert_allclose(array, expected[name], rtol=1e-5)
    graph.destroy()
    made = {line.operators[0]: (line.kernel, line.variant) for line in graph.report().lines}
    kernel, why = made.pop("resample2d [small]")
    assert kernel == "numpy" and re.match("ONNX Runtime: Resize: .*'Linear' mode only", why)
    assert {kernel for kernel, _ in made.values()} == {"onnxruntime"}


def test_later_runs_do_not_ask_again(engine_context, monkeypatch):
    failures = []
    failure = onnx_engine._Region._failure
    monkeypatch.setattr(
        onnx_engine._Region, "_failure",
        lambda self, error: failures.append(error) or failure(self, error),
    )
    graph = built(engine_context, resampled, x=PIXELS)
    for call in CALLS.values():
        call(engine_context, graph)
    assert len(failures) == 1


def test_other_sizes_leave_a_refused_step_to_numpy():
    draft = {"cpu_engine": "onnxruntime", "experimental": ["dynamic-shapes"]}
    with open_context("cpu", **draft) as context:
        builder = MLGraphBuilder(context)
        n = webnn_vk.MLDynamicDimension("n", 2)
        x = builder.input("x", {"data_type": "float32", "shape": [n, 4, 5, 8]})
        graph = builder.build(resampled(builder, x)).result()
        for count in (2, 1):
            context.compute(graph, {"x": PIXELS[:count]})
            assert [line.kernel for line in graph.report().lines].count("numpy") == 1


def failed(why, name="0:Exp"):
    return (
        "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Exp node. "
        f"Name:'{name}' Status Message: {why}"
    )


class Refusing:
    """A session that fails after it has written some of its results."""

    def __init__(self, session, error):
        self.session, self.error = session, error

    def io_binding(self):
        return self.session.io_binding()

    def run(self, outputs, inputs):
        raise self.error

    def run_with_iobinding(self, binding):
        self.session.run_with_iobinding(binding)
        for output in binding.get_outputs():
            output.numpy()[...] = np.nan
        raise self.error


def region_of(graph):
    return graph._executable._runs[0].__self__._runs[0].__self__


@pytest.mark.parametrize("call", ["compute", "dispatch"])
def test_a_refusal_that_names_no_step(engine_context, monkeypatch, call):
    graph = built(engine_context, lambda b, x: {"y": b.exp(b.neg(x)), "z": b.abs(x)}, x=X)
    error = onnx_errors.RuntimeException(failed("no", "fused"))
    monkeypatch.setattr(region_of(graph), "_session", Refusing(region_of(graph)._session, error))
    made = engine_context.compute(graph, {"x": X}) if call == "compute" else dispatched(
        engine_context, graph, X)
    assert_allclose(made["y"], np.exp(-X), rtol=1e-6)
    np.testing.assert_array_equal(made["z"], np.abs(X))
    assert {(s.kernel, s.variant) for s in graph.report().steps} == {
        ("numpy", "ONNX Runtime: Exp: no")
    }


@pytest.mark.parametrize(("error", "message"), [
    # Memory, ours, and of a call.
    (onnx_errors.Fail(failed("Failed to allocate memory")), "Exp: Failed to allocate"),
    (onnx_errors.RuntimeException(failed("std::bad_alloc")), "Exp: std::bad_alloc"),
    (ValueError("ours"), "ours"),
    (onnx_errors.InvalidArgument("[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid"), "Got"),
])
def test_other_failures_are_no_refusal(engine_context, monkeypatch, error, message):
    graph = built(engine_context, lambda b, x: {"y": b.exp(x)}, x=X)
    region = region_of(graph)
    with monkeypatch.context() as patched:
        patched.setattr(region, "_session", Refusing(region._session, error))
        for call in (lambda: engine_context.compute(graph, {"x": X}),
                     lambda: dispatched(engine_context, graph, X)):
            with pytest.raises(OperationError, match=f"ONNX Runtime: {message}"):
                call()
    assert graph.report().lines[0].kernel == "onnxruntime"
    assert_allclose(engine_context.compute(graph, {"x": X})["y"], np.exp(X), rtol=1e-6)


def test_no_memory_for_a_session(engine_context, monkeypatch):
    """This is not a reason to leave an operator to NumPy, now or later."""
    import onnxruntime

    def fails(*arguments, **options):
        raise RuntimeError("[ONNXRuntimeError] : 1 : FAIL : Failed to allocate memory for 9 bytes")

    with monkeypatch.context() as patched:
        patched.setattr(onnxruntime, "InferenceSession", fails)
        with pytest.raises(OperationError, match="out of memory: ONNX Runtime: Failed to allocate"):
            built(engine_context, lambda b, x: {"y": b.exp(x)}, x=X)
    graph = built(engine_context, lambda b, x: {"y": b.exp(x)}, x=X)
    assert graph.report().lines[0].kernel == "onnxruntime"


def test_after_the_end():
    with open_context("cpu", cpu_engine="onnxruntime") as context:
        graph = built(context, lambda b, x: {"y": b.exp(x)}, x=X)
    with pytest.raises(webnn_vk.InvalidStateError):
        context.compute(graph, {"x": X})


def test_nothing_is_printed(engine_context, capfd):
    graph = built(
        engine_context, lambda b, x: {"y": b.max(b.cast(x, "uint64"), b.cast(x, "uint64"))}, x=X
    )
    engine_context.compute(graph, {"x": abs(X)})
    assert capfd.readouterr() == ("", "")


def test_the_engine_is_named():
    for name, shown in (("numpy", "NumPy"), ("onnxruntime", "ONNX Runtime"), ("auto", "ONNX")):
        with open_context("cpu", cpu_engine=name) as context:
            assert shown in context.device_info.name


def test_without_the_packages(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert find_engine("auto") is engine_selection.NUMPY
    assert find_engine("numpy") is engine_selection.NUMPY
    with pytest.raises(NotSupportedError, match=r"onnxruntime: pip install 'webnn_vk\[cpu\]'"):
        find_engine("onnxruntime")
    asked = Settings(device="cpu", cpu_engine="onnxruntime")
    with pytest.raises(NotSupportedError, match="cpu_engine"):
        ml.create_context(settings=asked).result(60)


def test_packages_that_are_broken(monkeypatch, tmp_path):
    (tmp_path / "onnxruntime").mkdir()
    (tmp_path / "onnxruntime" / "__init__.py").write_text("raise ImportError('no library')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "onnxruntime")
    with open_context("cpu", cpu_engine="auto") as context:
        with pytest.warns(RuntimeWarning, match="can't be loaded"):
            graph = built(context, lambda b, x: {"y": b.exp(x)}, x=X)
        assert graph.report().lines[0].kernel == "numpy"
    with open_context("cpu", cpu_engine="onnxruntime") as context:
        with pytest.raises(OperationError, match="can't be loaded"):
            built(context, lambda b, x: {"y": b.exp(x)}, x=X)


def test_the_setting():
    assert Settings.from_environment({"WEBNN_VK_CPU_ENGINE": "numpy"}).cpu_engine == "numpy"
    assert Settings().cpu_engine == "auto"
    with pytest.raises(ValueError, match="cpu_engine: 'fast' is not one of auto, numpy"):
        Settings(cpu_engine="fast")
    with pytest.raises(ValueError, match="WEBNN_VK_CPU_ENGINE: 'fast'"):
        Settings.from_environment({"WEBNN_VK_CPU_ENGINE": "fast"})
