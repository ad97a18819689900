"""Movement operators: validation, shapes, and the reference compared with values computed by hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


def describe(shape: Any, data_type: str = "float32") -> MLOperandDescriptor:
    return MLOperandDescriptor(data_type, tuple(shape))


def infer(name: str, operands: Any, **arguments: Any) -> Any:
    """Validated outputs and arguments; ``operands`` is a shape, or a list of shapes for concat."""
    operator = OPERATORS[name]
    given = {p.name: p.default for p in operator.arguments} | {
        p.name: p.argument.convert(arguments[p.name], p.name)
        for p in operator.arguments if p.name in arguments
    }
    if name == "concat":
        described = {"inputs": tuple(map(describe, operands))}
    else:
        described = {"input": describe(operands)}
    inferred = operator.validate(described, given, "here")
    # The verifier infers again from the normal form.
    assert operator.validate(described, dict(inferred.arguments), "").outputs == inferred.outputs
    return inferred


def shapes(name: str, operands: Any, **arguments: Any) -> list[tuple[int, ...]]:
    return [d.shape for d in infer(name, operands, **arguments).outputs]


def compute(name: str, x: Any, **arguments: Any) -> Any:
    """The reference's result on an array (or a list of them for concat)."""
    many = isinstance(x, list)
    inferred = infer(name, [a.shape for a in x] if many else x.shape, **arguments)
    dtype = (x[0] if many else x).dtype.name
    outputs = [MLOperandDescriptor(dtype, d.shape) for d in inferred.outputs]
    results = OPERATORS[name].evaluate(
        outputs, {"inputs" if many else "input": x}, inferred.arguments
    )
    return results[0] if len(results) == 1 else results


SHAPES = [
    ("reshape", (2, 3, 4), {"new_shape": [6, 4]}, (6, 4)),
    ("reshape", (1, 1), {"new_shape": []}, ()),
    ("reshape", (), {"new_shape": [1, 1]}, (1, 1)),
    ("transpose", (2, 3, 4), {}, (4, 3, 2)),
    ("transpose", (2, 3, 4), {"permutation": [0, 2, 1]}, (2, 4, 3)),
    ("transpose", (), {}, ()),
    ("slice", (5, 6), {"starts": [1, 2], "sizes": [3, 4]}, (3, 4)),
    ("slice", (5, 6), {"starts": [0, 0], "sizes": [5, 6], "strides": [2, 4]}, (3, 2)),
    ("slice", (), {"starts": [], "sizes": []}, ()),
    ("concat", [(2, 3), (2, 4), (2, 1)], {"axis": 1}, (2, 8)),
    ("concat", [(5,)], {"axis": 0}, (5,)),
    ("expand", (3, 1), {"new_shape": [2, 3, 4]}, (2, 3, 4)),
    ("expand", (), {"new_shape": [7]}, (7,)),
    ("tile", (2, 3), {"repetitions": [3, 1]}, (6, 3)),
    ("reverse", (2, 3), {}, (2, 3)),
    ("pad", (2, 3), {"beginning_padding": [1, 0], "ending_padding": [0, 9]}, (3, 12)),
    ("triangular", (4, 2, 3), {"upper": False}, (4, 2, 3)),
]


@pytest.mark.parametrize(("name", "operands", "arguments", "expected"), SHAPES)
def test_shapes(name: str, operands: Any, arguments: dict, expected: tuple[int, ...]) -> None:
    assert shapes(name, operands, **arguments) == [expected]


def test_split_into_parts() -> None:
    assert shapes("split", (6, 2), splits=3) == [(2, 2)] * 3
    assert shapes("split", (2, 6), splits=[1, 3, 2], axis=1) == [(2, 1), (2, 3), (2, 2)]
    assert infer("split", (6,), splits=2).arguments["splits"] == (3, 3)


def test_arguments_come_in_normal_form() -> None:
    assert infer("transpose", (2, 3, 4)).arguments["permutation"] == (2, 1, 0)
    assert infer("reverse", (2, 3)).arguments["axes"] == (0, 1)
    assert infer("reverse", (2, 3), axes=[]).arguments["axes"] == ()
    assert infer("slice", (4,), starts=[0], sizes=[4]).arguments["strides"] == (1,)
    padding = {"beginning_padding": [1], "ending_padding": [0]}
    assert infer("pad", (4,), value=3, **padding).arguments["value"] == 3.0


FAULTS = [
    ("reshape", (2, 3), {"new_shape": [4]}, "4 elements"),
    ("reshape", (2, 3), {"new_shape": [0, 6]}, "0 is no valid dimension"),
    ("reshape", (1,), {"new_shape": [1] * 9}, "rank over 8"),
    ("transpose", (2, 3), {"permutation": [0]}, "needs 2"),
    ("transpose", (2, 3), {"permutation": [0, 0]}, "duplicates"),
    ("transpose", (2, 3), {"permutation": [0, 2]}, "2 is not below the rank 2"),
    ("slice", (5,), {"starts": [5], "sizes": [1]}, "exceeds the 5 elements"),
    ("slice", (5,), {"starts": [2], "sizes": [4]}, "2 \\+ 4 exceeds"),
    ("slice", (5,), {"starts": [0], "sizes": [0]}, "is 0"),
    ("slice", (5,), {"starts": [0], "sizes": [2], "strides": [0]}, "strides\\[0\\] is 0"),
    ("slice", (5,), {"starts": [0], "sizes": [2], "strides": [3]}, "greater than sizes"),
    ("slice", (5,), {"starts": [0, 0], "sizes": [2]}, "starts"),
    ("slice", (5,), {"starts": [0], "sizes": [2, 2]}, "sizes"),
    ("concat", [], {"axis": 0}, "1 … 8192"),
    ("concat", [(2, 3), (3, 4)], {"axis": 1}, "only dimension 1 may differ"),
    ("concat", [(2, 3), (2, 3, 1)], {"axis": 1}, "only dimension 1 may differ"),
    ("concat", [(2, 3)], {"axis": 2}, "axis 2"),
    ("concat", [(2**31 - 1,), (1,)], {"axis": 0}, "no valid dimension"),
    ("concat", [(1,)] * 8193, {"axis": 0}, "1 … 8192"),
    ("split", (7,), {"splits": 2}, "not a multiple"),
    ("split", (7,), {"splits": 0}, "1 … 8192"),
    ("split", (7,), {"splits": [3, 3]}, "add up to 6"),
    ("split", (7,), {"splits": [7, 0]}, "contains 0"),
    ("split", (7,), {"splits": []}, "1 … 8192"),
    ("split", (7,), {"splits": 1, "axis": 1}, "axis 1"),
    ("split", (9000,), {"splits": 9000}, "1 … 8192"),
    ("expand", (3, 2), {"new_shape": [3, 3]}, "not broadcastable"),
    ("expand", (3, 2), {"new_shape": [2]}, "not broadcastable"),
    ("expand", (3,), {"new_shape": [1]}, "not broadcastable"),
    ("expand", (1,), {"new_shape": [1] * 9}, "rank over 8"),
    ("tile", (3, 2), {"repetitions": [1]}, "needs 2"),
    ("tile", (3, 2), {"repetitions": [1, 0]}, "contains 0"),
    ("tile", (3, 2), {"repetitions": [1, 2**30]}, "no valid dimension"),
    ("reverse", (3, 2), {"axes": [2]}, "not below the rank"),
    ("reverse", (3, 2), {"axes": [1, 1]}, "duplicates"),
    ("pad", (3,), {"beginning_padding": [1, 1], "ending_padding": [0]}, "beginning_padding"),
    ("pad", (3,), {"beginning_padding": [1], "ending_padding": []}, "ending_padding"),
    ("pad", (3,), {"beginning_padding": [3], "ending_padding": [0], "mode": "reflection"},
     "more than 3 elements"),
    ("pad", (3,), {"beginning_padding": [0], "ending_padding": [3], "mode": "reflection"},
     "ending_padding\\[0\\]"),
    ("pad", (3,), {"beginning_padding": [2**31 - 3], "ending_padding": [0]}, "no valid dimension"),
    ("triangular", (3,), {}, "rank"),
]


@pytest.mark.parametrize(("name", "operands", "arguments", "message"), FAULTS)
def test_faults_are_type_errors(name: str, operands: Any, arguments: dict, message: str) -> None:
    with pytest.raises(TypeError, match=message) as caught:
        infer(name, operands, **arguments)
    assert str(caught.value).startswith(f"{name} [here]: ")


def test_concat_needs_one_data_type() -> None:
    mixed = (describe((2,)), describe((2,), "int32"))
    with pytest.raises(TypeError, match="same data type"):
        OPERATORS["concat"].validate({"inputs": mixed}, {"axis": 0})


def test_reference_values() -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.int32)
    assert compute("transpose", x).tolist() == [[1, 4], [2, 5], [3, 6]]
    assert compute("reshape", x, new_shape=[3, 2]).tolist() == [[1, 2], [3, 4], [5, 6]]
    assert compute("slice", x, starts=[0, 1], sizes=[2, 2]).tolist() == [[2, 3], [5, 6]]
    assert compute("slice", x, starts=[0, 0], sizes=[1, 3], strides=[1, 2]).tolist() == [[1, 3]]
    assert compute("concat", [x, x[:1]], axis=0).tolist() == [[1, 2, 3], [4, 5, 6], [1, 2, 3]]
    assert [a.tolist() for a in compute("split", x, splits=[1, 2], axis=1)] == [
        [[1], [4]], [[2, 3], [5, 6]]
    ]
    assert compute("expand", x[:, :1], new_shape=[2, 2]).tolist() == [[1, 1], [4, 4]]
    assert compute("tile", x, repetitions=[1, 2]).tolist() == [
        [1, 2, 3, 1, 2, 3], [4, 5, 6, 4, 5, 6]
    ]
    assert compute("reverse", x).tolist() == [[6, 5, 4], [3, 2, 1]]
    assert compute("reverse", x, axes=[0]).tolist() == [[4, 5, 6], [1, 2, 3]]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("constant", [[9] * 7, [9, 9, 1, 2, 3, 9, 9], [9, 9, 4, 5, 6, 9, 9], [9] * 7]),
        ("edge", [[1, 1, 1, 2, 3, 3, 3]] * 2 + [[4, 4, 4, 5, 6, 6, 6]] * 2),
        ("reflection", [[6, 5, 4, 5, 6, 5, 4], [3, 2, 1, 2, 3, 2, 1]] * 2),
    ],
)
def test_padding_of_the_draft(mode: str, expected: list) -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    out = compute(
        "pad", x, beginning_padding=[1, 2], ending_padding=[1, 2], mode=mode, value=9
    )
    assert out.tolist() == expected


def test_padding_of_a_scalar() -> None:
    x = np.array(5, np.float32)
    assert compute("pad", x, beginning_padding=[], ending_padding=[]).tolist() == 5


@pytest.mark.parametrize(
    ("upper", "diagonal", "expected"),
    [
        (True, 0, [[7, 1, 2], [0, 4, 8], [0, 0, 3]]),
        (True, 1, [[0, 1, 2], [0, 0, 8], [0, 0, 0]]),
        (True, -1, [[7, 1, 2], [9, 4, 8], [0, 6, 3]]),
        (False, 0, [[7, 0, 0], [9, 4, 0], [2, 6, 3]]),
        (False, 1, [[7, 1, 0], [9, 4, 8], [2, 6, 3]]),
        (False, -1, [[0, 0, 0], [9, 0, 0], [2, 6, 0]]),
        (True, -(2**31), [[7, 1, 2], [9, 4, 8], [2, 6, 3]]),
        (False, -(2**31), [[0] * 3] * 3),
    ],
)
def test_triangles_of_the_draft(upper: bool, diagonal: int, expected: list) -> None:
    x = np.array([[7, 1, 2], [9, 4, 8], [2, 6, 3]], np.float32)
    assert compute("triangular", x, upper=upper, diagonal=diagonal).tolist() == expected


def test_split_equals_slices() -> None:
    """The draft's emulation of split."""
    x = np.arange(2 * 7 * 3).reshape(2, 7, 3)
    start = 0
    for part in compute("split", x, splits=[2, 1, 4], axis=1):
        size = part.shape[1]
        sliced = compute("slice", x, starts=[0, start, 0], sizes=[2, size, 3])
        assert np.array_equal(part, sliced)
        start += size


def test_moving_keeps_nan_payloads() -> None:
    bits = np.array([0x7C01, 0xFE12, 0x0001], np.uint16)
    out = compute("reverse", bits.view(np.float16))
    assert out.view(np.uint16).tolist() == bits[::-1].tolist()
