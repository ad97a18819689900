"""Every operator on random operands, Vulkan against the NumPy reference.

    pytest tests/conformance/differential              one batch on each device
    pytest --explore tests/conformance/differential    200 examples on the unchanged device, 80 on
                                                       the others

Every data type of every operand and output is in each batch; in small bindings, which only change
addresses, one of each size in bytes. Chains of several operators are in
``test_chains``. Examples run side by side, several in a graph.
A failure shows the example it shrank to.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from tests.conformance.differential.bounds import mismatch
from tests.conformance.differential.drafting import batches, of_each_size
from tests.conformance.differential.example import Count, run
from tests.support.contexts import open_context
from tests.support.summary import EXAMPLES
from webnn_vk.compiler.ops import ALL_OPERATORS

BATCH = 8
#: Number of examples of each operator when exploring: on the unchanged device, with the native
#: 8-bit, 16-bit and 64-bit types masked, and with bindings so small that most tensors need several.
EXPLORED = {"native": 200, "masked": 80, "portions": 80}
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
@pytest.mark.parametrize("way", EXPLORED)
@pytest.mark.timeout(1800)
def test_as_the_reference(name, way, request, cpu_context, record_property):
    device = request.getfixturevalue("vulkan_context" if way == "native" else f"{way}_context")
    count, chosen, free = Count(), list, 2
    if request.config.option.explore:
        wanted, size = int(EXPLORED[way] * SHARES.get(name, 1)), BATCH
    else:
        wanted = size = 1
        chosen = of_each_size if way == "portions" else list
        free = 2 if way == "native" else 0
    compare(name, device, cpu_context, wanted, count, size, chosen, free)
    record_property(EXAMPLES, [way, name, count.examples, count.types()])
    assert count.examples >= wanted
    missing = count.missing(name, chosen)
    assert not missing, f"not hit: {missing}"


def compare(name, device, cpu_context, wanted, count, size=BATCH, chosen=list, free=2):
    """At least ``wanted`` random examples of an operator, on the device compared with the CPU, in
    `batches`. Those whose dimensions are all 1 are left out, as hypothesis' first one."""

    @settings(
        max_examples=-(-wanted // size),
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(batches(name, size, chosen=chosen, free=free))
    def check(batch):
        assume(not all(example.is_one() for example in batch))
        got = run(device, batch)
        expected = run(cpu_context, batch)
        for example, a, e in zip(batch, got, expected, strict=True):
            error = mismatch(example, a, e)
            assert error is None, f"{error}\n{example.in_full()}"
            count.add(example)

    check()
