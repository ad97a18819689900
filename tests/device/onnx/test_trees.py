"""Ensembles of decision trees compared with ONNX Runtime."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from tests.support.discriminating import assert_allclose
from webnn_vk.onnx import Session, UnsupportedModelError

ML = "ai.onnx.ml"
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
FEATURES = 5
DEVICES = ["cpu_context", "vulkan_context"]


def forest(rng, trees, modes=MODES):
    """Attributes ``nodes_*`` of random trees of different depths, and the positions of the leaves.
    """
    nodes = {name: [] for name in (
        "treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
        "missing_value_tracks_true",
    )}
    leaves = []

    def grow(tree, node, depth):
        """Nodes are numbered as in a heap."""
        leaf = depth == 0 or (node > 1 and rng.random() < 0.2)
        for name, value in {
            "treeids": tree, "nodeids": node, "featureids": int(rng.integers(FEATURES)),
            "values": float(rng.integers(-2, 3)),
            "modes": "LEAF" if leaf else str(rng.choice(modes)),
            "truenodeids": 0 if leaf else 2 * node, "falsenodeids": 0 if leaf else 2 * node + 1,
            "missing_value_tracks_true": int(not leaf and rng.random() < 0.5),
        }.items():
            nodes[name].append(value)
        if leaf:
            leaves.append((tree, node))
        else:
            grow(tree, 2 * node, depth - 1)
            grow(tree, 2 * node + 1, depth - 1)

    for tree in range(trees):
        grow(tree, 1, 1 + tree % 4)
    return {f"nodes_{name}": values for name, values in nodes.items()}, leaves


def model(operator, rows, outputs, version=3, **attributes):
    node = helper.make_node(operator, ["x"], [o.name for o in outputs], domain=ML, **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, FEATURES])
    graph = helper.make_graph([node], "trees", [x], outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(ML, version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def scores(targets, rows):
    return helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, targets])


def features(rng, rows, missing=True):
    x = rng.integers(-3, 4, (rows, FEATURES)).astype(np.float32)
    if missing:
        x[rng.random(x.shape) < 0.1] = np.nan
    return x


def same(context, made, x, atol=1e-6):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    expected = ort.InferenceSession(made.SerializeToString(), options).run(None, {"x": x})
    got = Session(made, context).run(None, {"x": x})
    for ours, theirs in zip(got, expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert_allclose(ours, theirs, rtol=1e-5, atol=atol)
    return got


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("aggregate", "targets"), [
    ("SUM", 3), ("SUM", 1), ("AVERAGE", 3), ("MIN", 3), ("MAX", 3),
])
def test_regression(request, device, aggregate, targets):
    rng = np.random.default_rng(3)
    nodes, leaves = forest(rng, 7, MODES if aggregate == "SUM" else ["BRANCH_LEQ"])
    trees, numbers = zip(*leaves, strict=True)
    made = model(
        "TreeEnsembleRegressor", 40, [scores(targets, 40)], aggregate_function=aggregate,
        # If a target has no leaf, ONNX Runtime omits its base value.
        n_targets=targets, base_values=[0.5] if targets == 1 else None,
        target_treeids=trees, target_nodeids=numbers,
        target_ids=[int(rng.integers(targets)) for _ in leaves],
        target_weights=[float(rng.integers(-9, 10)) for _ in leaves], **nodes,
    )
    (y,) = same(request.getfixturevalue(device), made, features(rng, 40))
    assert len(np.unique(y)) > 5


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("kind", ["three", "likely", "ahead", "second", "second ahead"])
def test_classification(cpu_context, kind, transform):
    rng = np.random.default_rng(5)
    nodes, leaves = forest(rng, 6, ["BRANCH_LEQ", "BRANCH_GT"])
    trees, numbers = zip(*leaves, strict=True)
    classes = 3 if kind == "three" else 2
    low, high = (0.0, 0.17) if kind in ("likely", "second") else (-0.3, 0.3)
    own = int(kind.startswith("second"))
    labels = helper.make_tensor_value_info("label", TensorProto.INT64, [30])
    attributes = dict(
        class_treeids=trees, class_nodeids=numbers, post_transform=transform,
        class_ids=[int(rng.integers(3)) if kind == "three" else own for _ in leaves],
        class_weights=[float(w) for w in rng.uniform(low, high, len(leaves))], **nodes,
    )
    made = model(
        "TreeEnsembleClassifier", 30, [labels, scores(classes, 30)],
        classlabels_int64s=[7, 3, 11][:classes], **attributes,
    )
    x = features(rng, 30, missing=False)
    label, score = same(cpu_context, made, x)
    assert len(np.unique(label)) > 1
    named = model(
        "TreeEnsembleClassifier", 30, [labels, scores(classes, 30)],
        classlabels_strings=["a", "b", "c"][:classes], **attributes,
    )
    session = Session(named, cpu_context)
    for _ in range(2):
        # A caller that doesn't request the labels gets the scores.
        np.testing.assert_array_equal(session.run(["y"], {"x": x})[0], score)
        named_labels = session.run(["label"], {"x": x})[0]
        names = dict(zip([7, 3, 11], "abc", strict=True))
        assert named_labels.tolist() == [names[number] for number in label.tolist()]


@pytest.mark.parametrize("classes", [2, 3])
def test_probit(cpu_context, classes):
    """NaN beyond 0 and 1, ∞ at both. ONNX Runtime's own differences of nearly equal numbers have
    errors of 2e-5."""
    rng = np.random.default_rng(3)
    nodes, leaves = forest(rng, 3, ["BRANCH_LEQ"])
    trees, numbers = zip(*leaves, strict=True)
    weights = [float(w) for w in rng.uniform(-0.2, 0.6, len(leaves))]
    ids = [int(rng.integers(classes)) for _ in leaves] if classes > 2 else [1] * len(leaves)
    labels = helper.make_tensor_value_info("label", TensorProto.INT64, [60])
    attributes = dict(
        class_treeids=trees, class_nodeids=numbers, class_ids=ids, class_weights=weights,
        classlabels_int64s=[7, 3, 11][:classes], post_transform="PROBIT", **nodes,
    )
    made = model("TreeEnsembleClassifier", 60, [labels, scores(classes, 60)], **attributes)
    x = features(rng, 60, missing=False)
    _, score = same(cpu_context, made, x, atol=5e-5)
    assert np.isnan(score).any() and np.isinf(score).any() and np.isfinite(score).any()
    made = model(
        "TreeEnsembleRegressor", 60, [scores(classes, 60)], n_targets=classes,
        target_treeids=trees, target_nodeids=numbers, target_ids=ids, target_weights=weights,
        post_transform="PROBIT", **nodes,
    )
    same(cpu_context, made, x, atol=5e-5)
    attributes["class_ids"] = [0] * len(leaves)
    made = model("TreeEnsembleClassifier", 60, [labels, scores(2, 60)], **{
        **attributes, "classlabels_int64s": [7, 3]})
    with pytest.raises(UnsupportedModelError, match="the first of two classes"):
        Session(made, cpu_context).run(None, {"x": x})


@pytest.mark.parametrize("base", [None, [0.1, -0.2, 0.05], [-1.0, -1.0, -1.0]])
def test_classes_without_a_leaf(cpu_context, base):
    """A class without a leaf is not the greatest, though 0 is more than the others' scores; with
    base values it may be."""
    rng = np.random.default_rng(2)
    nodes, leaves = forest(rng, 3, ["BRANCH_LEQ"])
    trees, numbers = zip(*leaves, strict=True)
    labels = helper.make_tensor_value_info("label", TensorProto.INT64, [60])
    made = model(
        "TreeEnsembleClassifier", 60, [labels, scores(3, 60)], classlabels_int64s=[7, 3, 11],
        class_treeids=trees, class_nodeids=numbers, base_values=base,
        class_ids=[int(rng.integers(3)) for _ in leaves],
        class_weights=[float(w) for w in rng.uniform(-0.3, 0.1, len(leaves))], **nodes,
    )
    label, score = same(cpu_context, made, features(rng, 60, missing=False))
    greatest = np.array([7, 3, 11])[score.argmax(axis=1)]
    assert (label != greatest).any() == (base is None)


def ensemble(**changed):
    """Two trees of opset 5; the second has one node, whose branches lead to one leaf."""
    given = dict(
        tree_roots=[0, 2], nodes_featureids=[0, 1, 2], nodes_trueleafs=[0, 1, 1],
        nodes_truenodeids=[1, 0, 2], nodes_falseleafs=[1, 1, 1], nodes_falsenodeids=[1, 2, 2],
        nodes_modes=np.uint8([0, 6, 2]), nodes_splits=np.float32([1, 0, 0]),
        membership_values=np.float32([1, 2, -3, np.nan]), leaf_targetids=[0, 1, 0],
        leaf_weights=np.float32([1, 10, 100]), n_targets=2, aggregate_function=1,
    )
    given.update(changed)
    return model("TreeEnsemble", 20, [scores(2, 20)], 5, **{
        name: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v
        for name, v in given.items()
    })


@pytest.mark.parametrize("device", DEVICES)
def test_sets_and_shared_leaves(request, device):
    x = features(np.random.default_rng(1), 20, missing=False)
    (y,) = same(request.getfixturevalue(device), ensemble(), x)
    member = (x[:, 0] <= 1) & np.isin(x[:, 1], [1, 2, -3])
    other = (x[:, 0] <= 1) & ~member
    np.testing.assert_array_equal(y[:, 0], 100 * (1 + other) + member)
    np.testing.assert_array_equal(y[:, 1], 10 * (x[:, 0] > 1))


@pytest.mark.parametrize(("changed", "message"), [
    ({"nodes_truenodeids": [0, 0, 2]}, "cycles"),
    ({"nodes_truenodeids": [9, 0, 2]}, "a node that isn't there"),
    ({"tree_roots": [-1]}, "a node that isn't there"),
    ({"nodes_featureids": [0, 1, 5]}, "beyond the 5 of the input"),
    ({"nodes_modes": np.uint8([0, 7, 2])}, "names no comparison"),
    ({"leaf_targetids": [0, 1, 2]}, "isn't there"),
    ({"post_transform": 5}, "none that ONNX knows"),
])
def test_what_is_no_ensemble(cpu_context, changed, message):
    with pytest.raises(UnsupportedModelError, match=message):
        Session(ensemble(**changed), cpu_context).run(None, {"x": np.zeros((20, 5), np.float32)})
