"""The comparison of the differential tests detects errors, and tolerates rounding only."""

import numpy as np
import pytest

from tests.conformance.differential.bounds import mismatch
from tests.conformance.differential.example import Count, Example

F = np.float32


def reduced(x):
    return Example("reduce_sum", {"input": x}, {})


def test_a_rounding_passes_and_a_wrong_element_does_not():
    x = np.linspace(-1, 3, 100, dtype=F)
    right = x.sum(dtype=np.float64).astype(F)
    assert mismatch(reduced(x), [right], [right]) is None
    assert mismatch(reduced(x), [np.nextafter(right, F(0))], [right]) is None
    # One element left out.
    assert mismatch(reduced(x), [right - x[60]], [right]) is not None


def test_cancellation_is_forgiven_as_far_as_the_inputs_roundings_go():
    x = np.array([1e6, -1e6, 0.125], F)
    assert mismatch(reduced(x), [F(0.1875)], [F(0.125)]) is None
    assert mismatch(reduced(x), [F(10)], [F(0.125)]) is not None


def test_what_overflows_is_compared_all_the_same():
    """Where the reference is infinite, for changed inputs too, only the infinity passes."""
    x = np.array([[3e38, 3e38, 1]], F)
    product = Example("matmul", {"a": x, "b": np.ones((3, 1), F)}, {})
    right = np.array([[np.inf]], F)
    assert mismatch(product, [right], [right]) is None
    for wrong in (-np.inf, 0, np.nan):
        assert mismatch(product, [np.array([[wrong]], F)], [right]) is not None


@pytest.mark.parametrize(
    ("got", "wanted"),
    [(np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0), (-np.inf, np.inf), (1.0, 1.00001)],
)
def test_special_values_and_small_errors_are_seen(got, wanted):
    example = Example("add", {"a": F(0), "b": F(0)}, {})
    message = mismatch(example, [np.array([got], F)], [np.array([wanted], F)])
    assert message is not None and "at [0]" in message


def test_overflow_may_round_to_infinity():
    example = Example("add", {"a": F(0), "b": F(0)}, {})
    largest = np.array([65504], np.float16)
    assert mismatch(example, [np.array([np.inf], np.float16)], [largest]) is None
    assert mismatch(example, [np.array([np.inf], np.float16)], [largest / 2]) is not None


def test_integers_are_exact_but_for_ties_of_a_quotient():
    a, b = np.array([7], np.int32), np.array([8], np.int32)
    plain = Example("add", {"a": a, "b": a}, {})
    quantized = Example("quantize_linear", {}, {})
    assert mismatch(plain, [a], [b]) is not None
    assert mismatch(quantized, [a], [b]) is None
    assert mismatch(quantized, [a], [b + 1]) is not None


def test_wrong_types_and_shapes_are_seen():
    example = Example("relu", {"input": np.ones(2, F)}, {})
    assert mismatch(example, [np.ones(2, np.float16)], [np.ones(2, F)]) is not None
    assert mismatch(example, [np.ones((2, 1), F)], [np.ones(2, F)]) is not None


def test_a_type_that_was_not_hit_is_missing():
    count = Count()
    x = np.ones((1, 2), F)
    count.add(Example("equal", {"a": x, "b": x}, {}))
    missing = count.missing("equal")
    assert ("a", "float32") not in missing and ("output", "uint8") not in missing
    assert ("a", "int64") in missing and ("b", "uint8") in missing
