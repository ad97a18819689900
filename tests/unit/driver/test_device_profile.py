import json

import pytest

from tests.support.profiles import H200, NAMES, RTX4090, stored_profile
from tests.support.profiles.of_chips import SOURCES
from webnn_vk.driver.device_profile import FEATURES, MASK_GROUPS, NEEDED, DeviceProfile
from webnn_vk.support import warnings as library_warnings

PROFILES = {name: stored_profile(name) for name in NAMES}
NVIDIA, LLVMPIPE = PROFILES["nvidia_ampere"], PROFILES["llvmpipe"]


def test_stored_profiles() -> None:
    assert {*SOURCES} == PROFILES.keys() - {"adreno_minimum", "llvmpipe"}
    assert [name for name, profile in PROFILES.items() if profile.is_software] == ["llvmpipe"]
    for name, profile in PROFILES.items():
        source = {"llvmpipe": "snapshot", "adreno_minimum": "hand-made"}.get(name, "opened without")
        assert source in profile.note
        assert profile.max_loop_iterations == (65_535 if name == "llvmpipe" else None)
        assert profile.compiles_by_size == (name == "llvmpipe")
        assert bool(profile.cooperative_matrices) == ("cooperative_matrix" in profile.features)
        assert profile.multiprocessors == 0, "no chip was asked"
    h200 = stored_profile(H200)
    assert h200.note.startswith("snapshot of an NVIDIA H200") and h200.multiprocessors == 132
    assert DeviceProfile.from_json(h200.to_json()) == h200
    assert h200.cooperative_matrices
    consumer = stored_profile(RTX4090)
    assert consumer.note.startswith("hand-made") and consumer.cooperative_matrices


@pytest.mark.parametrize("name", PROFILES)
def test_json_round_trip(name: str) -> None:
    profile = PROFILES[name]
    again = DeviceProfile.from_json(profile.to_json())
    assert again == profile
    assert again.note == profile.note
    assert hash(again) == hash(profile)


@pytest.mark.parametrize(("change", "message"), [
    ({"name": 3}, "3 is not of type str"),
    ({"max_loop_iterations": "many"}, "'many' is not of type int"),
    ({"subgroup_size": 8.0}, "8.0 is not of type int"),
    ({"subgroup_size": True}, "True is not of type int"),
    ({"features": ["float16", "float17"]}, "float17"),
    ({"device_type": "toaster"}, "toaster"),
    ({"wings": 2}, "wings"),
    ({"max_workgroup_size": [1, 2]}, "device profile"),
    ({"memory_heaps": [[5, 1]]}, "1 is not of type bool"),
    ({"cooperative_matrices": [{"m": 1}]}, "device profile"),
])
def test_bad_json(change: dict[str, object], message: str) -> None:
    data = json.loads(NVIDIA.to_json()) | change
    with pytest.raises(ValueError, match=message):
        DeviceProfile.from_json(json.dumps(data))


def test_missing_field_and_not_an_object() -> None:
    data = json.loads(NVIDIA.to_json())
    del data["uuid"]
    with pytest.raises(ValueError, match=r"missing fields \['uuid'\]"):
        DeviceProfile.from_json(json.dumps(data))
    with pytest.raises(ValueError, match="object"):
        DeviceProfile.from_json("[]")
    with pytest.raises(ValueError):
        DeviceProfile.from_json("{")


def test_masking() -> None:
    masked = NVIDIA.masked(["float16", "int64"])
    assert {"float16", "float16_arithmetic", "int64"} <= NVIDIA.features
    assert not {"float16", "float16_arithmetic", "int64"} & masked.features
    assert {"int8", "int8_arithmetic", "int16"} <= masked.features
    assert NVIDIA.masked([]) is NVIDIA
    assert NVIDIA.masked(["int8"]).features == NVIDIA.features - {"int8", "int8_arithmetic"}
    assert NVIDIA.masked(["int8_arithmetic"]).features == NVIDIA.features - {"int8_arithmetic"}
    assert not [name for name in NVIDIA.masked(["subgroup"]).features
                if name.startswith("subgroup")]
    assert NVIDIA.cooperative_matrices
    assert NVIDIA.masked(["cooperative_matrix"]).cooperative_matrices == ()
    for name in FEATURES.keys() - NEEDED:
        assert name not in NVIDIA.masked([name]).features
    with pytest.raises(ValueError, match=r"'float17'.*float16.*int64"):
        NVIDIA.masked(["float17"])


def test_a_withdrawn_feature_may_still_be_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes nothing, and one warning says so."""
    monkeypatch.setattr(library_warnings, "_said", set())
    name = "cooperative_matrix2"
    with pytest.warns(RuntimeWarning, match=f"masking '{name}' has no effect: .* any more") as told:
        assert NVIDIA.masked([name]) is NVIDIA
        assert NVIDIA.masked([name, "int64"]) == NVIDIA.masked(["int64"])
    assert len(told) == 1
    assert name not in FEATURES


def test_what_nothing_runs_without_can_t_be_masked() -> None:
    assert NEEDED == {"timeline_semaphore"}
    with pytest.raises(ValueError, match="'timeline_semaphore' can't be masked: nothing runs"):
        NVIDIA.masked(["int8", "timeline_semaphore"])
    assert not NEEDED & {name for group in MASK_GROUPS.values() for name in group}


def test_mask_from_environment() -> None:
    masked = LLVMPIPE.mask_from_environment({"WEBNN_VK_MASK": " float16, int64,"})
    assert masked == LLVMPIPE.masked(["float16", "int64"])
    assert LLVMPIPE.mask_from_environment({}) is LLVMPIPE
    with pytest.raises(ValueError, match="WEBNN_VK_MASK='nothing'"):
        LLVMPIPE.mask_from_environment({"WEBNN_VK_MASK": "nothing"})


def test_max_tensor_byte_length() -> None:
    # Bounded by the heap on llvmpipe, by the allocation elsewhere; never by one binding.
    assert LLVMPIPE.max_tensor_byte_length == 2**31
    assert LLVMPIPE.max_tensor_byte_length > LLVMPIPE.max_storage_buffer_range
    assert NVIDIA.max_tensor_byte_length == 2**31
    assert PROFILES["adreno_minimum"].max_tensor_byte_length == 2**30
    assert LLVMPIPE.replace(memory_heaps=((1000, True),)).max_tensor_byte_length == 768
    assert LLVMPIPE.replace(max_buffer_size=4096).max_tensor_byte_length == 4096
    wide = NVIDIA.replace(max_memory_allocation_size=2**40, max_buffer_size=2**40)
    assert wide.max_tensor_byte_length == 2**32 - 256


def test_local_heap_size() -> None:
    assert NVIDIA.local_heap_size == 24 * 2**30
    assert NVIDIA.replace(memory_heaps=((5, False), (7, False))).local_heap_size == 7
    none = NVIDIA.replace(memory_heaps=(), memory_types=())
    assert (none.local_heap_size, none.max_tensor_byte_length) == (0, 0)


def test_replace_checks() -> None:
    assert NVIDIA.replace(max_shared_memory=1).max_shared_memory == 1
    with pytest.raises(ValueError, match="wings"):
        NVIDIA.replace(features=frozenset({"wings"}))
