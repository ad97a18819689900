"""Columns as inputs: what is taken and refused, which row is named; Arrow without copies."""

import numpy as np
import pytest

from webnn_vk.distributed.rows import batched, from_arrow, to_arrow

FLOAT, INT, BYTE, BOOL = (np.dtype(name) for name in ("float32", "int32", "uint8", "bool"))


def objects(*rows):
    made = np.empty(len(rows), object)
    made[:] = rows
    return made


def test_a_column_of_the_right_type_is_not_copied():
    column = np.arange(12, dtype=np.float32).reshape(3, 4)
    array, wrong = batched("x", column, FLOAT, (4,))
    assert array is column and not wrong
    assert np.shares_memory(batched("x", column, FLOAT, (2, 2))[0], column)
    assert np.shares_memory(batched("x", column, FLOAT, ("n",))[0], column)


@pytest.mark.parametrize(("column", "dtype", "shape", "expected"), [
    (np.array([1.5, 2.5]), FLOAT, (), [1.5, 2.5]),
    (np.array([1, 255]), BYTE, (), [1, 255]),
    (np.array([[1, 0]], np.uint8), FLOAT, (2,), [[1, 0]]),
    (np.array([True, False]), INT, (), [1, 0]),
    (objects([1, 2], np.array([3, 4])), FLOAT, (2,), [[1, 2], [3, 4]]),
    (objects(np.array([1.0, 2], object)), FLOAT, (2,), [[1, 2]]),
    (np.arange(8.0).reshape(2, 4), FLOAT, (2, 2), [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]),
    (np.zeros((0, 4)), FLOAT, (4,), np.zeros((0, 4))),
])
def test_what_is_taken(column, dtype, shape, expected):
    array, wrong = batched("x", column, dtype, shape)
    assert not wrong and array.dtype == dtype
    np.testing.assert_array_equal(array, np.array(expected, dtype))


@pytest.mark.parametrize(("column", "dtype", "shape", "places", "message"), [
    (np.array(["a", "b"]), FLOAT, (), [0, 1], "'x': 'a'.* is no number.*float32.. is expected"),
    (objects([1, 2], [3], [4, "four"]), FLOAT, (2,), [1, 2], r"the shape is \[1\]; float32\[2\]"),
    (objects(1, None, 3), FLOAT, (), [1], "None is no number"),
    (np.array([1.0, 2.5]), INT, (), [0, 1], "float64 is given; int32.. is expected"),
    (np.array([7, 256, -1]), BYTE, (), [1, 2], "256 to 256 is given; uint8"),
    (np.array([1, 0]), BOOL, (), [0, 1], "int64 is given; bool"),
    (np.zeros((2, 3), np.float32), FLOAT, (4,), [0, 1], r"the shape is \[3\]"),
    (objects([1, 2], [3, 4, 5], [6, 7]), FLOAT, ("n",), [1],
     r"the shape is \[3\]; float32\['\?'\], \[2\] as in rows before it, is expected"),
])
def test_what_is_refused(column, dtype, shape, places, message):
    array, wrong = batched("x", column, dtype, shape)
    assert array is None
    assert [*wrong] == places
    assert_matches(wrong[places[0]], message)


def assert_matches(text, pattern):
    with pytest.raises(ValueError, match=pattern):
        raise ValueError(text)


def test_arrow_without_a_copy():
    pa = pytest.importorskip("pyarrow")
    flat = np.arange(24, dtype=np.float32)
    for array in (flat, flat.reshape(6, 4), flat.reshape(2, 3, 4)):
        column = to_arrow(array)
        back = from_arrow(pa.chunked_array([column]))
        np.testing.assert_array_equal(back, array)
        assert np.shares_memory(back, array)
        # A part of a column begins behind its first element.
        np.testing.assert_array_equal(from_arrow(column.slice(1)), array[1:])
    lists = pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    np.testing.assert_array_equal(from_arrow(lists.slice(1)), [[3, 4], [5, 6]])
    chunks = pa.chunked_array([[1, 2], [3]])
    np.testing.assert_array_equal(from_arrow(chunks), [1, 2, 3])


@pytest.mark.parametrize(("values", "expected"), [
    ([1, None, 3], [1, None, 3]), ([[1.0], [2.0, 3.0]], None), (["a", "b"], ["a", "b"]),
    ([[1.0, None]], [[1.0, None]]), ([[], []], None),
])
def test_arrow_of_other_things(values, expected):
    pa = pytest.importorskip("pyarrow")
    found = from_arrow(pa.array(values))
    assert found.dtype == object
    assert len(found) == len(values)
    if expected is not None:
        assert [v.tolist() if isinstance(v, np.ndarray) else v for v in found][:1] != [] and (
            [list(map(none, v)) if isinstance(v, np.ndarray) else v for v in found] == expected)


def none(value):
    return None if isinstance(value, float) and np.isnan(value) else value


def test_an_empty_column():
    pa = pytest.importorskip("pyarrow")
    assert from_arrow(pa.chunked_array([], pa.float32())).shape == (0,)
