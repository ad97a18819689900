"""The record of resample2d: shapes, errors, reference compared with the draft's example and
formulas."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from webnn_vk.compiler.ir import Emitter
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


def infer(shape: tuple[int, ...] = (1, 2, 4, 10), **arguments: Any) -> Any:
    record = OPERATORS["resample2d"]
    given = {p.name: arguments.get(p.name, p.default) for p in record.arguments}
    operand = MLOperandDescriptor("float32", shape)
    inferred = record.validate({"input": operand}, given, "mine")
    assert record.validate({"input": operand}, inferred.arguments) == inferred
    return inferred.outputs[0].shape


def compute(x: np.ndarray, **arguments: Any) -> np.ndarray:
    emit = Emitter()
    emit.resample2d(emit.constant(x), **arguments)
    return emit.nodes[0].evaluate(lambda value: value.data)[0]


def test_shapes() -> None:
    assert infer() == (1, 2, 4, 10)
    assert infer(scales=(0.5, 2.0)) == (1, 2, 2, 20)
    # As a product of doubles this would be 6.999….
    assert infer(scales=(1.0, 0.7)) == (1, 2, 4, 7)
    assert infer(scales=(0.5, 0.5), sizes=(3, 6)) == (1, 2, 3, 6)
    assert infer(sizes=(3, 6), axes=(3, 0)) == (6, 2, 4, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scales": (1.0,)}, "two positive numbers"),
        ({"scales": (1.0, -1.0)}, "two positive numbers"),
        ({"scales": (1.0, 0.0), "sizes": (1, 1)}, "two positive numbers"),
        ({"sizes": (1, 0)}, "two positive integers"),
        ({"sizes": (1, 2, 3)}, "two positive integers"),
        ({"axes": (1, 1)}, "duplicates"),
        ({"axes": (2, 4)}, "4 is not below the rank 4"),
        ({"axes": (1,)}, "two axes"),
        ({"scales": (0.2, 1.0)}, "not valid dimensions"),
        ({"scales": (1.0, 1e38)}, "not valid dimensions"),
        ({"sizes": (2**31, 1)}, "not valid dimensions"),
    ],
)
def test_errors(arguments: dict, message: str) -> None:
    with pytest.raises(TypeError, match=rf"^resample2d \[mine\]: .*{message}"):
        infer(**arguments)


def test_the_example_of_the_draft() -> None:
    x = np.array([[0, 1, 2, 3], [0, 1, 2, 3], [12, 13, 14, 15], [12, 13, 14, 15]], np.float32)
    own = compute(x.reshape(1, 1, 4, 4), scales=[2, 2], mode="linear")[0, 0]
    row = np.array([0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3])
    for y, base in enumerate([0, 0, 0, 3, 9, 12, 12, 12]):
        assert own[y].tolist() == (row + base).tolist()


@pytest.mark.parametrize(("size", "new_size"), [(2, 5), (5, 2), (3, 3), (4, 7), (7, 4), (1, 4)])
@pytest.mark.parametrize("axis", [0, 2])
def test_formulas_of_the_draft(size: int, new_size: int, axis: int) -> None:
    shape = [1, 1, 1, 1]
    shape[axis] = size
    values = np.random.default_rng(5).uniform(-1, 1, size).astype(np.float32)
    x, sizes, axes = values.reshape(shape), [1, new_size], [3, axis]
    nearest, linear = [], []
    for o in range(new_size):
        at = min(max((o + 0.5) / (new_size / size) - 0.5, 0), size - 1)
        nearest.append(values[math.ceil(at - 0.5)])
        left, right, t = values[math.floor(at)], values[math.ceil(at)], at - math.floor(at)
        linear.append(left * (1 - t) + right * t)
    assert compute(x, sizes=sizes, axes=axes).ravel().tolist() == nearest
    own = compute(x, sizes=sizes, axes=axes, mode="linear").ravel()
    assert_allclose(own, linear, rtol=1e-6, atol=1e-6)


def test_integers_round_to_nearest() -> None:
    x = np.array([0, 255], np.uint8).reshape(1, 1, 1, 2)
    own = compute(x, sizes=[1, 5], mode="linear")
    # Weights 0, 0.1, 0.5, 0.9, 1 of 255; 127.5 goes to the even 128.
    assert own.dtype == np.uint8 and own.ravel().tolist() == [0, 26, 128, 230, 255]
    own = compute(x.view(np.int8), sizes=[1, 4])
    assert own.ravel().tolist() == [0, 0, -1, -1]


@pytest.mark.parametrize("mode", ["linear", "nearest-neighbor"])
@pytest.mark.parametrize(("old", "new"), [((20_000, 1), (1, 20_000)), ((1, 20_000), (20_000, 1))])
def test_nothing_outgrows_input_and_output(
    mode: str, old: tuple[int, int], new: tuple[int, int]
) -> None:
    """One axis shrinks and the other grows: an intermediate could have the product of both."""
    x = np.arange(20_000, dtype=np.float32).reshape(1, 1, *old)
    tracemalloc.start()
    try:
        y = compute(x, mode=mode, sizes=list(new))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50 * x.nbytes
    # The shrinking axis takes its middle, the growing one repeats its only element.
    middle = 9999.5 if mode == "linear" else 9999
    assert y.shape == (1, 1, *new) and (y == middle).all()


def test_either_way_gives_the_same_bits() -> None:
    """If the elements are selected first, in the kernel's order of computation."""
    x = np.random.default_rng(3).integers(-128, 128, (1, 2, 9, 5)).astype(np.int8)
    tall = compute(x, mode="linear", sizes=[4, 11])
    plain = compute(compute(x.astype(np.float32), mode="linear", sizes=[9, 11]), mode="linear",
                    sizes=[4, 11])
    np.testing.assert_array_equal(tall, np.rint(plain).astype(np.int8))
