"""Buffers that fit a descriptor, and the bytes that are read from them."""

import array

import numpy as np
import pytest

from webnn_vk import MLPromise
from webnn_vk.compiler.types.buffers import as_bytes, writable_bytes
from webnn_vk.compiler.types.data_types import MLOperandDescriptor

F4 = MLOperandDescriptor("float32", (4,))
I8 = MLOperandDescriptor("int8", (4,))
HALVES = MLOperandDescriptor("float16", (2, 2))
VALUES = np.array([1, 2, 3, 4], np.float32)


@pytest.mark.parametrize(
    ("data", "descriptor"),
    [
        (VALUES, F4),
        (np.array(1, np.float32), MLOperandDescriptor("float32", (1, 1))),
        (np.arange(4, dtype=np.float32), MLOperandDescriptor("float32", (2, 2))),
        (np.zeros(16, np.uint8), MLOperandDescriptor("float32", (2, 2))),
        (np.array([[True], [False]]), MLOperandDescriptor("uint8", (2, 1))),
        (VALUES.tobytes(), F4),
        (bytearray(VALUES.tobytes()), F4),
        (memoryview(VALUES), F4),
        (array.array("f", VALUES), F4),
        (np.repeat(VALUES, 2)[::2], F4),
        (VALUES.astype(np.float16), HALVES),
        (VALUES.astype(np.float16).view(np.uint16), HALVES),
        (np.arange(4, dtype=np.uint8), I8),
        (np.arange(2, dtype=np.uint32), MLOperandDescriptor("int32", (2,))),
        (np.arange(2, dtype=np.int64), MLOperandDescriptor("uint64", (2,))),
    ],
)
def test_the_bytes_of_a_fitting_buffer(data, descriptor):
    taken = as_bytes(data, descriptor, "x")
    assert (taken.dtype, taken.shape) == (np.uint8, (descriptor.byte_length,))
    plain = data if isinstance(data, (bytes, bytearray)) else np.asarray(data).tobytes()
    assert taken.tobytes() == bytes(plain)


def test_contiguous_memory_is_not_copied():
    assert np.shares_memory(as_bytes(VALUES, F4, "x"), VALUES)


@pytest.mark.parametrize(
    ("data", "descriptor", "message"),
    [
        # The byte length fits, the elements' width doesn't.
        (np.zeros(1, np.int32), I8, "elements are int32, int8"),
        (np.zeros(2, np.int64), MLOperandDescriptor("int32", (4,)), "elements are int64"),
        (np.zeros(4, np.int32), F4, "elements are int32, float32"),
        (VALUES, MLOperandDescriptor("int32", (4,)), "elements are float32, int32"),
        (np.zeros(4, np.uint16), MLOperandDescriptor("float32", (2,)), "elements are uint16"),
        (np.zeros(4, bool), I8, "elements are bool"),
        (np.array([None] * 4), F4, "a buffer of numbers"),
        (memoryview(VALUES)[::2], MLOperandDescriptor("float32", (2,)), "not contiguous"),
        (np.zeros(3, np.float32), F4, r"x: float32\[3\], 12 bytes, where float32\[4\] has 16"),
        (VALUES.reshape(2, 2), F4, r"float32\[2, 2\] where float32\[4\] is expected; as many"),
        # The element type is named before anything about the size.
        (np.zeros((8, 8, 3), np.uint8), MLOperandDescriptor("float32", (1, 3, 4, 4)),
         r"elements are uint8, float32 .* given is uint8\[8, 8, 3\]"),
        (np.zeros(5, np.float32), F4, "20 bytes"),
    ],
)
def test_other_buffers_are_refused(data, descriptor, message):
    with pytest.raises(TypeError, match=message):
        as_bytes(data, descriptor, "x")


@pytest.mark.parametrize(
    ("given", "expected", "message"),
    [
        ((1, 4, 5, 3), (1, 3, 4, 5), r"looks like NHWC for NCHW.* \(0, 3, 1, 2\)"),
        ((1, 3, 4, 5), (1, 4, 5, 3), r"looks like NCHW for NHWC.* \(0, 2, 3, 1\)"),
        ((3, 3, 2, 8), (8, 2, 3, 3), r"looks like HWIO for OIHW.* \(3, 2, 0, 1\)"),
        ((8, 2, 3, 5), (3, 5, 2, 8), r"looks like OIHW for HWIO"),
        ((3, 5, 2, 8), (8, 3, 5, 2), r"looks like HWIO for OHWI"),
        ((4, 5, 3), (3, 4, 5), "looks like HWC for CHW"),
        ((2, 3), (3, 2), r"looks like transposed: np.transpose\(array, \(1, 0\)\)"),
        ((2, 3, 4, 6, 5), (2, 3, 4, 5, 6), "looks like transposed"),
        ((3, 2, 4, 5, 6), (2, 3, 4, 5, 6), r"in another order.*\(1, 0, 2, 3, 4\)"),
    ],
)
def test_another_order_of_dimensions_is_named(given, expected, message):
    data = np.zeros(given, np.float32)
    with pytest.raises(TypeError, match=message) as caught:
        as_bytes(data, MLOperandDescriptor("float32", expected), "x")
    order = [int(n) for n in str(caught.value).split("array, (")[1].split(")")[0].split(",")]
    assert np.transpose(data, order).shape == expected


@pytest.mark.parametrize(
    ("data", "data_type", "shape"),
    [
        ([1, 2, 3, 4], "float32", (2, 2)),
        ([[1, 2.5], [3, 4]], "float16", (2, 2)),
        ((1, 2.0), "int32", (2,)),
        ([True, False], "uint8", (2,)),
        ([-1, 2**63 - 1], "int64", (2,)),
        ([0, 2**64 - 1], "uint64", (2,)),
        (0.2, "float32", ()),
        (7, "int8", (1,)),
    ],
)
def test_numbers_become_the_type(data, data_type, shape):
    descriptor = MLOperandDescriptor(data_type, shape)
    taken = as_bytes(data, descriptor, "x").view(descriptor.numpy_dtype)
    assert taken.tolist() == np.array(data, data_type).reshape(-1).tolist()


@pytest.mark.parametrize(
    ("data", "data_type", "shape", "message"),
    [
        ([1, 2.5], "int32", (2,), r"x: 2.5 is no int32"),
        ([1, 300], "uint8", (2,), r"300 is no uint8 \(0 … 255\)"),
        ([float("nan")], "int8", (1,), "nan is no int8"),
        ([True, 1], "int32", (2,), "True is no int32"),
        ([[1, 2], [3]], "float32", (3,), "no array of float32"),
        (["a"], "float32", (1,), "no array of float32"),
        (["1.5"], "float32", (1,), "numbers are expected"),
        ([None], "int8", (1,), "None is no int8"),
        ([[1, 2, 3]], "int8", (3, 1), "looks like transposed"),
        (1.0, "float32", (2,), "4 bytes, where"),
    ],
)
def test_other_numbers_are_refused(data, data_type, shape, message):
    with pytest.raises(TypeError, match=message):
        as_bytes(data, MLOperandDescriptor(data_type, shape), "x")


def test_a_promise_in_place_of_an_array():
    with pytest.raises(TypeError, match=r"an MLPromise of an array: call .result\(\) or await"):
        as_bytes(MLPromise("an array"), F4, "x")


def test_the_first_bytes_of_a_writable_buffer():
    target = np.full(6, 9, np.float32)
    taken = writable_bytes(target, F4, "x")
    assert np.shares_memory(taken, target)
    taken[:] = VALUES.view(np.uint8)
    assert target.tolist() == [1, 2, 3, 4, 9, 9]


def test_a_writable_array_of_the_shape():
    target = np.zeros((2, 2), np.float32)
    taken = writable_bytes(target, MLOperandDescriptor("float32", (2, 2)), "x")
    taken[:] = VALUES.view(np.uint8)
    assert target.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "shape", [(1, 3, 4, 5), (60, 1), (2, 4, 5, 3)], ids=["permuted", "reshaped", "larger"]
)
def test_a_writable_array_of_another_shape(shape):
    with pytest.raises(TypeError) as caught:
        writable_bytes(np.zeros(shape, np.float32), MLOperandDescriptor("float32", (1, 4, 5, 3)),
                       "read_tensor")
    assert str(caught.value) == (
        f"read_tensor: an output float32{list(shape)} for float32[1, 4, 5, 3]; it has to be of "
        "that shape, or flat"
    )


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (bytes(16), "read-only"),
        (np.zeros((4, 2), np.float32)[:, 0], "not contiguous"),
        (np.zeros((2, 2), np.float32).T, "not contiguous"),
        (np.zeros(3, np.float32), "12 bytes .* are too few"),
        (np.zeros(4, np.int32), "elements are int32"),
        ([0] * 4, "the buffer protocol"),
    ],
)
def test_other_outputs_are_refused(output, message):
    with pytest.raises(TypeError, match=message):
        writable_bytes(output, F4, "x")
