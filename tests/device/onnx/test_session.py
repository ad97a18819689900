"""Models that run: ``load``, ``Session`` and ONNX's backend interface, on both devices."""

import asyncio
import gc
import time

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import webnn_vk
from tests.support.contexts import open_context
from tests.support.onnx_models import classifier, info, model, reference
from webnn_vk.onnx import InvalidModelError, Session, UnsupportedModelError, build_operands, load

node = helper.make_node


def image(rng, batch=2):
    return rng.normal(size=(batch, 3, 8, 8)).astype(np.float32)


def close(got, expected, bound=1e-5):
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= bound * max(1e-30, np.abs(expected).max())


def test_load(context, rng):
    proto, x = classifier(rng), image(rng)
    graph = load(proto, context, {"image": x.shape}).result()
    assert list(graph.inputs) == ["image"]
    assert list(graph.outputs) == ["scores"]
    got = context.compute(graph, {"image": x})["scores"]
    close(got, reference(proto, {"image": x})[0])
    on_cpu = context.device_info.name.startswith("CPU")
    assert {s.device for s in graph.report().steps} == {"cpu" if on_cpu else "vulkan"}


def test_load_is_awaitable(cpu_context, rng):
    async def main():
        return await load(classifier(rng), cpu_context, {"image": (1, 3, 8, 8)})

    assert list(asyncio.run(main()).outputs) == ["scores"]


def test_load_rejects(cpu_context, tmp_path, rng):
    assert isinstance(load(b"x", cpu_context).exception(), InvalidModelError)
    assert isinstance(load(classifier(rng), cpu_context).exception(), UnsupportedModelError)
    assert isinstance(load(tmp_path / "no.onnx", cpu_context).exception(), FileNotFoundError)


def test_paths_and_external_data(context, tmp_path, rng):
    proto, x = classifier(rng), image(rng)
    expected = reference(proto, {"image": x})[0]
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights", size_threshold=0)
    assert (tmp_path / "weights").stat().st_size > 1000
    graph = load(str(path), context, {"image": x.shape}).result()
    close(context.compute(graph, {"image": x})["scores"], expected)


def test_on_an_existing_builder(context, rng):
    proto, x = classifier(rng), image(rng)
    builder = webnn_vk.MLGraphBuilder(context)
    own = builder.input("own", {"data_type": "float32", "shape": x.shape})
    scores = build_operands(proto, builder, {"image": builder.mul(own, builder.constant(
        "float32", 2))})["scores"]
    graph = builder.build({"best": builder.arg_max(scores, 1)}).result()
    expected = reference(proto, {"image": 2 * x})[0].argmax(axis=1)
    np.testing.assert_array_equal(context.compute(graph, {"own": x})["best"], expected)


def test_outputs_that_are_inputs_constants_or_twice_the_same(context):
    nodes = [node("Identity", ["x"], ["same"]), node("Neg", ["x"], ["a"]),
             node("Identity", ["a"], ["b"])]
    proto = model(nodes, [info("x", [2])], [info(n, [2]) for n in ("same", "a", "b", "k")],
                  {"k": np.ones(2, np.float32)})
    graph = load(proto, context).result()
    got = context.compute(graph, {"x": np.array([1, 2], np.float32)})
    assert {n: v.tolist() for n, v in got.items()} == {
        "same": [1, 2], "a": [-1, -2], "b": [-1, -2], "k": [1, 1],
    }


def test_session_compiles_per_shape_and_keeps_the_last(context, rng):
    proto = classifier(rng)
    session = Session(proto, context, keep=2)
    (argument,) = session.get_inputs()
    assert (argument.name, argument.type, argument.shape) == (
        "image", "tensor(float)", ["n", 3, 8, 8],
    )
    assert [a.name for a in session.get_outputs()] == ["scores"]
    made = []
    for batch in (1, 2, 1, 3, 2):
        x = image(rng, batch)
        (got,) = session.run(None, {"image": x})
        close(got, reference(proto, {"image": x})[0])
        made.append(session.graph({"image": x}))
    assert made[0] is made[2]
    assert made[1] is not made[4]  # the third shape took its place


def test_session_packs_weights_once_and_shares_them(vulkan, tmp_path, rng):
    """Weights that kernels read unchanged, weights they read packed, and folded ones."""
    with open_context() as context:  # of its own: its memory is counted
        _packs_once(context, tmp_path, rng)


def _packs_once(vulkan_context, tmp_path, rng):
    shapes = (512, 256), (256, 256), (256, 256)
    table, w, v = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    nodes = [
        node("Gather", ["table", "ids"], ["x"]), node("MatMul", ["x", "w"], ["a"]),
        node("Mul", ["v", "two"], ["v2"]), node("MatMul", ["a", "v2"], ["y"]),
    ]
    proto = model(nodes, [info("ids", ["n"], TensorProto.INT64)], [info("y", ["n", 256])],
                  {"table": table, "w": w, "v": v, "two": np.array(2, np.float32)})
    copied = onnx.ModelProto.FromString(proto.SerializeToString())  # save() changes it
    onnx.save(copied, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    weights = table.nbytes + w.nbytes + v.nbytes
    device = vulkan_context._state.device
    # GPUs read the weights of one row as they lie.
    one_row = [1] if device.profile.device_type == "cpu" else []
    for source in (proto, tmp_path / "m.onnx"):
        session = Session(source, vulkan_context)
        before, used = device.memory_in_use(), []
        for rows in (5, 12, 7, 9, *one_row):
            ids = rng.integers(0, 512, rows)
            close(session.run(["y"], {"ids": ids})[0], table[ids] @ w @ (2 * v), 1e-4)
            used.append(device.memory_in_use() - before)
            # No less is packed than for a graph of one shape.
            one = load(proto, vulkan_context, {"ids": (rows,)}).result()
            report = session.graph({"ids": ids}).report()
            assert report.packed_bytes == one.report().packed_bytes >= w.nbytes
            del one
        assert weights <= used[0] <= used[-1] < 1.2 * weights
        del session
        gc.collect()
        # Graphs are freed on the timeline's thread.
        end = time.monotonic() + 60
        while device.memory_in_use() >= before + 0.2 * weights and time.monotonic() < end:
            time.sleep(0.01)
        assert device.memory_in_use() < before + 0.2 * weights


def test_sessions_of_equal_shapes_and_other_weights(context, rng):
    """One graph's packed weights are not the other's, wherever their arrays are."""
    x = rng.normal(size=(3, 128)).astype(np.float32)
    held = []
    for _ in range(4):
        w = rng.normal(size=(128, 128)).astype(np.float32)
        proto = model([node("MatMul", ["x", "w"], ["y"])], [info("x", ["n", 128])],
                      [info("y", ["n", 128])], {"w": w})
        session = Session(proto.SerializeToString(), context)
        close(session.run(["y"], {"x": x})[0], x @ w, 1e-4)
        held.append(session.graph({"x": x}))
        del session, proto
        gc.collect()


def test_session_checks_feeds(cpu_context, rng):
    session = Session(classifier(rng), cpu_context)
    with pytest.raises(ValueError, match="feeds lack .'image'"):
        session.run(None, {})
    with pytest.raises(ValueError, match="unknown .'other'"):
        session.run(None, {"image": image(rng), "other": 1})
    with pytest.raises(ValueError, match="no output 'other'"):
        session.run(["other"], {"image": image(rng)})
    wrong = r"'image': float64\[2, 3, 8, 8\] .* float32\[n, 3, 8, 8\]"
    with pytest.raises(ValueError, match=wrong):
        session.run(None, {"image": image(rng).astype(np.float64)})


def test_values_that_decide_shapes_are_taken_from_the_feeds(context):
    proto = model([node("Reshape", ["x", "s"], ["y"])],
                  [info("x", [6]), info("s", [2], TensorProto.INT64)], [info("y", None)])
    session = Session(proto, context)
    x = np.arange(6, dtype=np.float32)
    for shape in ([2, 3], [3, -1], [2, 3]):
        (got,) = session.run(None, {"x": x, "s": np.array(shape)})
        np.testing.assert_array_equal(got, x.reshape(shape))


def test_types_at_the_border(context):
    kinds = {"b": bool, "d": np.float64, "f": ml_dtypes.bfloat16, "h": np.float16, "i": np.int64}
    ports = {n: helper.np_dtype_to_tensor_dtype(np.dtype(k)) for n, k in kinds.items()}
    nodes = [node("Identity", [n], [n + "2"]) for n in kinds if n != "b"]
    nodes.append(node("Not", ["b"], ["b2"]))
    proto = model(nodes, [info(n, [3], p) for n, p in ports.items()],
                  [info(n + "2", [3], p) for n, p in ports.items()])
    values = np.array([0, 1, 1])
    session = Session(proto, context, narrow_double=True)
    got = session.run(None, {n: values.astype(k) for n, k in kinds.items()})
    for (name, kind), array in zip(kinds.items(), got, strict=True):
        assert array.dtype == kind
        np.testing.assert_array_equal(array, ~values.astype(bool) if name == "b" else values)


def test_the_backend_interface(monkeypatch, rng):
    from webnn_vk import onnx_backend

    monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu")
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("CUDA")
    with pytest.raises(ValueError, match="only CPU"):
        onnx_backend.prepare(classifier(rng), "CUDA")
    proto, x = classifier(rng), image(rng)
    outputs = onnx_backend.run_model(proto, [x])
    close(outputs.scores, reference(proto, {"image": x})[0])
    a, b = np.array([1, 2], np.int32), np.array([3, 4], np.int32)
    (total,) = onnx_backend.run_node(node("Add", ["a", "b"], ["y"]), [a, b])
    np.testing.assert_array_equal(total, [4, 6])
