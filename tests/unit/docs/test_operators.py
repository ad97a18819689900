"""docs/operators.md agrees with the records, the kernels and the conformance tests."""

import pytest

from scripts.generate import operator_table
from tests.conformance.wpt import suite
from webnn_vk.compiler.ops import OPERATORS


def test_counts_name_every_operator_on_both_devices():
    counts = operator_table.load_counts()
    assert tuple(counts) == operator_table.DEVICES
    for by_name in counts.values():
        assert set(by_name) == set(OPERATORS)
        # tests/conformance/wpt runs every case and fails for one that does not pass.
        assert all(failed == 0 for _, failed in by_name.values())


@pytest.mark.skipif(not suite.PRESENT, reason=suite.ABSENT)
def test_counts_are_those_of_the_suite():
    cases = operator_table.cases_by_operator()
    for device, by_name in operator_table.load_counts().items():
        passed = {name: passed for name, (passed, _) in by_name.items()}
        assert passed == cases, f"{device}: run python -m scripts.generate.operator_table"


def test_every_allowed_type_has_a_kernel():
    able = operator_table.on_vulkan("relu")
    assert able == dict.fromkeys(OPERATORS["relu"].limit("input").types, True)


def test_a_type_without_a_kernel_is_seen(monkeypatch):
    from webnn_vk.compiler.kernels import Unsupported

    def problem(self, node):
        raise Unsupported("not today")

    monkeypatch.setattr("webnn_vk.compiler.kernels.elementwise.ElementwiseFamily.problem", problem)
    assert not any(operator_table.on_vulkan("relu").values())
