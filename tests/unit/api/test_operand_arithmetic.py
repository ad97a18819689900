"""Python's operators on operands, and constants that are stored once."""

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from webnn_vk import MLGraphBuilder

F4 = {"data_type": "float32", "shape": [4]}
X = np.array([1, 2, 3, 4], np.float32)
Y = np.array([4, 2, 0.5, -1], np.float32)


@pytest.fixture
def builder(cpu_context):
    return MLGraphBuilder(cpu_context)


@pytest.mark.parametrize(
    "expression",
    [
        lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: x / y,
        lambda x, y: x ** y, lambda x, y: -x, lambda x, y: x + 2, lambda x, y: 2 + x,
        lambda x, y: x - 0.5, lambda x, y: 0.5 - x, lambda x, y: 3 * x,
        lambda x, y: x * np.int64(3),
        lambda x, y: np.float32(2) * x, lambda x, y: x / 4, lambda x, y: 4 / x,
        lambda x, y: x ** 2, lambda x, y: 2 ** x,
        lambda x, y: x < y, lambda x, y: x <= y, lambda x, y: x > y, lambda x, y: x >= y,
        lambda x, y: 2 < x, lambda x, y: x <= 2, lambda x, y: 2.0 >= x, lambda x, y: x > 3,
        lambda x, y: (x + y) * 2 - x / (y * y),
    ],
)
def test_as_numpy_computes_them(cpu_context, builder, expression):
    x, y = builder.input("x", F4), builder.input("y", F4)
    used = expression(x, y) + (x + y) * 0 if expression(x, y).data_type == "float32" else (
        builder.cast(expression(x, y), "float32") + (x + y) * 0
    )
    graph = builder.build({"z": used}).result()
    result = cpu_context.compute(graph, {"x": X, "y": Y})["z"]
    assert_allclose(result, expression(X, Y).astype(np.float32), rtol=1e-6)


def test_matrices(cpu_context, builder):
    a = builder.input("a", {"data_type": "float32", "shape": [2, 3]})
    b = builder.input("b", {"data_type": "float32", "shape": [3, 2]})
    graph = builder.build({"c": a @ b}).result()
    given = {"a": np.arange(6).reshape(2, 3), "b": np.arange(6).reshape(3, 2)}
    given = {name: array.astype(np.float32) for name, array in given.items()}
    result = cpu_context.compute(graph, given)["c"]
    np.testing.assert_array_equal(result, given["a"] @ given["b"])
    with pytest.raises(TypeError, match="unsupported operand"):
        builder_of(cpu_context) @ 2


def builder_of(context):
    return MLGraphBuilder(context).input("x", F4)


def test_numbers_take_the_operands_type(builder):
    x = builder.input("x", {"data_type": "int8", "shape": [2]})
    assert (x + 2).data_type == (2 * x).data_type == "int8"
    with pytest.warns(RuntimeWarning, match="constant: 1.5 is truncated to 1 as int8") as warned:
        x + 1.5
    with pytest.warns(RuntimeWarning, match="300 is clamped to 127"):
        300 < x  # noqa: B015
    assert warned[0].filename == __file__


def test_identity_and_no_truth(builder):
    x, y = builder.input("x", F4), builder.input("y", F4)
    assert (x == y) is False and (x != y) is True and (x == x) is True
    assert {x: 1}[x] == 1
    with pytest.raises(TypeError, match="<MLOperand lesser: uint8.4.> has no truth value"):
        bool(x < y)
    with pytest.raises(TypeError, match="no truth value"):
        1 < x < 3  # noqa: B015


@pytest.mark.parametrize("other", [True, "2", None, [1, 2], np.ones(4, np.float32)])
def test_other_things_beside_an_operand(builder, other):
    x = builder.input("x", F4)
    for combine in (lambda: x + other, lambda: other + x):
        with pytest.raises(TypeError):
            combine()


def test_types_and_builders_do_not_mix(cpu_context, builder):
    x = builder.input("x", F4)
    with pytest.raises(TypeError, match="add: a is float32, b is int8"):
        x + builder.input("y", {"data_type": "int8", "shape": [4]})
    with pytest.raises(TypeError, match="belongs to another builder"):
        x + builder_of(cpu_context)


def test_equal_constants_are_stored_once(cpu_context, builder):
    large = np.arange(4096, dtype=np.float32)
    other = large.copy()
    other[2000] = -1  # neither at the beginning nor at the end
    same = [builder.constant(large), builder.constant(large.copy()),
            builder.constant({"data_type": "float32", "shape": [4096]}, large.tobytes())]
    different = [builder.constant(other), builder.constant(large.view(np.int32)),
                 builder.constant(large.reshape(64, 64))]
    assert len({id(c._value) for c in same}) == 1
    assert len({id(c._value) for c in [same[0], *different]}) == 4
    numbers = [builder.constant("float32", n) for n in (0.0, 0, -0.0, 0.0)]
    assert len({id(c._value) for c in numbers}) == 2
    assert len({id(builder.constant("float32", float("nan"))._value) for _ in "ab"}) == 1
    x = builder.input("x", {"data_type": "float32", "shape": [4096]})
    graph = builder.build({"y": x + same[0] + same[1], "z": x * different[0]}).result()
    large[:] = 0  # copied before
    result = cpu_context.compute(graph, {"x": np.zeros(4096, np.float32)})
    np.testing.assert_array_equal(result["y"], 2 * np.arange(4096, dtype=np.float32))
    assert graph.report().weight_bytes == 2 * 4 * 4096
    assert repr(same[0]) == "<MLOperand constant: float32[4096]>"
