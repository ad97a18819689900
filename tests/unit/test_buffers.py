"""Which buffers fit a descriptor, and what bytes are taken from them."""

import array

import numpy as np
import pytest

from webnn_vk.buffers import as_bytes, writable_bytes
from webnn_vk.data_types import MLOperandDescriptor

F4 = MLOperandDescriptor("float32", (4,))
I8 = MLOperandDescriptor("int8", (4,))
HALVES = MLOperandDescriptor("float16", (2, 2))
VALUES = np.array([1, 2, 3, 4], np.float32)


@pytest.mark.parametrize(
    ("data", "descriptor"),
    [
        (VALUES, F4),
        (VALUES.reshape(2, 2), F4),
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
        ([1, 2, 3, 4], F4, "the buffer protocol"),
        (np.zeros(3, np.float32), F4, r"x: 12 bytes \(shape \[3\]\) where float32\[4\] has 16"),
        (np.zeros(5, np.float32), F4, "20 bytes"),
    ],
)
def test_other_buffers_are_refused(data, descriptor, message):
    with pytest.raises(TypeError, match=message):
        as_bytes(data, descriptor, "x")


def test_the_first_bytes_of_a_writable_buffer():
    target = np.full((2, 3), 9, np.float32)
    taken = writable_bytes(target, F4, "x")
    assert np.shares_memory(taken, target)
    taken[:] = VALUES.view(np.uint8)
    assert target.tolist() == [[1, 2, 3], [4, 9, 9]]


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
