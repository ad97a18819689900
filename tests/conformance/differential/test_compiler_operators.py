"""The test of every operator notices a wrong reference, and each batch has every type: shown with
an operator that only tests have."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.differential import test_operators
from tests.conformance.differential.drafting import batches
from tests.conformance.differential.example import Count
from tests.support.compiler_operator import registered_test_operator


@pytest.fixture
def record():
    with registered_test_operator() as record:
        yield record


def test_a_wrong_reference_is_noticed(record, vulkan_context, cpu_context):
    @record.reference
    def _(out, a, b, negative):
        return (a + b) * (a - b) * np.float32(-1 if negative else 1)

    with pytest.raises(AssertionError, match=record.name):
        test_operators.compare(record.name, vulkan_context, cpu_context, 40, Count())


@given(st.data())
@settings(suppress_health_check=list(HealthCheck))
def test_every_batch_has_every_type(record, data):
    count = Count()
    for example in data.draw(batches(record.name, test_operators.BATCH)):
        count.add(example)
    assert count.examples >= test_operators.BATCH and not count.missing(record.name)
