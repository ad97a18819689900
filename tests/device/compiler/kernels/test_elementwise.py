"""Element-wise kernels: plans, and values compared with the references over types, shapes and
slices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.support.cases.elementwise import MASKED, OPERATOR_NAMES, nodes, values
from tests.support.comparing import assert_close, profile_for, random_array
from tests.support.contexts import open_context
from tests.support.drivers import require_vulkan
from tests.support.running import device_profile, node_of, plan, run, schedules_of
from tests.support.ulp import assert_as_reference
from webnn_vk import MLGraphBuilder
from webnn_vk.compiler.ir import Node, Value
from webnn_vk.compiler.types.data_types import FLOAT_TYPES

# Where the reference rounds differently from the kernel, in units in the last place of float32.
ULP = {
    "cos": 4, "erf": 4, "exp": 3, "gelu": 6, "log": 4, "pow": 8, "sin": 4, "tan": 4, "elu": 4,
    "sigmoid": 4, "softplus": 4, "tanh": 4, "hard_sigmoid": 2, "linear": 2, "hard_swish": 3,
    "dequantize_linear": 1, "softsign": 2,
}  # fmt: skip


@pytest.mark.sample(0.5)
@MASKED
@pytest.mark.parametrize("name", OPERATOR_NAMES)
def test_kernels_compute_what_the_references_do(name: str, masked: bool) -> None:
    device = device_profile(masked)

    @settings(max_examples=4)
    @given(nodes(name))
    def check(made: tuple[Node, dict[Value, np.ndarray]]) -> None:
        assert_as_reference(*made, device, ULP.get(name, 0))

    check()


def test_rank_8_with_alternating_broadcasts() -> None:
    rng = np.random.default_rng(1)
    condition = rng.integers(0, 2, (2, 1) * 4).astype(np.uint8)
    true_value = rng.normal(size=(1, 3) * 4).astype(np.float32)
    false_value = rng.normal(size=(2, 3, 1, 1) * 2).astype(np.float32)
    node, arrays = node_of("where", condition, true_value, false_value)
    (dispatch,) = plan(node, device_profile())
    assert dispatch.constants["RANK"] == 8
    assert_as_reference(node, arrays, device_profile())


SLICED = [
    ("float32", (7, 1000), (7, 1000)),
    ("float32", (3, 5000), (1, 5000)),  # b exceeds a binding and repeats: slices end at its borders
    ("float32", (4001, 3), (4001, 1)),
    ("float16", (9, 1777), (1777,)),
    ("uint8", (5, 40001), (5, 40001)),
    ("uint8", (3, 30003), (30003,)),
    ("int64", (2, 3, 1501), (3, 1501)),
    ("int64", (5, 701), (701,)),
    ("float32", (2, 5, 3001), (2, 1, 3001)),
]


@pytest.mark.parametrize(("data_type", "a", "b"), SLICED, ids=str)
@MASKED
def test_slices(data_type: str, a: tuple[int, ...], b: tuple[int, ...], masked: bool) -> None:
    rng = np.random.default_rng(5)
    device = device_profile(masked, max_storage_buffer_range=16384)
    node, arrays = node_of("add", values(rng, data_type, a), values(rng, data_type, b))
    assert len(plan(node, device)) > 1
    assert_as_reference(node, arrays, device)


def test_slices_of_blocks() -> None:
    rng = np.random.default_rng(6)
    device = device_profile(max_storage_buffer_range=16384)
    scale = rng.uniform(0.1, 2, (60, 450)).astype(np.float32)
    zero_point = values(rng, "uint8", (60, 450))
    node, arrays = node_of(
        "dequantize_linear", values(rng, "uint8", (60, 900)), scale, zero_point
    )
    assert len(plan(node, device)) > 3
    assert_as_reference(node, arrays, device, 1)


def test_numbers_beyond_53_bits() -> None:
    array = np.array([-(2**63), -(2**62) - 2, 2**62, 2**62 + 3, 2**63 - 1], np.int64)
    node, arrays = node_of("clamp", array, min_value=-(2**62) - 1, max_value=2**62 + 1)
    (result,) = run(node, arrays, device_profile())
    assert result.tolist() == [-(2**62) - 1, -(2**62) - 1, 2**62, 2**62 + 1, 2**62 + 1]


def test_bindings_too_small_to_slice_are_refused() -> None:
    with open_context(limits={"max_storage_buffer_range": 1024}) as context:
        builder = MLGraphBuilder(context)
        a = builder.input("a", {"data_type": "int64", "shape": [4096]})
        (step,) = builder.build({"y": builder.abs(a)}).result().report().steps
        assert step.device == "cpu"
        assert "bindings of 1024 bytes are too small" in step.reason


@pytest.mark.parametrize("data_type", FLOAT_TYPES)
def test_vectors_loaded_together(data_type: str) -> None:
    """GPUs' schedules that load several vectors of each operand before they compute, with numbers
    beside tensors, and where slices of the result don't let them."""
    require_vulkan()
    profile = profile_for("discrete")
    rng = np.random.default_rng(12)
    x, y = (random_array(rng, data_type, (8, 1024)) for _ in range(2))
    number = random_array(rng, data_type, ())
    cut = profile.replace(max_storage_buffer_range=10_240)
    cases = ("add", x, y), ("mul", x, number), ("abs", x)
    for operator, *operands in cases[:2] if data_type == "float32" else cases[1:]:
        node, arrays = node_of(operator, *operands)
        together = [s for s in schedules_of(node, profile) if "TOGETHER" in dict(s.numbers)]
        assert {s["TOGETHER"] for s in together} == {2, 4, 8}
        for schedule in together:
            for device in (profile, cut):
                assert_close(node, arrays, device, 0, schedule)
