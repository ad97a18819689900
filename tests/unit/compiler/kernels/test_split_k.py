"""Products whose inner dimension is cut into parts, planned for stored profiles."""

from __future__ import annotations

import pytest

from bench.isa.catalogue import catalogue
from tests.support.profiles import NAMES, stored_profile
from tests.support.running import node_of, plan, schedules_of
from webnn_vk.compiler.ir import Node
from webnn_vk.compiler.kernels import KernelNode, coopmat
from webnn_vk.compiler.kernels.choose import ranked
from webnn_vk.compiler.kernels.heuristics import device_class
from webnn_vk.compiler.kernels.matmul import MATMUL
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.driver.device_profile import DeviceProfile

#: Mali's products have no tiles in shared memory, which the parts are made of.
GPUS = [n for n in NAMES if device_class(stored_profile(n)).name not in ("arm", "llvmpipe")]
NVIDIA = stored_profile("nvidia_ampere")


def _product(m: int, n: int, k: int, data_type: str = "float32", batch: int = 1) -> Node:
    a, b = (MLOperandDescriptor(data_type, (batch, *s)) for s in ((m, k), (k, n)))
    return node_of("matmul", a, b)[0]


def _kernels(profile: DeviceProfile, *sizes: int, **arguments) -> list[str]:
    return [dispatch.kernel for dispatch in plan(_product(*sizes, **arguments), profile)]


@pytest.mark.parametrize("name", GPUS)
def test_few_outputs_of_a_long_inner_dimension_are_cut(name: str) -> None:
    profile = stored_profile(name)
    first, last = plan(_product(64, 64, 8192), profile)
    assert (first.kernel, last.kernel) == ("matmul_tiled", "matmul_sum")
    # 4 tiles of 32 x 32 in 16 parts fill 64 multiprocessors, and each part has 512 steps.
    assert first.params["batches"] == last.params["parts"] == 16
    assert (first.params["K"], last.params["batches"]) == (512, 1)
    assert first.bindings[-1] == last.bindings[0]
    assert first.bindings[-1].value.size == 16 * 64 * 64 * 4
    assert first.groups == (4 * 16, 1, 1)
    # A product that fills the device, parts that would be too short, and parts of unequal length.
    for sizes in ((1024, 1024, 8192), (256, 256, 8192), (64, 64, 256), (64, 64, 8194)):
        assert _kernels(profile, *sizes) == ["matmul_tiled"], sizes
    # 100,000 steps can't be divided into 64 equal parts by fours and eights alone.
    assert plan(_product(3, 5, 100000), profile)[-1].params["parts"] == 20
    # Two parts of 256 steps, and no more.
    assert plan(_product(64, 64, 512), profile)[-1].params["parts"] == 2
    # 16 batches of 4 tiles fill it without parts.
    assert _kernels(profile, 64, 64, 8192, batch=16) == ["matmul_tiled"]


def test_cooperative_matrices_compute_parts() -> None:
    first, last = plan(_product(64, 64, 8192, "float16"), NVIDIA)
    assert (first.kernel, last.kernel) == (coopmat.KERNEL, "matmul_sum")
    assert [b.data_type for b in first.spec.buffers] == ["uint32", "uint32", "float32"]
    assert [(b.data_type, b.width) for b in last.spec.buffers] == [("float32", 4), ("float16", 4)]


def test_software_never_cuts() -> None:
    llvmpipe = stored_profile("llvmpipe")
    assert not any(s.parts > 1 for s in schedules_of(_product(64, 64, 8192), llvmpipe))


@pytest.mark.full
def test_plans_are_in_the_catalogue() -> None:
    known = set(catalogue(NVIDIA.features, "matmul"))
    for data_type in ("float32", "float16"):
        for sizes in ((64, 64, 8192), (64, 63, 8192), (63, 68, 4096)):
            dispatches = plan(_product(*sizes, data_type=data_type), NVIDIA)
            assert len(dispatches) == 2
            assert {d.spec for d in dispatches} <= known, (data_type, sizes)


def test_what_a_tuner_tries_first() -> None:
    """The cost model knows that parts fill the device."""
    problem = MATMUL.problem(KernelNode.of(_product(64, 64, 8192)))
    order = [*ranked("matmul", MATMUL.candidates(problem, NVIDIA), problem, NVIDIA)]
    assert [schedule.parts > 1 for schedule in order[:4]] == [True] * 4


def test_the_limits_of_a_binding_are_kept() -> None:
    node = _product(64, 64, 8192)
    assert any(s.parts == 32 for s in schedules_of(node, NVIDIA))
    # a and b take 2 MiB each, 32 parts' sums 512 KiB.
    small = NVIDIA.replace(max_storage_buffer_range=1 << 20)
    assert not any(s.parts > 1 for s in schedules_of(node, small))
    narrow = _product(256, 256, 4096)
    found = {s.parts for s in schedules_of(narrow, NVIDIA.replace(
        max_storage_buffer_range=(4 << 20) + 256))}
    assert found == {1, 2, 4, 8, 16}
