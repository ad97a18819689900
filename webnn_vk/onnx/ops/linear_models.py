"""Linear models and support vectors of ai.onnx.ml, and what prepares their features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext, check_made
from ..errors import Unsupported, refuse_if
from ..records import MICROSOFT, onnx_operator
from ..values import Tensor, Text
from .classical import ML
from .trees import labelled, transformed


def _rows(c: NodeContext, x: Tensor) -> MLOperand:
    """[rows, features] as float32; a vector is one row."""
    refuse_if(x.rank not in (1, 2), f"an input of rank {x.rank}, not rows of features")
    return c.cast(c.reshape(x, [1, x.size]) if x.rank == 1 else x, "float32")


def _linear(
    c: NodeContext, rows: MLOperand, coefficients: Sequence[float], intercepts: Sequence[float],
    targets: int,
) -> MLOperand:
    features = rows.shape[1]
    if len(coefficients) != targets * features or len(intercepts) not in (0, targets):
        raise Unsupported(
            f"{len(coefficients)} coefficients and {len(intercepts)} intercepts for {targets} "
            f"targets of {features} features"
        )
    matrix = c.constant(np.array(coefficients).reshape(targets, features), "float32")
    options = {"c": c.constant(list(intercepts), "float32")} if intercepts else {}
    return c.b.gemm(rows, matrix, b_transpose=True, **options)


@onnx_operator("LinearRegressor", domain=ML)
def linear_regressor(
    c: NodeContext, x: Tensor, *, coefficients: list[float], intercepts: list[float] | None = None,
    post_transform: str = "NONE", targets: int = 1,
) -> MLOperand:
    scores = _linear(c, _rows(c, x), coefficients, intercepts or [], targets)
    return transformed(c, scores, post_transform)


@onnx_operator("LinearClassifier", domain=ML)
def linear_classifier(
    c: NodeContext, x: Tensor, *, coefficients: list[float],
    classlabels_ints: list[int] | None = None, classlabels_strings: list[str] | None = None,
    intercepts: list[float] | None = None, multi_class: int = 0, post_transform: str = "NONE",
) -> tuple[MLOperand | Text | None, MLOperand]:
    rows = _rows(c, x)
    count = len(coefficients) // rows.shape[1]
    scores = _linear(c, rows, coefficients, intercepts or [], count)
    labels = classlabels_ints or []
    if count > 1:
        best = c.b.arg_max(scores, 1, output_data_type="int64")
        scores = transformed(c, scores, post_transform)
    else:
        # The score of the second of two classes.
        best = c.cast(c.b.greater(c.reshape(scores, scores.shape[:1]), 0.0), "int64")
        count = len(labels or classlabels_strings or [])
        refuse_if(count != 2, f"{count} labels for one score, which tells two classes apart")
        if post_transform == "LOGISTIC":
            scores = c.b.sigmoid(c.b.concat([c.b.neg(scores), scores], 1))
        elif post_transform == "PROBIT":
            raise Unsupported("PROBIT of one score for two classes: ONNX Runtime leaves the second "
                              "undefined")
        else:
            scores = c.b.concat([c.b.linear(scores, alpha=-1.0, beta=1.0), scores], 1)
    return labelled(c, best, labels, classlabels_strings), scores


@onnx_operator("SVMRegressor", domain=ML)
def svm_regressor(
    c: NodeContext, x: Tensor, *, coefficients: list[float], rho: list[float],
    kernel_params: list[float] | None = None, kernel_type: str = "LINEAR", n_supports: int = 0,
    one_class: int = 0, post_transform: str = "NONE", support_vectors: list[float] | None = None,
) -> MLOperand:
    rows = _rows(c, x)
    if n_supports:
        vectors = np.array(support_vectors or [], np.float32)
        if vectors.size != n_supports * rows.shape[1]:
            raise Unsupported(f"{vectors.size} elements of {n_supports} support vectors for "
                              f"{rows.shape[1]} features")
        near = _kernel(c, rows, vectors.reshape(n_supports, -1), kernel_type, kernel_params)
    else:
        near = rows
    result = _linear(c, near, coefficients, rho[:1], 1)
    if one_class:
        result = c.b.where(c.b.greater(result, 0.0), c.constant(1, "float32"),
                           c.constant(-1, "float32"))
    return result


@onnx_operator("SVMClassifier", domain=ML)
def svm_classifier(
    c: NodeContext, x: Tensor, *, coefficients: list[float], rho: list[float],
    classlabels_ints: list[int] | None = None, classlabels_strings: list[str] | None = None,
    kernel_params: list[float] | None = None, kernel_type: str = "LINEAR",
    post_transform: str = "NONE", prob_a: list[float] | None = None,
    prob_b: list[float] | None = None, support_vectors: list[float] | None = None,
    vectors_per_class: list[int] | None = None,
) -> tuple[MLOperand | Text | None, MLOperand]:
    """Each pair of classes has a score and votes for one of the two."""
    rows, counts = _rows(c, x), vectors_per_class or []
    if prob_a or prob_b:
        raise Unsupported("probabilities (prob_a, prob_b), which ONNX Runtime iterates towards")
    if post_transform != "NONE" or not sum(counts) or len(counts) < 2:
        raise Unsupported("post_transform, or no support vectors of two classes or more")
    vectors = np.array(support_vectors or [], np.float32)
    total, classes = sum(counts), len(counts)
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    if (min(counts) < 0 or vectors.size != total * rows.shape[1] or len(rho) != len(pairs)
            or len(coefficients) != (classes - 1) * total
            or len(classlabels_ints or classlabels_strings or []) != classes):
        raise Unsupported(f"support vectors, coefficients, rho or labels for other than {classes} "
                          f"classes of {rows.shape[1]} features")
    near = _kernel(c, rows, vectors.reshape(total, -1), kernel_type, kernel_params)
    given = np.array(coefficients, np.float32).reshape(classes - 1, total)
    ends = np.cumsum([0, *counts])
    weights = np.zeros((len(pairs), total), np.float32)
    voted = np.zeros((2, len(pairs), classes), np.float32)
    for number, (i, j) in enumerate(pairs):
        weights[number, ends[i] : ends[i + 1]] = given[j - 1, ends[i] : ends[i + 1]]
        weights[number, ends[j] : ends[j + 1]] = given[i, ends[j] : ends[j + 1]]
        voted[0, number, i] = voted[1, number, j] = 1
    scores = _linear(c, near, weights.reshape(-1).tolist(), rho, len(pairs))
    first = c.b.cast(c.b.greater(scores, 0.0), "float32")
    second = c.b.linear(first, alpha=-1.0, beta=1.0)
    for_first, for_second = (c.constant(v, "float32") for v in voted)
    votes = c.b.add(c.b.matmul(first, for_first), c.b.matmul(second, for_second))
    best = c.b.arg_max(votes, 1, output_data_type="int64")
    if classes == 2:
        scores = c.b.concat([c.b.neg(scores), scores], 1)
    return labelled(c, best, classlabels_ints, classlabels_strings), scores


def _kernel(
    c: NodeContext, rows: MLOperand, vectors: np.ndarray, kind: str, params: list[float] | None
) -> MLOperand:
    """[rows, vectors]: how near each row is to each vector."""
    gamma, coef0, degree = [*(params or []), 0.0, 0.0, 0.0][:3]
    product = c.b.gemm(rows, c.constant(vectors, "float32"), b_transpose=True)
    match kind:
        case "LINEAR":
            return product
        case "POLY":
            return c.b.pow(c.b.linear(product, alpha=gamma, beta=coef0), degree)
        case "SIGMOID":
            return c.b.tanh(c.b.linear(product, alpha=gamma, beta=coef0))
        case "RBF":
            check_made(rows.shape[0], *vectors.shape)
            count, features = rows.shape
            apart = c.b.sub(
                c.reshape(rows, [count, 1, features]), c.constant(vectors[None], "float32")
            )
            square = c.b.reduce_sum_square(apart, axes=[2])
            return c.b.exp(c.b.mul(square, -gamma))
    raise Unsupported(f"kernel_type {kind!r} is unknown")


@onnx_operator("CDist", domain=MICROSOFT)
def distances(
    c: NodeContext, a: Tensor, b: Tensor, *, metric: str = "sqeuclidean"
) -> MLOperand:
    """The distance of each row of a to each row of b, as in exports of nearest neighbours."""
    refuse_if(metric not in ("euclidean", "sqeuclidean"), f"metric {metric!r} is unknown")
    (count, features), others = a.shape, b.shape[0]
    check_made(count, others, features)

    def of(v: MLOperand) -> MLOperand:
        other = c.cast(b, v.data_type)
        apart = c.b.sub(c.reshape(v, [count, 1, features]), c.reshape(other, [1, others, features]))
        squares = c.b.reduce_sum_square(apart, axes=[2])
        return squares if metric == "sqeuclidean" else c.b.sqrt(squares)

    return c.widened(a, of)


# -- features ------------------------------------------------------------------------------------
@onnx_operator("Imputer", domain=ML)
def imputer(
    c: NodeContext, x: Tensor, *, imputed_value_floats: list[float] | None = None,
    imputed_value_int64s: list[int] | None = None, replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> MLOperand:
    integers = x.type.startswith("int")
    given = imputed_value_int64s if integers else imputed_value_floats
    if not given or len(given) not in (1, x.shape[-1]):
        raise Unsupported(f"{len(given or [])} imputed values for {x.shape[-1]} features")
    replaced: float = replaced_value_int64 if integers else replaced_value_float
    if replaced != replaced:
        missing = c.b.is_nan(x)
    else:
        missing = c.b.equal(x, replaced)
    return c.b.where(missing, c.constant(given, x.operand.data_type), x)


@onnx_operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(
    c: NodeContext, *inputs: Tensor, inputdimensions: list[int] | None = None
) -> MLOperand:
    parts = []
    for number, x in enumerate(inputs):
        rows = _rows(c, x)
        width = inputdimensions[number] if inputdimensions else rows.shape[1]
        rows = c.slice(rows, 1, 0, min(width, rows.shape[1]))
        parts.append(c.pad(rows, [(0, 0), (0, width - rows.shape[1])]))
    return parts[0] if len(parts) == 1 else c.b.concat(parts, 1)


@onnx_operator("OneHotEncoder", domain=ML)
def one_hot_encoder(
    c: NodeContext, x: Tensor, *, cats_int64s: list[int] | None = None,
    cats_strings: list[str] | None = None, zeros: int = 1,
) -> MLOperand:
    refuse_if(not cats_int64s, "categories that are strings; WebNN has none")
    refuse_if(not zeros, "zeros=0: WebNN has no errors for what is in no category")
    check_made(x.size, len(cats_int64s))
    numbers = c.reshape(c.cast(x, "int64"), [*x.shape, 1])
    return c.cast(c.b.equal(numbers, c.constant(cats_int64s, "int64")), "float32")


@onnx_operator("LabelEncoder", domain=ML, first=2)
def label_encoder(
    c: NodeContext, x: Tensor, *, default_float: float = -0.0, default_int64: int = -1,
    default_string: str = "", default_tensor: np.ndarray | None = None,
    keys_floats: list[float] | None = None, keys_int64s: list[int] | None = None,
    keys_strings: list[str] | None = None, keys_tensor: np.ndarray | None = None,
    values_floats: list[float] | None = None, values_int64s: list[int] | None = None,
    values_strings: list[str] | None = None, values_tensor: np.ndarray | None = None,
) -> MLOperand:
    keys = _numbers(keys_int64s, keys_floats, keys_tensor)
    values = _numbers(values_int64s, values_floats, values_tensor)
    if keys is None or values is None or keys.size != values.size or not keys.size:
        raise Unsupported("no numbers as keys and values, as many of both; WebNN has no strings")
    if default_tensor is not None:
        default = np.asarray(default_tensor).reshape(-1)[0]
    else:
        default = default_int64 if values.dtype.kind == "i" else default_float
    check_made(x.size, keys.size)
    kind, looked_at = x.operand.data_type, c.reshape(x, [*x.shape, 1])
    hit = c.b.equal(looked_at, c.constant(keys, kind))
    if c.version >= 4 and keys.dtype.kind == "f" and np.isnan(keys).any():
        of_nan = c.constant(np.isnan(keys), "uint8")
        hit = c.b.logical_or(hit, c.b.logical_and(of_nan, c.b.is_nan(looked_at)))
    some = c.b.reduce_max(hit, axes=[x.rank])
    first = c.b.arg_max(c.cast(hit, "float32"), x.rank, output_data_type="int32")
    made = "int64" if values.dtype.kind == "i" else "float32"
    found = c.b.gather(c.constant(values, made), first)
    return c.b.where(some, found, c.constant(default, made))


def _numbers(
    ints: list[int] | None, floats: list[float] | None, tensor: np.ndarray | None
) -> np.ndarray | None:
    if ints:
        return np.array(ints, np.int64)
    if floats:
        return np.array(floats, np.float32)
    if tensor is None or np.asarray(tensor).dtype.kind not in "if":
        return None
    return np.asarray(tensor).reshape(-1)
