"""Linear models, support vectors and features (ai.onnx.ml) compared with ONNX Runtime."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnxruntime as ort
from onnx import ValueInfoProto, helper

from tests.support.discriminating import assert_allclose
from webnn_vk.onnx import Session, UnsupportedModelError

ROWS, FEATURES = 20, 4
X = np.random.default_rng(0).normal(size=(ROWS, FEATURES)).astype(np.float32)
NUMBERS = np.random.default_rng(1).integers(-2, 4, (ROWS, FEATURES))
NAN = np.where(np.random.default_rng(2).random(X.shape) < 0.3, np.float32(np.nan), X)


def floats(*shape):
    """The same for each shape."""
    drawn = np.random.default_rng(shape).normal(size=shape)
    return drawn.astype(np.float32).reshape(-1).tolist()


def proto_of(operator, inputs, outputs, attributes, version):
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(operator, names, outputs, "it", domain="ai.onnx.ml", **attributes)
    ports = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, inputs, strict=True)
    ]
    graph = helper.make_graph([node], "graph", ports, [ValueInfoProto(name=n) for n in outputs])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def same(cpu_context, operator, inputs, attributes, outputs=("y",), version=3):
    proto = proto_of(operator, inputs, outputs, attributes, version)
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    expected = ort.InferenceSession(proto.SerializeToString()).run(None, feeds)
    got = Session(proto, cpu_context).run(None, feeds)
    for ours, theirs in zip(got, expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    return got


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_rows_of_zeros_are_normalised_to_zeros(cpu_context, norm):
    """And a row whose largest element is 0 stays as it is."""
    rows = np.array([[0, 0, 0], [1, -5, 2], [-1, -2, 0]], np.float32)
    (got,) = same(cpu_context, "Normalizer", [rows], {"norm": norm})
    assert not got[0].any()


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize(("classes", "scores"), [(3, 3), (2, 2), (2, 1)])
def test_linear_classifier(cpu_context, classes, scores, transform):
    attributes = {
        "coefficients": floats(scores, FEATURES), "intercepts": [0.1] * scores,
        "classlabels_ints": [5, 3, 9][:classes], "post_transform": transform,
    }
    label, _ = same(cpu_context, "LinearClassifier", [X], attributes, ("label", "y"))
    assert len(np.unique(label)) > 1


@pytest.mark.parametrize(("operator", "attributes"), [
    ("LinearRegressor", {"coefficients": floats(1, FEATURES), "intercepts": [0.5]}),
    ("LinearRegressor", {"coefficients": floats(3, FEATURES), "targets": 3}),
    ("SVMRegressor", {"coefficients": floats(FEATURES), "rho": [0.5], "n_supports": 0,
                      "kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 3.0]}),
    *[("SVMRegressor", {
        "coefficients": floats(6), "rho": [0.3], "n_supports": 6, "one_class": int(kind == "RBF"),
        "support_vectors": floats(6, FEATURES), "kernel_type": kind,
        "kernel_params": [0.7, 0.4, 3.0],
    }) for kind in ("LINEAR", "POLY", "RBF", "SIGMOID")],
    ("SVMRegressor", {
        "coefficients": floats(6), "rho": [0.3], "n_supports": 6, "kernel_type": "RBF",
        "support_vectors": floats(6, FEATURES), "kernel_params": [0.7, 0.4, 3.0],
    }),
])
def test_regression(cpu_context, operator, attributes):
    same(cpu_context, operator, [X], attributes)


@pytest.mark.parametrize(("operator", "inputs", "attributes"), [
    ("Imputer", [NAN], {"imputed_value_floats": floats(FEATURES),
                        "replaced_value_float": float("nan")}),
    ("Imputer", [NUMBERS], {"imputed_value_int64s": [9], "replaced_value_int64": 2}),
    ("FeatureVectorizer", [X, X[:, :2]], {"inputdimensions": [4, 2]}),
    ("OneHotEncoder", [NUMBERS], {"cats_int64s": [3, -1, 0]}),
    ("OneHotEncoder", [X * 3], {"cats_int64s": [1, 0, -2]}),
    ("LabelEncoder", [NUMBERS], {"keys_int64s": [1, -2, 3], "values_int64s": [7, 8, 9]}),
    ("LabelEncoder", [NUMBERS], {"keys_int64s": [1, -2, 3], "values_floats": [7.0, 8.5, 9.0],
                                 "default_float": 0.25}),
    ("LabelEncoder", [np.trunc(NAN)], {"keys_floats": [1.0, float("nan"), -1.0],
                                       "values_int64s": [7, 8, 9], "default_int64": 3}),
])
@pytest.mark.parametrize("version", [3, 4])
def test_features(cpu_context, operator, inputs, attributes, version):
    """Since version 4 LabelEncoder finds NaN among its keys."""
    same(cpu_context, operator, inputs, attributes, version=version)


@pytest.mark.parametrize(("operator", "attributes", "message"), [
    ("LinearClassifier", {"coefficients": floats(4), "classlabels_ints": [1, 2],
                          "post_transform": "PROBIT"}, "leaves the second undefined"),
    ("LinearRegressor", {"coefficients": floats(5)}, "5 coefficients and 0 intercepts"),
    ("SVMRegressor", {"coefficients": floats(6), "rho": [0.0], "n_supports": 6,
                      "support_vectors": floats(5)}, "5 elements of 6 support vectors"),
    ("Imputer", {"imputed_value_floats": floats(3)}, "3 imputed values for 4 features"),
    ("OneHotEncoder", {"cats_strings": ["a"]}, "categories that are strings"),
    ("LabelEncoder", {"keys_floats": [1.0], "values_strings": ["a"]}, "no strings"),
])
def test_what_can_not_be_taken(cpu_context, operator, attributes, message):
    outputs = ("label", "y") if operator == "LinearClassifier" else ("y",)
    proto = proto_of(operator, [X], outputs, attributes, 3)
    with pytest.raises(UnsupportedModelError, match=message) as raised:
        Session(proto, cpu_context).run(None, {"x0": X})
    assert raised.value.problems[0].node == "it"
