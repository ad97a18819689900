"""The dimensions that form a row, and the number of invocations that share one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import stored_profile
from webnn_vk.compiler.kernels import Unsupported
from webnn_vk.compiler.kernels.choose import ranked
from webnn_vk.compiler.kernels.heuristics import device_class
from webnn_vk.compiler.kernels.rows import (
    Rows,
    chunked_schedules,
    combining,
    launch,
    loop_budget,
    schedules,
    split,
)
from webnn_vk.driver.device_profile import DeviceProfile


def test_split_merges_dimensions() -> None:
    whole = split((2, 3, 4), (0, 1, 2))
    assert (whole.rows, whole.reduced, whole.contiguous) == (1, (1, 1, 1, 24), True)
    middle = split((2, 3, 1, 5), (1,))
    assert (middle.kept, middle.kept_strides) == ((1, 1, 2, 5), (0, 0, 15, 1))
    assert (middle.reduced, middle.reduced_strides) == ((1, 1, 1, 3), (0, 0, 0, 5))
    assert middle.is_linear and not middle.contiguous
    # Dimensions of size 1 do not separate their neighbours.
    alone = split((2, 1, 3), (1,))
    assert (alone.kept, alone.reduced) == ((1, 1, 1, 6), (1, 1, 1, 1))
    ends = split((2, 3, 4, 5), (0, 2))
    assert (ends.reduced, ends.reduced_strides) == ((1, 1, 2, 4), (0, 0, 60, 5))
    alternating = split((2,) * 8, (1, 3, 5, 7))
    assert alternating.kept_strides == (128, 32, 8, 2)
    assert alternating.reduced_strides == (64, 16, 4, 1)


@given(st.lists(st.integers(1, 3), max_size=6).map(tuple), st.sets(st.integers(0, 5)))
def test_a_split_addresses_every_element_once(shape: tuple[int, ...], axes: set[int]) -> None:
    made = split(shape, axes)
    numbers = np.zeros(made.kept + made.reduced, int)
    for grid, stride in zip(
        np.indices(numbers.shape), made.kept_strides + made.reduced_strides, strict=True
    ):
        numbers += grid * stride
    order = [i for i in range(len(shape)) if i not in axes]
    order += [i for i in range(len(shape)) if i in axes]
    expected = np.arange(numbers.size).reshape(shape).transpose(order)
    assert numbers.reshape(-1).tolist() == expected.reshape(-1).tolist()


def lanes(problem: Rows, profile: DeviceProfile) -> int:
    """The invocations that share a row by the best schedule."""
    return next(ranked("rows", schedules(problem, profile), problem, profile))["lanes"]


def test_choices_follow_the_device() -> None:
    gpu, software = stored_profile("nvidia_ampere"), stored_profile("llvmpipe")
    assert lanes(Rows(384, 384, True), gpu) == 128
    assert lanes(Rows(384, 384, True), software) == 1
    assert lanes(Rows(100000, 512, False), gpu) == 1
    assert lanes(Rows(1, 1 << 20, True), gpu) == 256
    minimum = stored_profile("adreno_minimum")
    assert lanes(Rows(1, 1 << 20, True), minimum) <= minimum.max_workgroup_invocations
    assert launch(100, 1, software) == (16, 7) and launch(1000, 1, software) == (64, 16)
    assert launch(100, 1, gpu) == (64, 2) and launch(100, 32, gpu) == (32, 100)


def test_results_of_chunks_are_combined_by_a_workgroup_where_it_has_work() -> None:
    for name in ("nvidia_ampere", "llvmpipe"):
        profile = stored_profile(name)
        counts = {n: combining(Rows(4, n, True), profile) for n in (2, 31, 32, 128, 512, 5000)}
        assert counts == {2: 1, 31: 1, 32: 32, 128: 32, 512: 128, 5000: 256}
    # As many as the loops of the device need.
    assert combining(Rows(1, 10_000_000, True, 3), stored_profile("llvmpipe")) == 1024


def test_long_rows_stay_below_the_iterations_that_llvmpipe_makes() -> None:
    device = stored_profile("llvmpipe")
    budget = loop_budget(device)
    assert budget is not None and budget < 65535
    for rows in (1, 70):
        for length in (1000, 60_000, 1_000_000, 10_000_000):
            assert 3 * length / lanes(Rows(rows, length, True, 3), device) <= budget
            for schedule in chunked_schedules(Rows(rows, length, True), device):
                assert length / schedule["chunks"] / schedule["lanes"] <= budget
    assert lanes(Rows(1, 10_000_000, True, 3), device) == 1024
    with pytest.raises(Unsupported, match="292969 iterations"):
        lanes(Rows(1, 100_000_000, True, 3), device)
    assert loop_budget(stored_profile("nvidia_ampere")) is None


def test_few_long_rows_are_cut_into_chunks_that_fill_the_device() -> None:
    profile = stored_profile("nvidia_ampere")
    gpu, software = device_class(profile), device_class(stored_profile("llvmpipe"))
    assert [gpu.chunks(rows, 1 << 22) for rows in (1, 4, 512, 1000)] == [256, 128, 1, 1]
    assert [software.chunks(rows, 1 << 20) for rows in (1, 4, 512)] == [256, 64, 1]
    chunks = {s["chunks"] for s in chunked_schedules(Rows(4, 1 << 22, True), profile)}
    assert chunks == {1, 128}
