"""Gather and scatter operators: validation, and the reference compared with the draft's examples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.ops.gather import resolve_indices
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


def infer(name: str, operands: list[tuple], axis: int | None = None) -> Any:
    """Validated outputs; operands are (shape, data type) in the operator's order."""
    operator = OPERATORS[name]
    described = {
        p.name: MLOperandDescriptor(data_type, shape)
        for p, (shape, data_type) in zip(operator.operands, operands, strict=True)
    }
    arguments = {p.name: p.default if axis is None else axis for p in operator.arguments}
    return operator.validate(described, arguments, "here")


def compute(name: str, *arrays: np.ndarray, axis: int | None = None) -> list:
    inferred = infer(name, [(a.shape, a.dtype.name) for a in arrays], axis)
    operands = dict(zip((p.name for p in OPERATORS[name].operands), arrays, strict=True))
    return OPERATORS[name].evaluate(inferred.outputs, operands, inferred.arguments)[0].tolist()


F, INT = "float32", "int32"

SHAPES = [
    ("gather", [((4, 3), F), ((2, 5), INT)], None, (2, 5, 3)),
    ("gather", [((4, 3), F), ((2, 5), INT)], 1, (4, 2, 5)),
    ("gather", [((4,), F), ((), "int64")], None, ()),
    ("gather_elements", [((4, 3), F), ((4, 9), "uint32")], 1, (4, 9)),
    ("gather_nd", [((2, 3, 4), F), ((5, 2), INT)], None, (5, 4)),
    ("gather_nd", [((2, 3), F), ((2,), INT)], None, ()),
    ("scatter_elements", [((4, 3), F), ((9, 3), INT), ((9, 3), F)], 0, (4, 3)),
    ("scatter_nd", [((2, 3, 4), F), ((5, 2), INT), ((5, 4), F)], None, (2, 3, 4)),
]


@pytest.mark.parametrize(("name", "operands", "axis", "expected"), SHAPES)
def test_shapes(name: str, operands: list, axis: int | None, expected: tuple) -> None:
    assert [d.shape for d in infer(name, operands, axis).outputs] == [expected]


FAULTS = [
    ("gather", [((4, 3), F), ((2,), INT)], 2, "axis 2"),
    ("gather", [((), F), ((2,), INT)], None, "rank"),
    ("gather", [((4,), F), ((2,), F)], None, "data type"),
    ("gather", [((4,), F), ((2,), "uint64")], None, "data type"),
    ("gather_elements", [((4, 3), F), ((4,), INT)], None, "same rank"),
    ("gather_elements", [((4, 3), F), ((4, 2), INT)], 0, "only dimension 0 may differ"),
    ("gather_elements", [((4, 3), F), ((4, 3), INT)], 2, "axis 2"),
    ("gather_nd", [((4, 3), F), ((5, 3), INT)], None, "coordinates of 3"),
    ("gather_nd", [((4, 3), F), ((), INT)], None, "rank"),
    ("scatter_elements", [((4,), F), ((2,), INT), ((2,), INT)], None, "same data type"),
    ("scatter_elements", [((4,), F), ((2,), INT), ((3,), F)], None, "updates"),
    ("scatter_elements", [((4, 2), F), ((2, 3), INT), ((2, 3), F)], None, "only dimension 0"),
    ("scatter_nd", [((4, 3), F), ((5, 1), INT), ((5, 4), F)], None, "updates"),
    ("scatter_nd", [((4, 3), F), ((5, 3), INT), ((5,), F)], None, "coordinates of 3"),
    ("scatter_nd", [((4, 3), F), ((5, 1), INT), ((5, 3), "float16")], None, "same data type"),
]


@pytest.mark.parametrize(("name", "operands", "axis", "message"), FAULTS)
def test_faults_are_type_errors(name: str, operands: list, axis: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message) as caught:
        infer(name, operands, axis)
    assert str(caught.value).startswith(f"{name} [here]: ")


INPUT = np.array([[0, 1, 2], [10, 11, 12], [20, 21, 22], [30, 31, 32]], np.float32)
CUBE = np.arange(8, dtype=np.float32).reshape(2, 2, 2)


def _indices(values: Any, data_type: str = "uint32") -> np.ndarray:
    return np.array(values, data_type)


def test_gather_examples_of_the_draft() -> None:
    assert compute("gather", INPUT, _indices([3, 1])) == [[30, 31, 32], [10, 11, 12]]
    assert compute("gather", INPUT, _indices([2, 1, 1]), axis=1) == [
        [2, 1, 1], [12, 11, 11], [22, 21, 21], [32, 31, 31]
    ]
    assert compute("gather", INPUT, _indices([[0, 1], [1, 2]]), axis=1)[3] == [[30, 31], [31, 32]]
    assert compute("gather_elements", INPUT, _indices([[3, 1, 1], [2, 0, 3]])) == [
        [30, 11, 12], [20, 1, 32]
    ]
    assert compute("gather_elements", INPUT, _indices([[2], [1], [0], [2]]), axis=1) == [
        [2], [11], [20], [32]
    ]
    assert compute("gather_nd", CUBE, _indices([[0, 1], [1, 0]])) == [[2, 3], [4, 5]]
    assert compute("gather_nd", CUBE, _indices([[1], [0], [1]]))[0] == [[4, 5], [6, 7]]
    assert compute("gather_nd", CUBE, _indices([[0, 0, 1], [1, 1, 1]])) == [1, 7]


def test_scatter_examples_of_the_draft() -> None:
    updates = np.array([[-1, -2, -3], [-4, -5, -6]], np.float32)
    assert compute("scatter_elements", INPUT, _indices([[3, 1, 1], [2, 0, 3]]), updates) == [
        [0, -5, 2], [10, -2, -3], [-4, 21, 22], [-1, 31, -6]
    ]
    column = np.array([[-1], [-2], [-3], [-4]], np.float32)
    assert compute("scatter_elements", INPUT, _indices([[2], [1], [0], [2]]), column, axis=1) == [
        [0, 1, -1], [10, -2, 12], [-3, 21, 22], [30, 31, -4]
    ]
    eight = np.arange(8, dtype=np.float32)
    assert compute("scatter_nd", eight, _indices([[4], [3], [1], [7]]), -1 - eight[:4]) == [
        0, -3, 2, -2, -1, 5, 6, -4
    ]
    assert compute("scatter_nd", CUBE, _indices([[0, 1], [1, 0]]), -1 - CUBE[0]) == [
        [[0, 1], [-1, -2]], [[-3, -4], [6, 7]]
    ]


def test_indices_count_from_the_end_and_are_clamped() -> None:
    signed = _indices([-1, -4, -5, 3, 4, -(2**63), 2**63 - 1], "int64")
    assert resolve_indices(signed, 4).tolist() == [3, 0, 0, 3, 3, 0, 3]
    assert resolve_indices(_indices([0, 3, 4, 2**32 - 1]), 4).tolist() == [0, 3, 3, 3]


def test_the_last_of_several_updates_wins() -> None:
    many = np.arange(1000, dtype=np.float32)
    indices = np.tile(_indices([0, 2], "int32"), 500)
    assert compute("scatter_elements", np.full(3, -1, np.float32), indices, many) == [998, -1, 999]
    rows = np.full((3, 2), -1, np.float32)
    pairs = many[:, None].repeat(2, 1)
    assert compute("scatter_nd", rows, indices[:, None], pairs) == [
        [998, 998], [-1, -1], [999, 999]
    ]


def test_the_input_is_left_alone() -> None:
    x = np.zeros(4, np.float32)
    compute("scatter_elements", x, _indices([1]), np.ones(1, np.float32))
    compute("scatter_nd", x, _indices([[1]]), np.ones(1, np.float32))
    assert not x.any()
