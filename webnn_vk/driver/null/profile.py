"""The device profile of the null driver: no features, WebGPU's default limits."""

from __future__ import annotations

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support import environment

NULL_PROFILE = DeviceProfile(
    name="null device",
    vendor_id=0,
    device_id=0,
    driver_name="null",
    driver_version="",
    api_version=(1, 2, 0),
    device_type="other",
    uuid="",
    features=frozenset({"timeline_semaphore", "subgroup_basic"}),
    max_storage_buffer_range=1 << 27,
    max_texel_buffer_elements=0,
    max_push_constants_size=128,
    max_memory_allocation_count=4096,
    max_memory_allocation_size=1 << 30,
    max_buffer_size=1 << 30,
    max_storage_buffers_per_stage=8,
    max_storage_buffers_per_set=24,
    max_workgroup_size=(256, 256, 64),
    max_workgroup_invocations=256,
    max_workgroup_count=(65535, 65535, 65535),
    max_shared_memory=16384,
    min_storage_buffer_offset_alignment=256,
    non_coherent_atom_size=256,
    min_imported_host_pointer_alignment=0,
    subgroup_size=1,
    min_subgroup_size=1,
    max_subgroup_size=1,
    timestamp_period=0.0,
    timestamp_valid_bits=0,
    memory_heaps=((4 << 30, True),),
    memory_types=((0, ("device_local", "host_visible", "host_coherent")),),
    note="WebGPU's default limits",
)


def pretended() -> list[DeviceProfile]:
    """As many profiles as ``WEBNN_VK_NULL_DEVICES`` says, of one name, each with a UUID and a PCI
    address of its own; none where it isn't set. ValueError if it is no number."""
    number = environment.text("WEBNN_VK_NULL_DEVICES")
    if number is None:
        return []
    if not number.isdecimal() or not 0 < int(number) < 256:
        raise ValueError(f"WEBNN_VK_NULL_DEVICES: {number!r} is not a number from 1 to 255")
    uuid = b"webnn_vk null 00".hex()[:-2]
    return [
        NULL_PROFILE.replace(uuid=f"{uuid}{i:02x}", pci=f"0000:{i:02x}:00.0",
                             device_type="discrete")
        for i in range(int(number))
    ]
