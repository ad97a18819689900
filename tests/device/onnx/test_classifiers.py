"""Classifiers as skl2onnx writes them: labels that are numbers or text, maps of labels to scores.

Operators, their order and the types of outputs are as in skl2onnx 1.20 for scikit-learn 1.9.
"""

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.command_line import Command
from tests.support.discriminating import assert_allclose
from tests.support.onnx_models import info, model
from webnn_vk.onnx import Session, UnsupportedModelError, load

onnxruntime = pytest.importorskip("onnxruntime")
node = helper.make_node
ML = {"domain": "ai.onnx.ml"}
FEATURES, ROWS = 4, 20
#: Not in the order of their columns, which is the model's order.
NAMES = ["virginica", "setosa", "versicolor"]
NUMBERS = [7, -2, 3]


def features(rows=ROWS):
    return np.random.default_rng(rows).normal(size=(rows, FEATURES)).astype(np.float32)


def maps(name, keys):
    key = TensorProto.STRING if isinstance(keys[0], str) else TensorProto.INT64
    of = helper.make_map_type_proto(key, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    return helper.make_value_info(name, helper.make_sequence_type_proto(of))


def labels_of(keys):
    """The attributes that name classes, by each operator's names."""
    text = isinstance(keys[0], str)
    return (
        {"classlabels_strings" if text else "classlabels_ints": keys},
        {"classlabels_strings" if text else "classlabels_int64s": keys},
        TensorProto.STRING if text else TensorProto.INT64,
    )


def finished(nodes, keys, end, constants=None):
    """``label`` and ``probabilities`` as outputs, as a map, one column each, or unchanged."""
    kind = labels_of(keys)[2]
    outputs, constants = [info("output_label", ["N"], kind)], dict(constants or {})
    nodes.append(node("Identity", ["label"], ["output_label"]) if kind == TensorProto.STRING else
                 node("Cast", ["label"], ["output_label"], to=TensorProto.INT64))
    if end == "maps":
        nodes.append(node("ZipMap", ["probabilities"], ["output_probability"],
                          **labels_of(keys)[1], **ML))
        outputs.append(maps("output_probability", keys))
    elif end == "columns":
        for i, key in enumerate(keys):
            place = {f"start{i}": i, f"end{i}": i + 1}
            constants |= {n: np.array([v], np.int64) for n, v in place.items()}
            nodes.append(node("Slice", ["probabilities", *place, "axis"], [f"part{i}"]))
            nodes.append(node("Reshape", [f"part{i}", "flat"], [f"probability_{key}"]))
            outputs.append(info(f"probability_{key}", ["N"]))
        constants |= {"axis": np.array([1], np.int64), "flat": np.array([-1], np.int64)}
    else:
        outputs.append(info("probabilities", ["N", len(keys)]))
    strings = constants.pop("classes", None)
    proto = model(nodes, [info("X", [None, FEATURES])], outputs, constants)
    if strings is not None:
        proto.graph.initializer.append(helper.make_tensor(
            "classes", TensorProto.STRING if isinstance(strings[0], str) else TensorProto.INT64,
            [len(strings)], strings,
        ))
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return proto


def logistic_regression(keys, end, scaled=False):
    rng = np.random.default_rng(1)
    numbers = rng.normal(size=(len(keys), FEATURES)).astype(np.float32)
    x, nodes = "X", []
    if scaled:
        x = "scaled"
        nodes = [node("Scaler", ["X"], [x], offset=[0.1, 0.2, -0.3, 0.5],
                      scale=[2.0, 0.5, 1.5, 1.0], **ML)]
    nodes += [
        node("LinearClassifier", [x], ["label", "raw"], coefficients=numbers.ravel().tolist(),
             intercepts=rng.normal(size=len(keys), scale=0.1).tolist(), multi_class=1,
             post_transform="LOGISTIC" if len(keys) == 2 else "SOFTMAX", **labels_of(keys)[0],
             **ML),
        node("Normalizer", ["raw"], ["probabilities"], norm="L1", **ML),
    ]
    return finished(nodes, keys, end)


def pipeline(keys, end):
    return logistic_regression(keys, end, scaled=True)


def forest(keys, end):
    """Two trees of one split each, whose leaves have weights for all classes; with two classes for
    the first."""
    count = len(keys)
    weights = np.random.default_rng(2).dirichlet(np.ones(count), size=4) / 4
    weights[range(4), [0, 1, 0, count - 1]] += 0.25
    classes = range(1 if count == 2 else count)
    weights = weights[:, : len(classes)]
    trees = {
        "nodes_treeids": [0, 0, 0, 1, 1, 1], "nodes_nodeids": [0, 1, 2] * 2,
        "nodes_featureids": [0, 0, 0, 2, 0, 0], "nodes_values": [0.1, 0, 0, -0.2, 0, 0],
        "nodes_hitrates": [1.0] * 6,
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * 2,
        "nodes_truenodeids": [1, 0, 0] * 2, "nodes_falsenodeids": [2, 0, 0] * 2,
        "nodes_missing_value_tracks_true": [0] * 6,
        "class_treeids": [t for t in (0, 0, 1, 1) for _ in classes],
        "class_nodeids": [n for n in (1, 2, 1, 2) for _ in classes],
        "class_ids": [*classes] * 4,
        "class_weights": weights.astype(np.float32).ravel().tolist(),
    }
    nodes = [node("TreeEnsembleClassifier", ["X"], ["label", "probabilities"],
                  post_transform="NONE", **trees, **labels_of(keys)[1], **ML)]
    return finished(nodes, keys, end)


def perceptron(keys, end):
    """The classes are a tensor, from which the label is taken."""
    rng = np.random.default_rng(3)
    nodes = [
        node("MatMul", ["X", "w"], ["product"]), node("Add", ["product", "b"], ["sum"]),
        node("Softmax", ["sum"], ["probabilities"], axis=-1),
        node("ArgMax", ["probabilities"], ["best"], axis=1),
        node("ArrayFeatureExtractor", ["classes", "best"], ["row"], **ML),
        node("Reshape", ["row", "all"], ["label"]),
    ]
    return finished(nodes, keys, end, {
        "w": rng.normal(size=(FEATURES, len(keys))).astype(np.float32),
        "b": rng.normal(size=len(keys), scale=0.1).astype(np.float32),
        "all": np.array([-1], np.int64),
        "classes": keys,
    })


def support_vectors(keys, kernel):
    rng, count = np.random.default_rng(4), len(keys)
    counts = [*range(3, 3 + count)]
    total = sum(counts)
    nodes = [node(
        "SVMClassifier", ["X"], ["label", "scores"], kernel_type=kernel,
        coefficients=rng.normal(size=(count - 1) * total).astype(np.float32).tolist(),
        kernel_params=[0.3, 0.2, 2.0], post_transform="NONE",
        rho=rng.normal(size=count * (count - 1) // 2, scale=0.1).tolist(),
        support_vectors=rng.normal(size=total * FEATURES).astype(np.float32).tolist(),
        vectors_per_class=counts, **labels_of(keys)[0], **ML,
    )]
    columns = 2 if count == 2 else count * (count - 1) // 2
    proto = model(nodes, [info("X", [None, FEATURES])],
                  [info("label", ["N"], labels_of(keys)[2]), info("scores", ["N", columns])])
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    return proto


def same(got, expected):
    """Both have the same kind, and are equal except for the last bits."""
    assert type(got) is type(expected)
    if isinstance(expected, list):
        assert [list(row) for row in got] == [list(row) for row in expected]  # order as well
        assert {type(k) for row in got for k in row} == {type(k) for row in expected for k in row}
        assert {type(v) for row in got for v in row.values()} == {float}
        got, expected = (np.array([[*row.values()] for row in rows]) for rows in (got, expected))
    assert got.dtype == expected.dtype and got.shape == expected.shape
    if expected.dtype.kind in "Oi":
        np.testing.assert_array_equal(got, expected)
    else:
        assert_allclose(got, expected, atol=1e-6)


CLASSES = {"text": NAMES, "numbers": NUMBERS, "two texts": ["no", "yes"], "two numbers": [0, 1]}


@pytest.mark.sample(0.34)
@pytest.mark.parametrize("end", ["maps", "columns", "tensor"])
@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("make", [logistic_regression, pipeline, forest, perceptron])
def test_as_onnxruntime_gives_it(make, classes, end, context):
    proto = make(CLASSES[classes], end)
    peer = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    session = Session(proto, context)
    assert [(a.name, a.type, a.shape) for a in session.get_outputs()] == [
        (a.name, a.type, a.shape) for a in peer.get_outputs()
    ]
    for rows in (ROWS, 1):
        x = features(rows)
        expected = peer.run(None, {"X": x})
        assert rows == 1 or len({*expected[0].tolist()}) == len(CLASSES[classes])
        for got, one in zip(session.run(None, {"X": x}), expected, strict=True):
            same(got, one)
        for output, one in zip(session.get_outputs(), expected, strict=True):
            (got,) = session.run([output.name], {"X": x})
            same(got, one)


@pytest.mark.parametrize("kernel", ["RBF", "LINEAR", "POLY", "SIGMOID"])
@pytest.mark.parametrize("keys", [NAMES, NUMBERS, ["no", "yes"], [4, 3, 2, 1]], ids=str)
def test_support_vectors(keys, kernel, context):
    proto = support_vectors(keys, kernel)
    peer = onnxruntime.InferenceSession(proto.SerializeToString())
    (labels, scores), x = peer.run(None, {"X": features(60)}), features(60)
    assert len({*labels.tolist()}) > 1
    got, near = Session(proto, context, outputs=["label", "scores"]).run(None, {"X": x})
    same(got, labels)
    assert_allclose(near, scores, atol=1e-5 * np.abs(scores).max())


def test_outputs_of_a_session_may_be_values_inside(context):
    proto = logistic_regression(NAMES, "maps")
    x = features()
    session = Session(proto, context, outputs=["probabilities", "output_label"])
    assert [a.name for a in session.get_outputs()] == ["probabilities", "output_label"]
    rows, labels = session.run(None, {"X": x})
    (named,) = Session(proto, context).run(["output_probability"], {"X": x})
    np.testing.assert_array_equal(rows, [[row[key] for key in NAMES] for row in named])
    assert labels.tolist() == [NAMES[i] for i in rows.argmax(axis=1)]
    with pytest.raises(ValueError, match="no output 'output_probability'"):
        session.run(["output_probability"], {"X": x})
    with pytest.raises(ValueError, match="no output 'elsewhere', and no node makes it"):
        Session(proto, context, outputs=["elsewhere"])


def test_what_outputs_do_not_depend_on_is_not_imported(cpu_context):
    proto = logistic_regression(NUMBERS, "maps")
    proto.graph.node.append(node("NoSuchThing", ["label"], ["odd"], **ML))
    proto.graph.output.append(info("odd", ["N"]))
    x = features()
    names = ["output_label", "output_probability"]
    labels, rows = Session(proto, cpu_context).run(names, {"X": x})
    assert [max(row, key=row.get) for row in rows] == labels.tolist()
    with pytest.raises(UnsupportedModelError, match="NoSuchThing"):
        Session(proto, cpu_context).run(None, {"X": x})


def test_a_graph_has_no_text_and_no_maps_and_the_advice_can_be_followed(cpu_context):
    proto = logistic_regression(NAMES, "maps")
    shapes = {"X": (ROWS, FEATURES)}
    with pytest.raises(UnsupportedModelError) as caught:
        load(proto, cpu_context, shapes).result()
    text, mapped = (problem.reason for problem in caught.value.problems)
    assert "text" in text and "onnx.Session" in text
    assert "outputs=['probabilities']" in mapped
    graph = load(proto, cpu_context, shapes, outputs=["probabilities"]).result()
    x = features()
    (rows,) = Session(proto, cpu_context).run(["output_probability"], {"X": x})
    got = cpu_context.compute(graph, {"X": x})["probabilities"]
    np.testing.assert_array_equal(got, [[row[key] for key in NAMES] for row in rows])


def test_text_that_is_computed_with_is_refused(cpu_context):
    proto = perceptron(NAMES, "tensor")
    proto.graph.node.append(node("Equal", ["label", "label"], ["same"]))
    proto.graph.output.append(info("same", ["N"], TensorProto.BOOL))
    with pytest.raises(UnsupportedModelError, match="Equal.*no text and no maps"):
        Session(proto, cpu_context).run(["same"], {"X": np.zeros((2, FEATURES), np.float32)})


def test_the_command_line_takes_some_outputs(capsys, tmp_path):
    path = tmp_path / "classifier.onnx"
    path.write_bytes(logistic_regression(NAMES, "maps").SerializeToString())
    command = Command(capsys)
    for name in ("run", "check"):
        done = command.json(name, path, "--device", "cpu", "--outputs", "probabilities")
        assert done.get("supported", True)
    both = command.json("run", path, "--device", "cpu", "--outputs", "probabilities,raw")
    assert [row["name"] for row in both["outputs"]] == ["probabilities", "raw"]
    status, _, error = command("run", path, "--device", "cpu")
    assert status == 1 and "--outputs NAME,NAME" in error
