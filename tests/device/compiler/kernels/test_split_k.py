"""Products whose inner dimension is cut into parts, compared with the references and the plain
kernel, for every kernel that computes parts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.comparing import random_array
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.forced import pretended_gpu
from tests.support.running import device_profile, node_of, run, schedules_of
from webnn_vk.compiler.kernels import (
    KernelNode,
    KernelTarget,
    Schedule,
    Task,
    coopmat,
    forms,
)
from webnn_vk.driver.device_profile import DeviceProfile

# Roundings of the output, and of sums of 1,024 products of numbers up to 2.
_TOLERANCES = {"float16": 2.0**-9, "float32": 2e-4}


def _gpu() -> DeviceProfile:
    require_vulkan()
    return device_profile(**pretended_gpu(device_profile()))


def _cut(node, profile: DeviceProfile, parts: int | None = None) -> list[Schedule]:
    """One schedule of each kernel that cuts the product, into this many parts, with its smallest
    tile."""
    found: dict[str, Schedule] = {}
    for schedule in schedules_of(node, profile):
        if schedule.parts > 1 and schedule.parts == (parts or schedule.parts):
            found.setdefault(schedule.kernel, schedule)
    multiplied = coopmat.shape_for(node.results[0].data_type, profile)
    assert found.keys() == {"matmul_tiled", *[coopmat.KERNEL] * bool(multiplied)}
    return [*found.values()]


def _assert_right(node, arrays, profile: DeviceProfile, parts: int | None = None) -> None:
    (expected,) = node.evaluate(arrays.get)
    tolerance = _TOLERANCES[expected.dtype.name]
    for schedule in _cut(node, profile, parts):
        (first,), (again,) = (run(node, arrays, profile, schedule) for _ in range(2))
        assert first.tobytes() == again.tobytes(), f"{schedule}: not the same twice"
        (plain,) = run(node, arrays, profile, schedule.of_part)
        for other in (expected, plain):
            assert_allclose(
                first.astype(np.float64), other.astype(np.float64), rtol=tolerance,
                atol=tolerance, err_msg=f"{node.title} {dict(node.arguments)} by {schedule}",
            )


@pytest.mark.sample(0.34)
@pytest.mark.parametrize("transposes", [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("data_type", ["float32", "float16"])
def test_transposes(data_type: str, transposes: tuple[bool, bool]) -> None:
    rng, (ta, tb), k = np.random.default_rng(1), transposes, 256
    for m, n in ((33, 12), (5, 37)):
        a = random_array(rng, data_type, (k, m) if ta else (m, k))
        b = random_array(rng, data_type, (n, k) if tb else (k, n))
        node, arrays = node_of("gemm", a, b, a_transpose=ta, b_transpose=tb)
        _assert_right(node, arrays, _gpu(), 2)


@pytest.mark.parametrize("parts", [4, 8])
def test_parts(parts: int) -> None:
    rng = np.random.default_rng(2)
    a, b = random_array(rng, "float32", (8, 1024)), random_array(rng, "float32", (1024, 16))
    _assert_right(*node_of("matmul", a, b), _gpu(), parts)


@pytest.mark.parametrize("shape", [(), (12,), (33, 1)], ids=str)
def test_factors_and_addend_count_once(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    a, b = random_array(rng, "float16", (33, 256)), random_array(rng, "float16", (256, 12))
    c = random_array(rng, "float16", shape)
    _assert_right(*node_of("gemm", a, b, c=c, alpha=0.5, beta=-3.0), _gpu(), 2)


def test_batches() -> None:
    rng = np.random.default_rng(4)
    for a_shape, b_shape in (
        ((3, 6, 256), (3, 256, 8)), ((2, 1, 6, 256), (3, 256, 5)),
    ):
        a, b = random_array(rng, "float32", a_shape), random_array(rng, "float32", b_shape)
        _assert_right(*node_of("matmul", a, b), _gpu(), 2)


def test_a_packed_weight() -> None:
    """The parts of a panel are stored in a row, further apart than a part's depth."""
    rng, profile = np.random.default_rng(5), _gpu()
    a, b = random_array(rng, "float32", (9, 256)), random_array(rng, "float32", (256, 70))
    node, arrays = node_of("matmul", a, b)
    (expected,) = node.evaluate(arrays.get)
    kernel = KernelNode.of(node)
    for schedule in _cut(node, profile, 2):
        panels = next(forms(Task.of(kernel), schedule, KernelTarget(profile)))
        assert panels.problem.panel
        (computed,) = run(panels.node, arrays, profile, schedule)
        assert_allclose(computed, expected, rtol=2e-4, atol=2e-4)
