"""WebIDL conversions and descriptors."""

import math

import numpy as np
import pytest

from webnn_vk import MLOperandDescriptor, MLTensorDescriptor
from webnn_vk.compiler.types.data_types import (
    cast_loss,
    cast_number,
    check_dimensions,
    to_data_type,
    to_descriptor,
    to_i32,
    to_shape,
    to_u32,
)


@pytest.mark.parametrize(("convert", "low", "high"), [
    (to_u32, 0, 2**32 - 1), (to_i32, -(2**31), 2**31 - 1)])
def test_integers_in_range(convert, low, high):
    for value in (low, high, np.int8(5), np.uint32(7), 3.0, np.float32(4)):
        made = convert(value, "x")
        assert made == value and type(made) is int
    for value in (low - 1, high + 1, float(high + 1)):
        with pytest.raises(TypeError, match=rf"x: {int(value)} is outside {low} … {high}"):
            convert(value, "x")


@pytest.mark.parametrize("value", [True, np.bool_(False), 1.5, math.nan, math.inf, "1", None, [1]])
def test_what_is_no_integer(value):
    for convert in (to_u32, to_i32):
        with pytest.raises(TypeError, match="x: an integer is expected"):
            convert(value, "x")


def test_shapes():
    for value in ([2, 3], (2, 3), np.array([2, 3]), range(2, 4)):
        assert to_shape(value, "shape") == (2, 3)
    for value in ("23", b"23", {2: 3}, 2, None, {2, 3}):
        with pytest.raises(TypeError, match="shape: a sequence of integers is expected"):
            to_shape(value, "shape")
    with pytest.raises(TypeError, match=r"shape\[1\]: -3 is outside"):
        to_shape([2, -3], "shape")


def test_sizes_of_a_descriptor():
    half = MLOperandDescriptor("float16", [2, 3, 5])
    assert (half.rank, half.size, half.byte_length) == (3, 30, 60)
    assert half.numpy_dtype == np.float16 and str(half) == "float16[2, 3, 5]"
    scalar = MLOperandDescriptor("uint64", ())
    assert (scalar.rank, scalar.size, scalar.byte_length) == (0, 1, 8)
    assert half == MLOperandDescriptor("float16", (2, 3, 5)) and hash(half)


def test_descriptors_from_mappings_and_from_each_other():
    made = to_descriptor({"data_type": "int8", "shape": [4], "readable": 1}, MLTensorDescriptor)
    assert made == MLTensorDescriptor("int8", (4,), readable=True) and made.readable is True
    assert not made.writable and not made.importable_to_web_gpu
    assert to_descriptor(made, MLTensorDescriptor) is made
    plain = MLOperandDescriptor("int8", (4,))
    assert to_descriptor(plain, MLTensorDescriptor) == MLTensorDescriptor("int8", (4,))
    # A tensor's flags don't apply to an operand.
    assert to_descriptor({"data_type": "int8", "shape": [4], "readable": True}) == plain
    for value, message in (
        ({"shape": [4]}, "lacks data_type"),
        ({"data_type": "int8", "shape": [4], "shap": 1}, "unknown members shap"),
        (3, "a descriptor is expected"),
    ):
        with pytest.raises(TypeError, match=message):
            to_descriptor(value)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((), None),
        ((1,) * 8, None),
        ((2**31 - 1,), None),
        ((1,) * 9, "rank 9 exceeds 8"),
        ((2, 0), "dimension 1 is 0"),
        ((2**31,), "dimension 0 is 2147483648"),
        ((2**16, 2**15), "2147483648 elements; 2147483647 at most"),
    ],
)
def test_dimensions(shape, message):
    error = check_dimensions(MLOperandDescriptor("uint8", shape))
    assert error is None if message is None else message in error


@pytest.mark.parametrize(
    ("value", "data_type", "expected"),
    [
        (300, "int8", 127), (-1, "uint64", 0), (2**70, "uint64", 2**64 - 1),
        (-(2**63), "int64", -(2**63)), (-2.9, "int32", -2), (math.nan, "uint8", 0),
        (math.inf, "int32", 2**31 - 1), (-math.inf, "int8", -128),
        (0.1, "float16", float(np.float16(0.1))), (1e6, "float16", math.inf),
        (10**400, "float32", math.inf), (-(10**400), "float32", -math.inf),
        # Integers that the nearest double would round to a half, or to infinity.
        (2**60 + 2**36 + 1, "float32", 2.0**60 + 2.0**37),
        (-(2**60) - 2**36 - 1, "float32", -(2.0**60) - 2.0**37),
        (2**60 + 2**36, "float32", 2.0**60),
        (2**128 - 2**103 - 1, "float32", float(np.finfo("float32").max)),
        (2**128 - 2**103, "float32", math.inf),
    ],
)
def test_numbers_are_cast(value, data_type, expected):
    assert cast_number(value, data_type) == expected


@pytest.mark.parametrize(
    ("value", "data_type", "loss"),
    [
        (1.5, "int32", "is truncated to 1"),
        (-1.5, "int8", "is truncated to -1"),
        (300, "uint8", "is clamped to 255"),
        (-1, "uint8", "is clamped to 0"),
        (300.5, "uint8", "is clamped to 255"),
        (2**70, "int64", "is clamped to 9223372036854775807"),
        (float("nan"), "int32", "becomes 0"),
        (float("inf"), "int8", "becomes 127"),
        (70000.0, "float16", "overflows to inf"),
        (-(10**400), "float32", "overflows to -inf"),
        (0.2, "float16", None),
        (0.2, "float32", None),
        (float("inf"), "float16", None),
        (2**24 + 1, "float32", None),
        (2.0, "int8", None),
        (255, "uint8", None),
    ],
)
def test_what_a_cast_loses(value, data_type, loss):
    assert cast_loss(value, data_type) == loss


@pytest.mark.parametrize("given", [np.float32, np.dtype("float32"), "f4", "<f4", "float32"])
def test_numpy_types_are_data_types(given):
    assert to_data_type(given, "x") == "float32"


@pytest.mark.parametrize("given", [float, "float", "f", "f8", ">f4", np.float64, np.bool_, None])
def test_other_types_are_not(given):
    with pytest.raises(TypeError, match="is not a data type"):
        to_data_type(given, "x")
