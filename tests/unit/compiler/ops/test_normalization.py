"""Records of the normalisations and softmax: shapes, errors, references compared with the draft's
emulations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from webnn_vk.compiler.ir import Emitter, Value
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.types.data_types import MLOperandDescriptor as D


def infer(name: str, operands: dict[str, D], **arguments: Any) -> Any:
    record = OPERATORS[name]
    given = {p.name: arguments.get(p.name, p.default) for p in record.arguments}
    operands = {p.name: operands.get(p.name) for p in record.operands}
    inferred = record.validate(operands, given, "mine")
    assert record.validate(operands, inferred.arguments) == inferred
    return inferred


def evaluate(emit: Emitter) -> dict[Value, np.ndarray]:
    values: dict[Value, np.ndarray] = {}

    def lookup(value: Value) -> np.ndarray:
        return values[value] if value.data is None else value.data

    for node in emit.nodes:
        values.update(zip(node.outputs, node.evaluate(lookup), strict=True))
    return values


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.uniform(-2, 2, shape).astype(np.float32)


def test_normal_form() -> None:
    x = D("float16", (2, 3, 4))
    layer = infer("layer_normalization", {"input": x})
    assert layer.outputs == (x,) and layer.arguments["axes"] == (1, 2)
    # Epsilon is cast to the input's type.
    assert layer.arguments["epsilon"] == float(np.float16(1e-5))
    assert infer("layer_normalization", {"input": D("float32", (5,))}).arguments["axes"] == ()
    assert infer("layer_normalization", {"input": D("float32", ())}).arguments["axes"] == ()
    scale = D("float16", (4, 2))
    infer("layer_normalization", {"input": x, "scale": scale, "bias": scale}, axes=(2, 0))
    scalar = D("float16", ())
    infer("layer_normalization", {"input": x, "scale": scalar}, axes=())


@pytest.mark.parametrize(
    ("name", "operands", "arguments", "message"),
    [
        ("softmax", {"input": (2, 3)}, {"axis": 2}, "axis 2 is not below the rank"),
        ("softmax", {"input": ()}, {"axis": 0}, "rank has to be 1 … 8"),
        ("layer_normalization", {"input": (2, 3)}, {"axes": (0, 0)}, "duplicates"),
        ("layer_normalization", {"input": (2, 3)}, {"axes": (2,)}, "2 is not below the rank 2"),
        ("layer_normalization", {"input": (2, 3), "scale": (2,)}, {}, r"scale is .*\[3\] is exp"),
        ("layer_normalization", {"input": (2, 3), "bias": (2, 3)}, {"axes": (1, 0)}, r"\[3, 2\]"),
        ("instance_normalization", {"input": (2, 3, 4)}, {}, "rank has to be 4"),
        ("instance_normalization", {"input": (2, 3, 4, 5), "scale": (5,)}, {}, r"\[3\] is exp"),
        (
            "instance_normalization", {"input": (2, 3, 4, 5), "bias": (3,)}, {"layout": "nhwc"},
            r"\[5\] is expected",
        ),
        (
            "batch_normalization", {"input": (2, 3), "mean": (3,), "variance": (3,)}, {"axis": 2},
            "axis 2 is not below the rank",
        ),
        (
            "batch_normalization", {"input": (2, 3), "mean": (3,), "variance": (2,)}, {},
            r"variance is float32\[2\]; shape \[3\]",
        ),
        (
            "batch_normalization", {"input": (2, 3), "mean": (1, 3), "variance": (3,)}, {},
            "mean is .* rank has to be 1",
        ),
    ],
)
def test_errors(name: str, operands: dict, arguments: dict, message: str) -> None:
    described = {key: D("float32", shape) for key, shape in operands.items()}
    with pytest.raises(TypeError, match=rf"^{name} \[mine\]: .*{message}"):
        infer(name, described, **arguments)


def test_types_have_to_agree() -> None:
    x, half = D("float32", (2, 3)), D("float16", (3,))
    with pytest.raises(TypeError, match="input is float32, scale is float16"):
        infer("layer_normalization", {"input": x, "scale": half})
    with pytest.raises(TypeError, match="input is float32, mean is float16"):
        infer("batch_normalization", {"input": x, "mean": half, "variance": half})
    with pytest.raises(TypeError, match="input is int32"):
        infer("softmax", {"input": D("int32", (2,))}, axis=0)


def test_softmax(rng: np.random.Generator) -> None:
    emit = Emitter()
    x = emit.constant(floats(rng, 2, 3, 4))
    own = emit.softmax(x, 1)
    top = emit.reduce_max(x, axes=[1], keep_dimensions=True)
    e = emit.exp(emit.sub(x, top))
    emulated = emit.div(e, emit.reduce_sum(e, axes=[1], keep_dimensions=True))
    large = emit.softmax(emit.constant(np.array([1000, 1000, 0], np.float32)), 0)
    values = evaluate(emit)
    assert_allclose(values[own], values[emulated], rtol=1e-6)
    assert_allclose(values[own].sum(axis=1), 1, rtol=1e-6)
    assert values[large].tolist() == [0.5, 0.5, 0]


def _normalized(
    emit: Emitter, x: Value, mean: Value, variance: Value, scale: Value, bias: Value
) -> Value:
    root = emit.sqrt(emit.add(variance, emit.constant(np.float32(1e-3))))
    return emit.add(emit.mul(scale, emit.div(emit.sub(x, mean), root)), bias)


def _moments(emit: Emitter, x: Value, axes: list[int]) -> tuple[Value, Value]:
    options = {"axes": axes, "keep_dimensions": True}
    mean = emit.reduce_mean(x, **options)
    square = emit.pow(emit.sub(x, mean), emit.constant(np.float32(2)))
    return mean, emit.reduce_mean(square, **options)


def test_layer_normalization(rng: np.random.Generator) -> None:
    emit = Emitter()
    x, scale, bias = (emit.constant(floats(rng, *s)) for s in ((2, 3, 4, 5), (3, 4, 5), (3, 4, 5)))
    own = emit.layer_normalization(x, scale=scale, bias=bias, epsilon=1e-3)
    emulated = _normalized(emit, x, *_moments(emit, x, [1, 2, 3]), scale, bias)
    values = evaluate(emit)
    assert_allclose(values[own], values[emulated], rtol=1e-5, atol=1e-6)


def test_axes_order_the_dimensions_of_scale(rng: np.random.Generator) -> None:
    emit = Emitter()
    x, scale = emit.constant(floats(rng, 2, 3, 4)), emit.constant(floats(rng, 4, 2))
    own = emit.layer_normalization(x, scale=scale, axes=[2, 0])
    turned = emit.constant(np.ascontiguousarray(scale.data.T))
    same = emit.layer_normalization(x, scale=turned, axes=[0, 2])
    values = evaluate(emit)
    np.testing.assert_array_equal(values[own], values[same])


def test_no_axes_leave_the_bias(rng: np.random.Generator) -> None:
    emit = Emitter()
    x = emit.constant(floats(rng, 2, 3))
    own = emit.layer_normalization(x, axes=[], bias=emit.constant(np.float32(7)))
    assert (evaluate(emit)[own] == 7).all()


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_instance_normalization(layout: str, rng: np.random.Generator) -> None:
    emit = Emitter()
    x = emit.constant(floats(rng, 2, 3, 4, 3))
    scale, bias = emit.constant(floats(rng, 3)), emit.constant(floats(rng, 3))
    own = emit.instance_normalization(x, scale=scale, bias=bias, epsilon=1e-3, layout=layout)
    axes, shape = ([2, 3], [1, 3, 1, 1]) if layout == "nchw" else ([1, 2], [1, 1, 1, 3])
    emulated = _normalized(
        emit, x, *_moments(emit, x, axes), emit.reshape(scale, shape), emit.reshape(bias, shape)
    )
    values = evaluate(emit)
    assert_allclose(values[own], values[emulated], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, 3])
def test_batch_normalization(axis: int, rng: np.random.Generator) -> None:
    emit = Emitter()
    x = emit.constant(floats(rng, 3, 3, 2, 3))
    mean, scale, bias = (emit.constant(floats(rng, 3)) for _ in range(3))
    variance = emit.constant(floats(rng, 3) ** 2)
    operands = mean, variance, scale, bias
    own = emit.batch_normalization(
        x, mean, variance, scale=scale, bias=bias, axis=axis, epsilon=1e-3
    )
    shape = [3 if i == axis else 1 for i in range(4)]
    emulated = _normalized(emit, x, *(emit.reshape(o, shape) for o in operands))
    bare = emit.batch_normalization(x, mean, variance, axis=axis, epsilon=1e-3)
    values = evaluate(emit)
    assert_allclose(values[own], values[emulated], rtol=1e-5, atol=1e-6)
    s, t = (o.data.reshape(shape) for o in (scale, bias))
    assert_allclose(values[bare] * s + t, values[own], rtol=1e-5, atol=1e-6)
