from typing import Any
from uuid import UUID

import pytest

import webnn_vk
from webnn_vk.driver.vulkan import binding, snapshot
from webnn_vk.driver.vulkan.snapshot import PhysicalDevice, choose_queue_family, enumerate_devices

GRAPHICS, COMPUTE, TRANSFER = 1, 2, 4


def test_snapshot_is_plain_and_sane(physical: PhysicalDevice) -> None:
    profile = physical.profile
    assert type(profile).from_json(profile.to_json()) == profile
    assert "timeline_semaphore" in profile.features
    assert physical.unusable is None
    # The minimum limits that Vulkan guarantees
    assert profile.api_version >= (1, 2)
    assert profile.max_storage_buffer_range >= 2**27
    assert profile.max_push_constants_size >= 128
    assert profile.max_workgroup_invocations >= 128
    assert profile.max_shared_memory >= 16384
    assert profile.max_memory_allocation_size >= 2**30
    assert 0 < profile.min_storage_buffer_offset_alignment <= 256
    assert any(local for _, local in profile.memory_heaps)
    assert any("host_visible" in names for _, names in profile.memory_types)
    assert profile.max_loop_iterations == (65_535 if profile.driver_name == "llvmpipe" else None)
    assert profile.compiles_by_size == (profile.driver_name == "llvmpipe")
    assert all(heap < len(profile.memory_heaps) for heap, _ in profile.memory_types)


def test_snapshots_agree(physical: PhysicalDevice) -> None:
    again = enumerate_devices()[physical.index]
    assert again.profile == physical.profile


@pytest.mark.parametrize("extension, number, member", [
    ("VK_NV_shader_sm_builtins", 1000154001, "shaderSMCount"),
    ("VK_AMD_shader_core_properties2", 1000227000, "activeComputeUnitCount"),
    ("VK_ARM_shader_core_builtins", 1000497001, "shaderCoreCount"),
])
def test_multiprocessors_by_the_extension_that_a_driver_has(
    physical: PhysicalDevice, monkeypatch: pytest.MonkeyPatch, extension: str, number: int,
    member: str,
) -> None:
    """The extension's struct, of the type that Vulkan's registry numbers so, is asked for with the
    other properties. The test answers in the driver's place, which may not know the struct."""
    others = physical.extensions - snapshot._MULTIPROCESSORS.keys()
    chain, answered = binding.chain, []

    def answering(*structs: Any) -> Any:
        mine = [s for s in structs if s.sType == number]
        for struct in mine:
            setattr(struct, member, 132)
        answered.extend(mine)
        return chain(*(s for s in structs if s not in mine))

    def read(extensions: frozenset[str]) -> int:
        profile = snapshot._profile(physical.owner, physical.handle, extensions, 64)
        assert profile.replace(multiprocessors=0).features == physical.profile.features
        return profile.multiprocessors

    monkeypatch.setattr(binding, "chain", answering)
    assert read(others) == 0 and not answered
    assert read(others | {extension}) == 132 and len(answered) == 1


def test_queue_family() -> None:
    assert choose_queue_family([(TRANSFER, 2), (COMPUTE, 8), (GRAPHICS | COMPUTE, 16)]) == 2
    assert choose_queue_family([(GRAPHICS, 1), (COMPUTE, 8)]) == 1
    assert choose_queue_family([(COMPUTE, 0), (TRANSFER, 1)]) == -1
    assert choose_queue_family([]) == -1


def test_a_device_is_named_by_its_uuid(physical: PhysicalDevice) -> None:
    info = next(d for d in webnn_vk.devices() if d.index == physical.index)
    assert UUID(info.uuid).hex == physical.profile.uuid
    assert info.pci == physical.profile.pci
    settings = webnn_vk.Settings(device=f"uuid:{info.uuid}")
    with webnn_vk.ml.create_context(settings=settings).result() as context:
        assert context.device_info == info
    absent = webnn_vk.Settings(device="pci:0fff:1f:1f.7")
    with pytest.raises(webnn_vk.NotSupportedError, match="matches no device"):
        webnn_vk.ml.create_context(settings=absent).result()
