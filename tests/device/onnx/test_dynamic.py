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
from tests.support.onnx_nodes import Draws, Node, runtime
from webnn_vk.onnx import Session, UnsupportedModelError
from webnn_vk.onnx.dynamic import DynamicRun, Trial
from webnn_vk.onnx.runtime_limits import DEVIATIONS
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


normal, ML = Draws(4).normal, "ai.onnx.ml"
ZEROS = np.zeros((2, 3), np.float32)
HALVES = normal(8).astype(np.float16)
IMAGE, LARGE = normal(1, 2, 8, 7), np.full((1, 2, 4, 4), 7, np.float32)
LEAVES = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
}
TARGETS = {"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
           "target_weights": [0.0, 1.0], "n_targets": 1}
CLASSES = {name.replace("target", "class"): TARGETS[name] for name in list(TARGETS)[:-1]}
LINEAR = {"coefficients": [0.0] * 6, "intercepts": [0.0, 0.0]}


def plain_node(operator, *inputs, opset=18, outputs=1, domain="", **attributes):
    return Node(operator, inputs, attributes, outputs, domain, opset=opset)


#: For each of DEVIATIONS nodes on which ONNX Runtime shows it.
ELSEWHERE = [
    [plain_node("MeanVarianceNormalization", LARGE, axes=[2, 3])],
    [plain_node("LpNormalization", 1e-30 * normal(3, 4), p=2)],
    [plain_node("LRN", np.array([1e5, 0, 0, 0, 1, 1], np.float32).reshape(1, 6, 1, 1), size=3,
                alpha=1.0)],
    [plain_node("BatchNormalization", (1000 * normal(2, 8, 6, 6)).astype(np.float16),
                *[HALVES] * 3, HALVES**2, training_mode=1, outputs=3)],
    [plain_node("BatchNormalization", LARGE, normal(2), normal(2), np.ones(2, np.float32),
                np.zeros(2, np.float32), epsilon=0.0)],
    [plain_node("Pow", np.array([3, 5]), np.array([39, 2])),
     plain_node("Shrink", np.array([2**62 + 5, 3]), bias=1.0, lambd=0.5),
     plain_node("ReduceL2", np.array([[-223048670382183822, 132570042406830370]])),
     plain_node("ReduceLogSumExp", np.array([[2**62 - 1, 2**62 - 9]]))],
    [plain_node("Resize", (60 * IMAGE).astype(np.int32), None,
                np.array([1, 1, 1.5, 0.6], np.float32), mode="linear")],
    [plain_node("Resize", IMAGE, np.array([0, 0, 0, 0.2, 1, 1, 1, 0.7], np.float32),
                np.array([1, 1, 0.5, 1], np.float32), mode="linear",
                coordinate_transformation_mode="tf_crop_and_resize")],
    [plain_node("GridSample", IMAGE, np.full((1, 1, 1, 2), -1e7 / 3, np.float32), opset=20,
                padding_mode="reflection")],
    [plain_node(operator, IMAGE, opset=22, kernel_shape=[2, 2], dilations=[2, 2],
                auto_pad="SAME_UPPER") for operator in ("AveragePool", "LpPool")]
    + [plain_node("MaxPool", normal(1, 1, 2, 2), opset=22, kernel_shape=[2, 2], dilations=[3, 3],
                  pads=[1, 1, 1, 1]),
       plain_node("MaxPool", IMAGE, opset=22, kernel_shape=[2, 2], strides=[4, 4],
                  auto_pad="SAME_UPPER")],
    [plain_node("MaxUnpool", normal(1, 1, 2, 2), np.array([5, 7, 13, 15]).reshape(1, 1, 2, 2),
                np.array([1, 1, 5, 5]), kernel_shape=[2, 2], strides=[2, 2])],
    [plain_node("ConvTranspose", IMAGE, normal(2, 2, 2, 2), opset=22, strides=[4, 4], **padding)
     for padding in ({"auto_pad": "SAME_LOWER"}, {"output_shape": [32, 28]})],
    [plain_node("LinearRegressor", normal(2, 3), domain=ML, coefficients=[1.0, 2.0, 3.0],
                post_transform="LOGISTIC"),
     plain_node("TreeEnsembleRegressor", normal(4, 3), domain=ML, **LEAVES, **TARGETS,
                post_transform="SOFTMAX")],
    [plain_node("LinearClassifier", ZEROS, domain=ML, outputs=2, classlabels_ints=[0, 1], **LINEAR,
                post_transform="SOFTMAX_ZERO"),
     plain_node("TreeEnsembleClassifier", ZEROS, domain=ML, outputs=2, **LEAVES, **CLASSES,
                classlabels_int64s=[0, 1, 2], post_transform="SOFTMAX_ZERO")],
    [plain_node("TreeEnsembleRegressor", normal(4, 3), domain=ML, **LEAVES,
                **TARGETS | {"n_targets": 2}, base_values=[0.25, 0.75])],
]


def of_open_dimensions(given, results):
    """The node's model with open dimensions, the outputs' types said."""
    proto = given.model()
    if given.domain == ML:
        proto.opset_import.append(helper.make_opsetid(ML, 1))
    for dimension in proto.graph.input[0].type.tensor_type.shape.dim:
        dimension.Clear()
    for output, array in zip(proto.graph.output, results, strict=True):
        output.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(array.dtype)
    return proto


@pytest.mark.parametrize(("limit", "given"), [
    pytest.param(limit, given, id=f"{given.operator}{number}")
    for limit, many in zip(DEVIATIONS, ELSEWHERE, strict=True) for number, given in enumerate(many)
])
def test_other_definitions_are_the_graphs(engine, limit, given):
    """A model has the same results with open dimensions as with fixed ones; and the entry is
    needed: ONNX Runtime has others, or, newer ones, an error."""
    assert given.operator in limit.operators
    fixed = given.model()
    if given.domain == ML:
        fixed.opset_import.append(helper.make_opsetid(ML, 1))
    feeds = {"i0": given.inputs[0]}
    expected = Session(fixed, engine).run(None, feeds)
    proto = of_open_dimensions(given, expected)
    (got,), session = run(proto, engine, feeds)
    assert not whole(session)
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    try:
        others = runtime(proto).run(None, feeds)
    except Exception as error:
        assert "must be non-negative" in str(error)
        return
    assert not all(
        np.array_equal(a, b) if a.dtype.kind in "iu" or a.shape != b.shape
        else np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
        for a, b in zip(got, others, strict=True)
    )


def test_other_attributes_are_onnxruntime_s(engine):
    """Of the same operators: what both compute alike stays one session. Axes are no integers that
    are summed."""
    for given in (
        plain_node("Resize", IMAGE, None, np.array([1, 1, 1.5, 0.6], np.float32), mode="linear",
                   coordinate_transformation_mode="align_corners"),
        plain_node("BatchNormalization", IMAGE, *[normal(2) for _ in range(3)],
                   np.ones(2, np.float32)),
        plain_node("Pow", normal(3), np.array(2)),
        plain_node("MaxPool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        plain_node("ConvTranspose", IMAGE, normal(2, 2, 3, 3), strides=[2, 2],
                   auto_pad="SAME_UPPER"),
        plain_node("ReduceSum", IMAGE, np.array([2, 3])),
        plain_node("TreeEnsembleRegressor", normal(4, 3), domain=ML, **LEAVES, **TARGETS,
                   base_values=[0.25]),
    ):
        proto = of_open_dimensions(given, given.inputs[:1])
        (got,), session = run(proto, engine, {"i0": given.inputs[0]})
        assert whole(session), given.operator
        (expected,) = runtime(proto).run(None, {"i0": given.inputs[0]})
        np.testing.assert_array_equal(got[0], expected)


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_points_far_from_an_image(engine, mode, padding):
    """ONNX Runtime's integers don't reach them, and its weights aren't exact. In a function too."""
    across = np.array([-1.2, 0.3, 1.1, 40, -1e7, 3e9, -3e38, np.inf], np.float32)
    grid = np.stack(np.meshgrid(across, across), -1)[None]
    given = plain_node("GridSample", grid, opset=20, mode=mode, padding_mode=padding)
    x = info("x", ["n", 2, "h", "w"])
    sample = node("GridSample", ["x", "g"], ["y"], **given.attributes)
    function = helper.make_function(
        "own", "Sample", ["x", "g"], ["y"], [sample], [helper.make_opsetid("", 20)]
    )
    results = []
    for nodes, shape, functions in (
        ([sample], [1, 2, 8, 7], []), ([sample], None, []),
        ([node("Sample", ["x", "g"], ["y"], domain="own")], None, [function]),
    ):
        proto = model(nodes, [info("x", shape) if shape else x], [info("y", None)], {"g": grid},
                      opset=20, functions=functions)
        proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
        if functions:
            proto.opset_import.append(helper.make_opsetid("own", 1))
        (got,), session = run(proto, engine, {"x": IMAGE})
        assert whole(session) == (shape is None)
        results.append(got[0])
    for other in results[1:]:
        assert_allclose(other, results[0], rtol=1e-4, atol=2e-5)


def test_attributes_of_other_types_are_refused(engine):
    proto = of_open_dimensions(ELSEWHERE[9][0], [IMAGE])
    dilations = next(a for a in proto.graph.node[0].attribute if a.name == "dilations")
    dilations.CopyFrom(helper.make_attribute("dilations", 1.5))
    with pytest.raises(UnsupportedModelError, match="AveragePool"):
        Session(proto, engine).run(None, {"i0": IMAGE})


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
