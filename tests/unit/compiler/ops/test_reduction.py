"""Records of the reductions, arg_min, arg_max and cumulative_sum: shapes, errors, references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from webnn_vk.compiler.ir import Emitter, Value
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


def infer(name: str, shape: tuple[int, ...], data_type: str = "float32", **arguments: Any) -> Any:
    """The output's descriptor, with absent arguments at their defaults."""
    record = OPERATORS[name]
    given = {p.name: arguments.get(p.name, p.default) for p in record.arguments}
    operand = MLOperandDescriptor(data_type, shape)
    inferred = record.validate({"input": operand}, given, "mine")
    # The normal form is a fixed point: the verifier infers once more.
    assert record.validate({"input": operand}, inferred.arguments) == inferred
    return inferred.outputs[0]


def compute(name: str, x: Any, **arguments: Any) -> np.ndarray:
    emit = Emitter()
    getattr(emit, name)(emit.constant(x), **arguments)
    (node,) = emit.nodes
    return node.evaluate(lambda value: value.data)[0]


def test_reduced_shapes() -> None:
    assert infer("reduce_sum", (2, 3, 4)).shape == ()
    assert infer("reduce_sum", (2, 3, 4), keep_dimensions=True).shape == (1, 1, 1)
    assert infer("reduce_sum", (2, 3, 4), axes=(2, 0)).shape == (3,)
    assert infer("reduce_sum", (2, 3, 4), axes=(1,), keep_dimensions=True).shape == (2, 1, 4)
    assert infer("reduce_sum", (2, 3, 4), axes=()).shape == (2, 3, 4)
    assert infer("reduce_max", (), "uint8") == MLOperandDescriptor("uint8", ())
    assert infer("arg_max", (2, 3), axis=1) == MLOperandDescriptor("int32", (2,))
    kept = infer("arg_min", (2, 3), axis=0, keep_dimensions=True, output_data_type="int64")
    assert kept == MLOperandDescriptor("int64", (1, 3))
    sums = infer("cumulative_sum", (2, 3), "uint64", axis=1)
    assert sums == MLOperandDescriptor("uint64", (2, 3))


@pytest.mark.parametrize(
    ("name", "shape", "data_type", "arguments", "message"),
    [
        ("reduce_sum", (2, 3), "float32", {"axes": (2,)}, r"axes \[2\]: 2 is not below the rank 2"),
        ("reduce_sum", (2, 3), "float32", {"axes": (1, 1)}, "duplicates"),
        ("reduce_sum", (2,), "uint8", {}, "one of float32, float16, int32, uint32, int64, uint64"),
        ("reduce_mean", (2,), "int32", {}, r"input is int32\[2\]; .* float32, float16"),
        ("arg_max", (2, 3), "float32", {"axis": 2}, "axis 2 is not below the rank"),
        ("arg_max", (), "float32", {"axis": 0}, "rank has to be 1 … 8"),
        ("arg_min", (2,), "int8", {"axis": 0, "output_data_type": "uint32"}, "int32, int64"),
        ("cumulative_sum", (2,), "int8", {"axis": 0}, "data type has to be"),
        ("cumulative_sum", (2,), "int32", {"axis": 1}, "axis 1 is not below the rank"),
    ],
)
def test_errors(name: str, shape: tuple, data_type: str, arguments: dict, message: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name} \[mine\]: .*{message}"):
        infer(name, shape, data_type, **arguments)


def test_functions() -> None:
    x = np.array([[-3, 1, 2], [4, -0.5, 0.25]], np.float32)
    expected = {
        "reduce_l1": [6, 4.75],
        "reduce_l2": [np.sqrt(14), np.sqrt(16.3125)],
        "reduce_log_sum_exp": [
            np.log(np.exp(-3) + np.exp(1) + np.exp(2)),
            np.log(np.exp(4) + np.exp(-0.5) + np.exp(0.25)),
        ],
        "reduce_max": [2, 4],
        "reduce_mean": [0, 1.25],
        "reduce_min": [-3, -0.5],
        "reduce_product": [-6, -0.5],
        "reduce_sum": [0, 3.75],
        "reduce_sum_square": [14, 16.3125],
    }
    for name, values in expected.items():
        assert_allclose(compute(name, x, axes=[1]), values, rtol=1e-6, err_msg=name)
    own = compute("reduce_log_sum", np.abs(x), axes=[1])
    assert_allclose(own, np.log([6, 4.75]), rtol=1e-6)
    assert compute("arg_min", x, axis=1).tolist() == [0, 1]
    assert compute("arg_max", x, axis=0).tolist() == [1, 0, 0]


def test_empty_axes_apply_the_function_to_each_element() -> None:
    x = np.array([-2, 3], np.float32)
    for name, values in {
        "reduce_l1": [2, 3], "reduce_l2": [2, 3], "reduce_sum": [-2, 3], "reduce_mean": [-2, 3],
        "reduce_sum_square": [4, 9], "reduce_log_sum_exp": [-2, 3], "reduce_product": [-2, 3],
        "reduce_max": [-2, 3], "reduce_min": [-2, 3],
    }.items():
        assert_allclose(compute(name, x, axes=[]), values, rtol=1e-6, err_msg=name)


def test_integers_wrap_around() -> None:
    big = np.array([2**31 - 1, 1], np.int32)
    assert compute("reduce_sum", big) == -(2**31)
    assert compute("reduce_product", big * 2) == -4
    assert compute("reduce_l1", np.array([-(2**31)], np.int32)) == -(2**31)
    assert compute("reduce_sum_square", np.array([2**32], np.uint64)) == 0
    assert compute("cumulative_sum", big, axis=0).tolist() == [2**31 - 1, -(2**31)]
    assert compute("reduce_sum", np.array([2**53, 1], np.int64)) == 2**53 + 1


def test_ties_and_nan() -> None:
    x = np.array([[1, 3, 3, 1], [1, np.nan, 5, np.nan]], np.float32)
    assert compute("arg_max", x, axis=1).tolist() == [1, 1]
    assert compute("arg_min", x, axis=1).tolist() == [0, 1]
    assert compute("arg_max", np.array([-0.0, 0.0], np.float32), axis=0) == 0
    assert np.isnan(compute("reduce_max", x, axes=[1])[1])


def test_log_sum_exp_neither_overflows_nor_vanishes() -> None:
    for value in (1000, -1000):
        x = np.full(4, value, np.float32)
        assert_allclose(compute("reduce_log_sum_exp", x), value + np.log(4), rtol=1e-6)
    assert compute("reduce_log_sum_exp", np.full(2, -np.inf, np.float32)) == -np.inf


def test_float16_is_rounded_once() -> None:
    # 2048 + 1 is no float16: adding one by one would stay at 2048.
    x = np.concatenate([[2048], np.ones(8)]).astype(np.float16)
    assert compute("reduce_sum", x) == 2056


def test_cumulative_sum() -> None:
    x = np.array([[1, 2, 3], [10, 20, 30]], np.int32)
    assert compute("cumulative_sum", x, axis=1).tolist() == [[1, 3, 6], [10, 30, 60]]
    assert compute("cumulative_sum", x, axis=0).tolist() == [[1, 2, 3], [11, 22, 33]]
    own = compute("cumulative_sum", x, axis=1, exclusive=True, reversed=True)
    assert own.tolist() == [[5, 3, 0], [50, 30, 0]]


@pytest.mark.parametrize("axes", [None, [1], [0, 2], []])
def test_emulations_of_the_draft(axes: list[int] | None) -> None:
    emit = Emitter()
    x = emit.constant(np.random.default_rng(1).uniform(0.5, 2, (2, 3, 4)).astype(np.float32))
    options = {"axes": axes, "keep_dimensions": True}
    pairs = [
        (emit.reduce_log_sum(x, **options), emit.log(emit.reduce_sum(x, **options))),
        (
            emit.reduce_log_sum_exp(x, **options),
            emit.log(emit.reduce_sum(emit.exp(x), **options)),
        ),
        (
            emit.reduce_sum_square(x, **options),
            emit.reduce_sum(emit.pow(x, emit.constant(np.float32(2))), **options),
        ),
    ]
    values: dict[Value, np.ndarray] = {}

    def lookup(value: Value) -> np.ndarray:
        return values[value] if value.data is None else value.data

    for node in emit.nodes:
        values.update(zip(node.outputs, node.evaluate(lookup), strict=True))
    for own, emulated in pairs:
        assert_allclose(values[own], values[emulated], rtol=1e-6)
