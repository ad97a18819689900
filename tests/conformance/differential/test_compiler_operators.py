"""The test of every operator also works for the compiler's internal operators: shown with one
operator."""

import numpy as np
import pytest

from tests.conformance.differential import test_operators
from tests.conformance.differential.example import Count
from tests.support.compiler_operator import registered_test_operator


@pytest.fixture
def record():
    with registered_test_operator() as record:
        yield record


def test_as_the_reference(record, vulkan_context, cpu_context):
    count = Count()
    test_operators.compare(record.name, vulkan_context, cpu_context, 40, count)
    assert count.examples >= 40 and not count.missing(record.name)


def test_a_wrong_reference_is_noticed(record, vulkan_context, cpu_context):
    @record.reference
    def _(out, a, b, negative):
        return (a + b) * (a - b) * np.float32(-1 if negative else 1)

    with pytest.raises(AssertionError, match=record.name):
        test_operators.compare(record.name, vulkan_context, cpu_context, 40, Count())


def test_types_that_chance_left_out_get_examples(record, vulkan_context, cpu_context):
    count = Count()
    test_operators.compare(
        record.name, vulkan_context, cpu_context, test_operators.BATCH, count, {"a": "float16"}
    )
    assert set(count.missing(record.name)) == {(row, "float32") for row in ("a", "b", "output")}
    test_operators.compare_the_missing(record.name, vulkan_context, cpu_context, count)
    assert not count.missing(record.name)
