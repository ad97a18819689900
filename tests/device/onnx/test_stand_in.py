"""``Session`` in place of ``onnxruntime.InferenceSession``: the same calls on both."""

import ctypes
import os
import threading

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from tests.support.onnx_models import classifier, info, model
from webnn_vk.onnx import Session
from webnn_vk.support.errors import OperationError

onnxruntime = pytest.importorskip("onnxruntime")
node = helper.make_node
CPU = ["CPUExecutionProvider"]
FEEDS = {"image": np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype(np.float32)}


@pytest.fixture(scope="module")
def proto():
    made = classifier(np.random.default_rng(0))
    made.producer_name, made.domain, made.model_version = "who", "org.example", 7
    made.doc_string, made.graph.doc_string = "what it is", "what its graph is"
    helper.set_model_props(made, {"classes": "a,b"})
    return made


@pytest.fixture
def both(proto, context):
    peer = onnxruntime.InferenceSession(proto.SerializeToString(), providers=CPU)
    return Session(proto.SerializeToString(), context), peer


def same(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert_allclose(a, b, atol=1e-5 * max(1, np.abs(b).max()))


def test_run_in_all_its_forms(both):
    options = onnxruntime.RunOptions()
    calls = (
        lambda s: s.run(None, FEEDS),
        lambda s: s.run([], FEEDS),
        lambda s: s.run(["scores"], FEEDS),
        lambda s: s.run(("scores", "scores"), FEEDS),
        lambda s: s.run(None, FEEDS, options),
        lambda s: s.run(output_names=None, input_feed=FEEDS, run_options=options),
        lambda s: s.run(None, {"image": FEEDS["image"].tolist()}),
        lambda s: s.run(None, {"image": FEEDS["image"][::-1, :, ::-1]}),
    )
    for call in calls:
        same(*map(call, both))


def test_what_it_says_of_the_model(both):
    def ports(session):
        asked = (session.get_inputs, session.get_outputs, session.get_overridable_initializers)
        return [[(a.name, a.type, a.shape) for a in ask()] for ask in asked]

    def about(session):
        meta = session.get_modelmeta()
        return [getattr(meta, name) for name in (
            "producer_name", "graph_name", "domain", "description", "graph_description",
            "version", "custom_metadata_map",
        )]

    for ask in (ports, about):
        assert ask(both[0]) == ask(both[1])
    ours, peer = both
    on_cpu = "CPU" in repr(ours)
    assert ours.get_providers()[-1:] == peer.get_providers()
    assert (ours.get_providers() == CPU) == on_cpu
    assert ours.get_provider_options() == {name: {} for name in ours.get_providers()}
    for part in ("'image' float32[n, 3, 8, 8]", "'scores' float32[n, 5]", "a model"):
        assert part in repr(ours)


@pytest.mark.parametrize("names, feeds", [
    (None, {}),
    (None, {"image": FEEDS["image"], "other": FEEDS["image"]}),
    (["other"], FEEDS),
    (None, {"image": FEEDS["image"].astype(np.float64)}),
    (None, {"image": FEEDS["image"].astype(np.int32)}),
    (None, {"image": FEEDS["image"][0]}),
    (None, {"image": FEEDS["image"][:, :2]}),
    (None, {"image": np.full((2, 3, 8, 8), "text")}),
    (None, {"image": [[1, 2], [3]]}),
    (None, {"image": None}),
], ids=str)
def test_what_it_refuses_is_said_of_the_feed(names, feeds, both):
    ours, peer = both
    with pytest.raises(Exception):  # noqa: B017 (of no common base)
        peer.run(names, feeds)
    with pytest.raises(ValueError) as caught:
        ours.run(names, feeds)
    message = str(caught.value)
    assert "can't be taken" not in message
    if names is None:
        assert "float32[n, 3, 8, 8]" in message and "image" in message
    else:
        assert "'other'" in message and "'scores'" in message


def types_model():
    kinds = {"f": np.float32, "d": np.float64, "h": np.float16, "i": np.int64, "n": np.int32,
             "u": np.uint8, "b": np.bool_}
    ports = {n: helper.np_dtype_to_tensor_dtype(np.dtype(k)) for n, k in kinds.items()}
    return model([node("Identity", [n], [n + "2"]) for n in kinds],
                 [info(n, ["n"], p) for n, p in ports.items()],
                 [info(n + "2", ["n"], p) for n, p in ports.items()]), kinds


PLAIN = {n: np.zeros(2, k) for n, k in types_model()[1].items()}


@pytest.mark.parametrize("name, given, expected", [
    ("f", [1, 2.5], [1, 2.5]), ("f", (1, 2), [1, 2]), ("f", [0.1, 1], np.float32([0.1, 1])),
    ("f", np.float16([0.5, 2]), [0.5, 2]), ("f", np.int8([1, -2]), [1, -2]),
    ("f", np.uint16([1, 65535]), [1, 65535]), ("f", np.array([True, False]), [1, 0]),
    ("f", np.array([1, 2], ml_dtypes.bfloat16), [1, 2]), ("f", np.array([1, 2], ">f4"), [1, 2]),
    ("d", np.float32([0.1, 2]), np.float32([0.1, 2])), ("d", np.int64([1, 2**53]), [1, 2**53]),
    ("i", [1, -2], [1, -2]), ("i", np.int32([1, -2]), [1, -2]), ("i", [2.0, 3], [2, 3]),
    ("i", np.uint32([1, 2**32 - 1]), [1, 2**32 - 1]), ("n", [2**31 - 1, 0], [2**31 - 1, 0]),
    ("n", np.int8([-1, 5]), [-1, 5]), ("u", [0, 255], [0, 255]),
    ("u", np.array([True, False]), [1, 0]), ("b", [True, False], [True, False]),
])
def test_what_numpy_converts_without_loss_is_taken(name, given, expected, context):
    proto, kinds = types_model()
    session = Session(proto, context, narrow_double=True)
    (got,) = session.run([name + "2"], {**PLAIN, name: given})
    assert got.dtype == kinds[name]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name, given", [
    ("f", np.float64([1, 2])), ("f", np.int32([1, 2])), ("h", np.float32([1, 2])),
    ("d", np.int64([1, 2**53 + 1])), ("i", [1.5, 2]), ("i", np.uint64([1, 2])),
    ("i", np.float32([1, 2])), ("n", [2**31, 0]), ("n", np.int64([1, 2])), ("u", [-1, 0]),
    ("u", [256, 0]), ("u", np.int8([1, 2])), ("b", [1, 0]), ("b", np.uint8([1, 0])),
    ("i", ["1", "2"]), ("f", [None, 1]), ("i", [float("nan"), 1]), ("f", [1j, 0]),
])
def test_what_would_lose_is_not(name, given, cpu_context):
    proto, kinds = types_model()
    session = Session(proto, cpu_context, narrow_double=True)
    with pytest.raises(ValueError, match=f"input '{name}': .*{np.dtype(kinds[name]).name}"):
        session.run(None, {**PLAIN, name: given})


def test_run_async(both):
    def told(session, feeds):
        seen, done = [], threading.Event()

        def callback(results, data, message):
            seen.append((results, data, message))
            done.set()

        session.run_async(["scores"], feeds, callback, "mine")
        assert done.wait(60)
        ((results, data, message),) = seen
        assert data == "mine"
        return results, message

    (ours, said), (theirs, nothing) = (told(s, FEEDS) for s in both)
    same(ours, theirs)
    assert said == nothing == ""
    (ours, said), (theirs, other) = (told(s, {"image": FEEDS["image"][:, :1]}) for s in both)
    assert ours == theirs == []
    assert "float32[n, 3, 8, 8]" in said and other


def test_io_binding(both):
    x = FEEDS["image"]

    def by_arrays(session):
        binding = session.io_binding()
        binding.bind_cpu_input("image", x)
        binding.bind_output("scores")
        session.run_with_iobinding(binding)
        (value,) = binding.get_outputs()
        assert value.shape() == [2, 5] and value.is_tensor() and value.device_name() == "cpu"
        np.testing.assert_array_equal(value.numpy(), binding.copy_outputs_to_cpu()[0])
        return binding.copy_outputs_to_cpu()

    def by_addresses(session):
        place = np.full((2, 5), np.nan, np.float32)
        binding = session.io_binding()
        binding.bind_input("image", "cpu", 0, np.float32, x.shape, x.ctypes.data)
        binding.bind_output("scores", "cpu", 0, np.float32, place.shape, place.ctypes.data)
        binding.synchronize_inputs()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        return [place]

    def by_values(session):
        binding = session.io_binding()
        place = onnxruntime.OrtValue.ortvalue_from_shape_and_type([2, 5], np.float32)
        binding.bind_ortvalue_input("image", onnxruntime.OrtValue.ortvalue_from_numpy(x))
        binding.bind_ortvalue_output("scores", place)
        session.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu()

    for call in (by_arrays, by_addresses, by_values):
        same(*map(call, both))
    for session in both:
        binding = session.io_binding()
        with pytest.raises(Exception):  # noqa: B017
            binding.bind_cpu_input("other", x)
            session.run_with_iobinding(binding)
    binding = both[0].io_binding()
    with pytest.raises(ValueError, match="'cuda'"):
        binding.bind_output("scores", "cuda")
    with pytest.raises(ValueError, match="no output 'other'"):
        binding.bind_output("other")
    small = (ctypes.c_float * 2)()
    binding.bind_cpu_input("image", x)
    binding.bind_output("scores", "cpu", 0, np.float32, [2], ctypes.addressof(small))
    with pytest.raises(ValueError, match=r"float32\[2, 5\], bound is float32\[2\]"):
        both[0].run_with_iobinding(binding)


def test_a_weight_that_is_fed_takes_the_place_of_the_stored(context):
    proto = model([node("Mul", ["x", "w"], ["t"]), node("Add", ["t", "b"], ["y"])],
                  [info("x", ["n", 2]), info("w", [2])], [info("y", ["n", 2])],
                  {"w": np.array([2, 3], np.float32), "b": np.array([1, 1], np.float32)})
    peer = onnxruntime.InferenceSession(proto.SerializeToString(), providers=CPU)
    ours = Session(proto, context)
    shown = [[(a.name, a.type, a.shape) for a in s.get_overridable_initializers()]
             for s in (ours, peer)]
    assert shown[0] == shown[1] == [("w", "tensor(float)", [2])]
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for w in (None, [5, 7], [-1, 0], None, [5, 7]):
        feeds = {"x": x} if w is None else {"x": x, "w": np.array(w, np.float32)}
        same(ours.run(None, feeds), peer.run(None, feeds))
    for session in (ours, peer):
        with pytest.raises(Exception, match="b"):
            session.run(None, {"x": x, "b": np.zeros(2, np.float32)})
    with pytest.raises(ValueError, match=r"'w': float32\[3\] is given, float32\[2\]"):
        ours.run(None, {"x": x, "w": np.zeros(3, np.float32)})


def test_run_options_that_say_terminate(both):
    options = onnxruntime.RunOptions()
    options.terminate = True
    ours, peer = both
    with pytest.raises(Exception, match="terminate"):
        peer.run(None, FEEDS, options)
    with pytest.raises(OperationError, match="terminate"):
        ours.run(None, FEEDS, options)


def test_without_a_context(proto, tmp_path, monkeypatch):
    monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu")
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    options = onnxruntime.SessionOptions()
    expected = onnxruntime.InferenceSession(path, options, CPU).run(None, FEEDS)
    for session in (
        Session(path), Session(str(path), providers=CPU), Session(os.fspath(path), options, CPU),
        Session(proto.SerializeToString(), sess_options=options),
        Session(proto, None, [("CUDAExecutionProvider", {"device_id": 0}), *CPU]),
    ):
        same(session.run(None, FEEDS), expected)
        assert session.get_providers() == CPU
        assert session.get_session_options() in (options, None)
    assert Session(path, options).get_session_options() is options
    assert "'model.onnx'" in repr(Session(path))
    for wrong in ("CPUExecutionProvider", [3]):
        with pytest.raises(ValueError, match="providers"):
            Session(path, providers=wrong)
    with pytest.raises(TypeError, match="MLContext or None, not int"):
        Session(path, 3)


def test_providers_that_name_the_cpu_alone_mean_the_cpu_device(proto, monkeypatch):
    monkeypatch.delenv("WEBNN_VK_DEVICE", raising=False)
    session = Session(proto, providers=CPU)
    assert session.get_providers() == CPU
    with open_context("cpu") as context:
        expected = Session(proto, context).run(None, FEEDS)
    same(session.run(None, FEEDS), expected)


def test_a_profile_sees_the_graphs_of_a_session(proto):
    with open_context("cpu", cpu_engine="onnxruntime") as context:
        session = Session(proto, context)
        expected = session.run(None, FEEDS)
        with context.profile() as profile:
            same(session.run(None, FEEDS), expected)
        assert profile.report.host


def test_types_of_outputs_are_those_of_the_model(context, rng):
    proto = model([node("Shape", ["x"], ["s"]), node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16)],
                  [info("x", ["n", None])],
                  [info("s", [2], TensorProto.INT64), info("h", ["n", None], TensorProto.FLOAT16)])
    peer = onnxruntime.InferenceSession(proto.SerializeToString(), providers=CPU)
    session = Session(proto, context)
    for shape in ((2, 3), (4, 1)):
        feeds = {"x": rng.normal(size=shape).astype(np.float32)}
        same(session.run(None, feeds), peer.run(None, feeds))
