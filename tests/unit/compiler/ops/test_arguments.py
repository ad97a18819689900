"""Python arguments as the IDL's values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from webnn_vk.compiler.ops.arguments import (
    U32,
    Argument,
    Bool,
    DataTypeName,
    Double,
    Enum,
    Number,
    SequenceOf,
    Shape,
    U32OrShape,
)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Number, 2**70, 2**70), (Number, np.int64(-3), -3), (Number, np.float32(0.5), 0.5),
        (Number, math.inf, math.inf), (Double, 3, 3.0), (Double, np.float16(0.5), 0.5),
        (Bool, 0, False), (Bool, "x", True), (Enum("a", "b"), "b", "b"),
        (DataTypeName, "int8", "int8"), (Shape, np.array([1, 2]), (1, 2)),
        (SequenceOf(U32), [1, 2.0], (1, 2)), (SequenceOf(Double), (1, 2), (1.0, 2.0)),
        (U32OrShape, 3, 3), (U32OrShape, [3, 4], (3, 4)),
        # Subclasses of str: kernels' options are plain.
        (Enum("a", "b"), np.str_("b"), "b"), (DataTypeName, np.str_("int8"), "int8"),
    ],
)
def test_converted(kind: Argument, value: Any, expected: Any) -> None:
    made = kind.convert(value, "x")
    assert made == expected and type(made) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Number, True, "x: a number is expected, not a bool"),
        (Number, "1", "x: a number is expected, not str '1'"),
        (Double, math.nan, "x: a finite number is expected, not nan"),
        (Double, math.inf, "x: a finite number"),
        (Double, 10**400, "x: 1000+ is too large for a double"),
        (Double, np.bool_(True), "x: a number is expected, not a bool"),
        (Enum("a", "b"), "c", "x: 'c' is not one of a, b"),
        (Enum("a", "b"), None, "x: None is not one of a, b"),
        (DataTypeName, "float64", "x: .*float64.* is not a data type"),
        (SequenceOf(U32), "12", "x: a sequence is expected, not str '12'"),
        (SequenceOf(U32), 1, "x: a sequence is expected, not int 1"),
        (SequenceOf(U32), [1, -1], r"x\[1\]: -1 is outside"),
        (U32OrShape, "3", "x: an integer is expected"),
        (U32OrShape, [3, "4"], r"x\[1\]: an integer is expected"),
    ],
)
def test_refused(kind: Argument, value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        kind.convert(value, "x")
