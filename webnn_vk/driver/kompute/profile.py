"""The profile of a device through Kompute: a pure function of its Vulkan profile."""

from __future__ import annotations

from webnn_vk.driver.device_profile import DeviceProfile

#: Kompute enables no feature of a device; these features need no enabling in Vulkan 1.2.
FREE_FEATURES = frozenset({
    "subgroup_basic", "subgroup_vote", "subgroup_arithmetic", "subgroup_ballot", "subgroup_shuffle",
    "nan_preserve_f32", "denorm_preserve_f32", "denorm_flush_f32", "rounding_rte_f32",
})

#: Kompute counts bytes in 32 bits: 4 GiB would wrap to 0.
MAX_BYTES = 2**32 - 256


def kompute_profile(profile: DeviceProfile) -> DeviceProfile:
    """The profile of a device opened through Kompute.

    No optional types (8, 16 and 64 bits are emulated on 32-bit words), no timestamps, no memory
    shared with others; a tensor is one allocation and one binding, so no larger than a binding; and
    it binds at no offset.
    """
    limit = min(profile.max_storage_buffer_range, profile.max_buffer_size,
                profile.max_memory_allocation_size, MAX_BYTES)
    limit -= limit % 256
    # The staging twin of a tensor is an allocation too.
    twins = 1 if keeps_on_host(profile) else 2
    return profile.replace(
        driver_name=f"Kompute on {profile.driver_name}",
        features=profile.features & FREE_FEATURES,
        max_storage_buffer_range=limit,
        max_texel_buffer_elements=0,  # Kompute makes no views of buffers
        max_buffer_size=limit,
        max_memory_allocation_size=limit,
        max_memory_allocation_count=profile.max_memory_allocation_count // twins,
        min_imported_host_pointer_alignment=0,
        min_subgroup_size=profile.subgroup_size,
        max_subgroup_size=profile.subgroup_size,
        timestamp_valid_bits=0,
        cooperative_matrices=(),
        whole_bindings=True,
    )


def keeps_on_host(profile: DeviceProfile) -> bool:
    """Whether tensors are memory that the host sees (Kompute's "host" tensors, without a staging
    twin): on devices that are the CPU. On other devices Kompute doesn't order the host's reads
    after their work, and the memory would be across a bus."""
    return profile.is_software
