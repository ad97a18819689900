"""Every operator on random operands, Vulkan against the NumPy reference.

    pytest tests/conformance/differential           200 examples of an eighth, drawn by the seed of
                                                    the run, and 24 of the others
    pytest --long tests/conformance/differential    5,000 of each

Chains of several operators are in ``test_chains``. Examples run side by side, several in a graph.
A failure shows the example it shrank to.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.conformance.differential.bounds import mismatch
from tests.conformance.differential.drafting import examples
from tests.conformance.differential.example import Count, run
from tests.support.contexts import open_context
from tests.support.selection import chance
from tests.support.summary import EXAMPLES
from webnn_vk.compiler.ops import ALL_OPERATORS
from webnn_vk.compiler.ops.record import Like

BATCH = 8
#: Minimum number of examples of each operator: on the unchanged device, with the native 8-bit,
#: 16-bit and 64-bit types masked, and with bindings so small that most tensors need several.
LEAST = {"native": 200, "masked": 80, "portions": 80}
#: Share of the tests that run at full length in one run; the others run FEW examples.
DRAWN = {"native": 0.12, "masked": 0.07, "portions": 0.07}
FEW = 24
#: This many examples use every data type of every operand.
ENOUGH = 60
#: Operators with so many pipelines that their compilation would take minutes.
SHARES = {
    "attention": 0.2, "integer_matmul": 0.4, "quantized_matmul": 0.8, "block_matmul": 0.8,
    "quantized_conv2d": 0.2,
}
#: No builder's input has one of its types. tests/device/api/test_low_precision.py has all its
#: values, on masked devices and with small bindings too.
APART = {"decode"}
MASK = ("float16", "int8", "int16", "int64")


@pytest.fixture(scope="module")
def masked_context(vulkan):
    with open_context(mask=MASK) as context:
        yield context


@pytest.fixture(scope="module")
def portions_context(vulkan):
    with open_context(limits={"max_storage_buffer_range": 2048}) as context:
        yield context


@pytest.mark.device
@pytest.mark.parametrize("name", sorted(ALL_OPERATORS.keys() - APART))
@pytest.mark.parametrize("way", LEAST)
@pytest.mark.timeout(1800)
def test_as_the_reference(name, way, request, cpu_context, record_property):
    device = request.getfixturevalue("vulkan_context" if way == "native" else f"{way}_context")
    count = Count()
    least = int(LEAST[way] * SHARES.get(name, 1))
    whole = request.config.option.explore or chance("operators", way, name).random() < DRAWN[way]
    if whole:
        wanted = max(least, settings.default.max_examples * least // LEAST["native"])
    else:
        wanted = least = int(FEW * SHARES.get(name, 1))
    compare(name, device, cpu_context, wanted, count)
    assert count.examples >= least
    complete = whole and count.examples >= ENOUGH
    if complete:
        compare_the_missing(name, device, cpu_context, count)
    record_property(EXAMPLES, [way, name, count.examples, count.types()])
    if complete:
        assert not count.missing(name), f"not hit: {count.missing(name)}"


def compare_the_missing(name, device, cpu_context, count):
    """Examples of the data types that chance left out."""
    for operand, data_type in count.missing(name):
        if not isinstance(ALL_OPERATORS[name].limits[operand], Like):
            compare(name, device, cpu_context, 2 * BATCH, count, {operand: data_type})


def compare(name, device, cpu_context, wanted, count, types=None):
    """At least ``wanted`` random examples of an operator, on the device compared with the CPU.
    ``types`` sets data types by operand."""

    @settings(
        max_examples=-(-wanted // BATCH),
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(st.lists(examples(name, types=types), min_size=BATCH, max_size=BATCH))
    def check(batch):
        got = run(device, batch)
        expected = run(cpu_context, batch)
        for example, a, e in zip(batch, got, expected, strict=True):
            error = mismatch(example, a, e)
            assert error is None, f"{error}\n{example.in_full()}"
            count.add(example)

    check()
