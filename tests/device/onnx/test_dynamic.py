"""Models with open dimensions that ONNX Runtime runs unchanged, and models that are left to graphs.
"""

import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.contexts import open_context
from tests.support.decoders import decoder
from tests.support.discriminating import assert_allclose
from tests.support.onnx_models import classifier, info, model
from webnn_vk.onnx import Session, UnsupportedModelError
from webnn_vk.onnx.dynamic import DynamicRun, Trial
from webnn_vk.support.errors import InvalidStateError

onnxruntime = pytest.importorskip("onnxruntime")
node = helper.make_node
INT64 = TensorProto.INT64


@pytest.fixture(scope="module")
def engine():
    with open_context("cpu", cpu_engine="onnxruntime") as context:
        yield context


def whole(session):
    """Whether ONNX Runtime has the model."""
    return isinstance(session._dynamic, DynamicRun)


def run(proto, context, *feeds, **options):
    """Results of consecutive runs, and the session."""
    session = Session(proto, context, **options)
    return [session.run(None, each) for each in feeds], session


def test_one_session_takes_all_shapes(engine, monkeypatch, rng):
    proto = classifier(rng, ("n", 3, "h", "w"))
    proto.graph.node.extend([node("ReduceMean", ["active", "plane"], ["means"], keepdims=0)])
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2, 3]), "plane"))
    del proto.graph.output[:], proto.graph.node[2:9]
    proto.graph.output.append(info("means", ["n", 4]))
    session = Session(proto, engine)
    monkeypatch.setattr(session, "_build", None)  # no graph is built
    peer = onnxruntime.InferenceSession(proto.SerializeToString())
    for shape in ((1, 3, 8, 8), (2, 3, 5, 9), (1, 3, 8, 8), (3, 3, 1, 1)):
        x = rng.normal(size=shape).astype(np.float32)
        for got, expected in zip(session.run(None, {"image": x}), peer.run(None, {"image": x}),
                                 strict=True):
            assert_allclose(got, expected, atol=1e-6)
    assert whole(session)


def test_from_threads_at_once(engine, rng):
    w = rng.normal(size=(64, 64)).astype(np.float32)
    proto = model([node("MatMul", ["x", "w"], ["y"])], [info("x", ["n", 64])],
                  [info("y", ["n", 64])], {"w": w})
    session, wrong = Session(proto, engine), []

    def work(rows):
        for _ in range(20):
            x = np.full((rows, 64), rows, np.float32)
            (y,) = session.run(None, {"x": x})
            if y.shape != (rows, 64) or not np.allclose(y, x @ w, atol=1e-2):
                wrong.append(y)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and whole(session)


#: Nodes x → y on int64 [n], constants, feeds of x, and the results.
BIG = 1 << 40
INTEGERS = {
    "quotients": ([node("Div", ["k", "x"], ["y"])], {"k": [6]}, [4, -3], [1, -2]),
    "remainders": ([node("Mod", ["k", "x"], ["y"])], {"k": [6]}, [4, 5], [2, 1]),
    "a divisor that shapes make": (
        [node("Shape", ["x"], ["s"]), node("Sub", ["s", "k"], ["d"]),
         node("Div", ["x", "d"], ["y"])], {"k": [1]}, [4, 6], [4, 6]),
    "maximum": ([node("Max", ["x", "k"], ["y"])], {"k": [BIG + 1]}, [1, BIG], [BIG + 1, BIG + 1]),
    "clip": ([node("Clip", ["x", "k"], ["y"])], {"k": BIG}, [5, BIG + 7], [BIG, BIG + 7]),
    "sums": ([node("ReduceSum", ["x"], ["t"], keepdims=1), node("Sub", ["t", "x"], ["y"])], {},
             [2**62, 2**62 + 1], [2**62 + 1, 2**62]),
}


def integers(case):
    nodes, constants, x, expected = INTEGERS[case]
    proto = model(nodes, [info("x", ["n"], INT64)], [info("y", ["n"], INT64)],
                  {name: np.array(v, np.int64) for name, v in constants.items()})
    return proto, np.array(x), expected


@pytest.mark.parametrize("case", INTEGERS)
def test_integers_that_onnxruntime_gets_wrong_are_the_graphs(case, engine):
    proto, x, expected = integers(case)
    ((y,),), session = run(proto, engine, {"x": x})
    assert y.tolist() == expected and not whole(session)


@pytest.mark.parametrize("case", ["quotients", "remainders", "a divisor that shapes make"])
def test_a_division_by_zero_does_not_end_the_process(case, engine):
    proto, x, _ = integers(case)
    zero = x[:1] if case.startswith("a divisor") else np.array([0, 3])
    results, session = run(proto, engine, {"x": x}, {"x": zero})
    assert results[1][0].shape == zero.shape and not whole(session)


def test_arithmetic_of_shapes_is_no_reason(engine):
    """Max, Div and Mul of lengths, as exporters write them."""
    nodes = [
        node("Shape", ["x"], ["s"]), node("Max", ["s", "one"], ["m"]),
        node("Div", ["m", "two"], ["half"]), node("Mul", ["half", "two"], ["even"]),
        node("Slice", ["x", "zero", "even", "zero"], ["y"]),
    ]
    proto = model(nodes, [info("x", ["n"])], [info("y", ["m"])], {
        "one": np.array([1]), "two": np.array([2]), "zero": np.array([0])})
    results, session = run(proto, engine, *({"x": np.ones(n, np.float32)} for n in (4, 5, 9)))
    assert [y.shape for (y,) in results] == [(4,), (4,), (8,)]
    assert whole(session)


def test_branches_and_values_that_decide_are_the_graphs(engine):
    def branch(name, operator):
        return helper.make_graph([node(operator, ["x"], [name])], name, [], [info(name, ["n"])])

    branches = {"then_branch": branch("a", "Neg"), "else_branch": branch("b", "Abs")}
    nodes = [node("If", ["c"], ["y"], **branches)]
    proto = model(nodes, [info("x", ["n"]), info("c", [], TensorProto.BOOL)], [info("y", ["n"])])
    x = np.array([-1, 2], np.float32)
    results, session = run(
        proto, engine, {"x": x, "c": np.array(True)}, {"x": x, "c": np.array(False)}
    )
    assert [y.tolist() for (y,) in results] == [[1, -2], [1, 2]] and not whole(session)
    proto = model([node("Reshape", ["x", "s"], ["y"])],
                  [info("x", ["n"]), info("s", ["r"], INT64)], [info("y", None)])
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    x = np.arange(6, dtype=np.float32)
    results, session = run(proto, engine, *({"x": x, "s": np.array(s)} for s in ([2, 3], [-1])))
    assert [y.shape for (y,) in results] == [(2, 3), (6,)] and not whole(session)


def test_indices_out_of_range_are_webnn_s(engine):
    """ONNX Runtime refuses them; WebNN uses the nearest valid one."""
    proto = model([node("Gather", ["t", "i"], ["y"])], [info("i", ["n"], INT64)],
                  [info("y", ["n"])], {"t": np.array([10, 20, 30], np.float32)})
    results, session = run(proto, engine, *({"i": np.array(i)} for i in ([0, 2], [1, 7], [2])))
    assert [y.tolist() for (y,) in results] == [[10, 30], [20, 30], [30]]
    assert whole(session)


def test_what_the_import_refuses_is_refused(engine):
    proto = model([node("NonZero", ["x"], ["y"])], [info("x", ["n"])],
                  [info("y", [1, "m"], INT64)])
    session = Session(proto, engine)
    for _ in range(2):
        with pytest.raises(UnsupportedModelError, match="NonZero"):
            session.run(None, {"x": np.ones(3, np.float32)})
    assert not whole(session)


def test_files_are_read_by_the_import_alone(engine, tmp_path, monkeypatch):
    """ONNX Runtime can't open a constant inside of a node that refers to a file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_bytes(np.array([1, 2], np.float32).tobytes())
    value = TensorProto(name="k", data_type=TensorProto.FLOAT, dims=[2],
                        data_location=TensorProto.EXTERNAL)
    value.external_data.add(key="location", value="secret")
    value.external_data.add(key="length", value="8")
    proto = model([node("Constant", [], ["k"], value=value), node("Add", ["x", "k"], ["y"])],
                  [info("x", ["n", 2])], [info("y", ["n", 2])])
    with pytest.raises(ValueError, match="load the model by its path"):
        Session(proto, engine).run(None, {"x": np.zeros((1, 2), np.float32)})
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "secret").write_bytes(np.array([5, 6], np.float32).tobytes())
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    results, session = run(folder / "m.onnx", engine, {"x": np.zeros((1, 2), np.float32)})
    assert results[0][0].tolist() == [[5, 6]] and not whole(session)


def test_a_past_that_is_empty_at_first(engine):
    proto = decoder(1, 32, 2, 40)
    peer = onnxruntime.InferenceSession(proto.SerializeToString())
    session = Session(proto, engine)
    past = {n: np.zeros((1, 2, 0, 16), np.float32) for n in ("past_k0", "past_v0")}
    ids = np.array([[3, 1]])
    for length in (2, 3, 4):
        got = session.run(None, {"ids": ids, **past})
        expected = peer.run(None, {"ids": ids, **past})
        for ours, theirs in zip(got, expected, strict=True):
            assert_allclose(ours, theirs, atol=1e-5)
        assert got[1].shape == (1, 2, length, 16)
        past, ids = dict(zip(past, got[1:], strict=True)), np.array([[length]])
    assert whole(session)


def test_what_some_outputs_forbid_is_tried_a_few_times_only(engine, monkeypatch):
    """Importing in each run does not delay the graphs of the other outputs."""
    proto = model([node("Neg", ["x"], ["y"]), node("NonZero", ["x"], ["z"])],
                  [info("x", ["n"])], [info("y", ["n"]), info("z", [1, "m"], INT64)])
    session, tried = Session(proto, engine), []
    monkeypatch.setattr("webnn_vk.onnx.session.Trial", lambda m: tried.append(m) or Trial(m))
    for _ in range(6):
        (y,) = session.run(["y"], {"x": np.ones(3, np.float32)})
        assert y.tolist() == [-1, -1, -1]
    assert len(tried) == 3


def test_a_lost_context_ends_it(rng):
    context = open_context("cpu", cpu_engine="onnxruntime")
    session = Session(classifier(rng), context)
    feeds = {"image": np.zeros((1, 3, 8, 8), np.float32)}
    session.run(None, feeds)
    assert whole(session)
    context.destroy()
    with pytest.raises(InvalidStateError):
        session.run(None, feeds)


def test_products_of_eight_bits_are_exact(engine):
    """ONNX Runtime's own saturate where the processor lacks VNNI."""
    x, w = np.full((3, 64), 255, np.uint8), np.full((64, 2), 127, np.int8)
    proto = model([node("MatMulInteger", ["x", "w"], ["y"])],
                  [info("x", ["n", 64], TensorProto.UINT8)],
                  [info("y", ["n", 2], TensorProto.INT32)], {"w": w})
    results, session = run(proto, engine, {"x": x}, {"x": x[:1]})
    for (y,) in results:
        assert (y == 255 * 127 * 64).all()
    assert not whole(session)
