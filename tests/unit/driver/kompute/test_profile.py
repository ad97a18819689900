"""Devices' features through Kompute, from their profiles."""

import pytest

from tests.support.profiles import NAMES, stored_profile
from webnn_vk.driver.kompute.profile import FREE_FEATURES, MAX_BYTES, keeps_on_host, kompute_profile


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_kompute_lacks(name):
    device = stored_profile(name)
    profile = kompute_profile(device)
    assert profile.features == device.features & FREE_FEATURES
    assert not profile.features & {
        "float16", "int8", "int16", "int64", "timestamps", "external_memory_fd",
        "external_memory_host", "subgroup_size_control", "cooperative_matrix",
    }
    assert profile.whole_bindings and not device.whole_bindings
    assert profile.max_texel_buffer_elements == profile.timestamp_valid_bits == 0
    assert profile.cooperative_matrices == ()
    assert profile.name == device.name and profile.driver_name != device.driver_name


@pytest.mark.parametrize("name", NAMES)
def test_a_tensor_is_one_binding_below_4_gib(name):
    device = stored_profile(name)
    profile = kompute_profile(device.replace(max_storage_buffer_range=2**32 - 1,
                                             max_buffer_size=1 << 40))
    assert profile.max_tensor_byte_length <= profile.max_storage_buffer_range <= MAX_BYTES
    small = kompute_profile(device.replace(max_storage_buffer_range=1 << 20))
    assert small.max_tensor_byte_length == small.max_buffer_size == 1 << 20


def test_staging_twins_count_as_allocations():
    gpu, software = stored_profile("nvidia_ampere"), stored_profile("llvmpipe")
    assert not keeps_on_host(gpu) and keeps_on_host(software)
    assert kompute_profile(gpu).max_memory_allocation_count == gpu.max_memory_allocation_count // 2
    allowed = software.max_memory_allocation_count
    assert kompute_profile(software).max_memory_allocation_count == allowed
