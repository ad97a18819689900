
import pytest

from tests.support.profiles import stored_profile
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.vulkan.devices import choose_device
from webnn_vk.driver.vulkan.errors import DeviceNotFound

LLVMPIPE, NVIDIA, AMD, ARC, ADRENO = (
    stored_profile(name)
    for name in ("llvmpipe", "nvidia_ampere", "amd_navi31", "intel_dg2", "adreno_minimum"))
VIRTUAL = NVIDIA.replace(name="passthrough", device_type="virtual")
NULL = NVIDIA.replace(name="Null hardware (RADV)", memory_heaps=(), memory_types=())
TWINS = [NVIDIA.replace(uuid="84c7545db252b9c650305931de02a4b" + last, pci=f"0000:{bus}:00.0")
         for last, bus in (("b", "65"), ("c", "ca"))]
NO_HEAPS = "the device reports no memory heaps"
OLD = "driver too old: Vulkan 1.1, 1.2 is needed"


@pytest.mark.parametrize(("profiles", "options", "expected"), [
    ([LLVMPIPE], {}, None),
    ([], {}, None),
    ([LLVMPIPE, ADRENO], {}, 1),
    ([LLVMPIPE, ADRENO, AMD], {}, 2),
    ([LLVMPIPE, VIRTUAL, ADRENO], {}, 2),
    ([LLVMPIPE, VIRTUAL], {}, 1),
    ([ARC, AMD, NVIDIA], {}, 1),  # the larger memory
    ([AMD, NVIDIA, ARC], {"unusable": [None, OLD, None]}, 0),
    ([AMD], {"unusable": [OLD]}, None),
    ([AMD, ADRENO], {"power_preference": "low-power"}, 1),
    ([ADRENO, AMD], {"power_preference": "high-performance"}, 1),
    ([ADRENO], {"power_preference": "high-performance"}, 0),
    ([AMD], {"power_preference": "low-power"}, 0),
    ([AMD], {"accelerated": False}, None),
    ([AMD, ADRENO], {"accelerated": False, "power_preference": "low-power"}, 1),
    ([LLVMPIPE], {"power_preference": "high-performance"}, None),
    ([LLVMPIPE], {"override": "0"}, 0),
    ([LLVMPIPE], {"override": "LLVM"}, 0),
    ([LLVMPIPE], {"override": "vulkan"}, 0),
    ([LLVMPIPE, AMD], {"override": "vulkan"}, 1),
    ([LLVMPIPE, AMD], {"override": "Vulkan", "power_preference": "low-power"}, 1),
    ([LLVMPIPE, AMD], {"override": "cpu"}, None),
    ([LLVMPIPE, AMD], {"override": "CPU", "power_preference": "low-power"}, None),
    ([LLVMPIPE, AMD], {"override": "radeon", "accelerated": False}, 1),
    ([AMD, AMD], {"override": "radeon", "unusable": [OLD, None]}, 1),
    ([AMD], {"override": "  "}, 0),
    ([*TWINS], {"override": f"uuid:{TWINS[1].uuid}"}, 1),
    ([*TWINS], {"override": "UUID:84C7545D-B252-B9C6-5030-5931DE02A4BC"}, 1),
    ([*TWINS], {"override": "pci:0000:65:00.0"}, 0),
    ([*TWINS], {"override": "pci:00000000:CA:00.0"}, 1),  # as NVML writes it
    ([*TWINS], {"override": "pci:ca:00.0"}, 1),
    ([LLVMPIPE], {"override": f"uuid:{LLVMPIPE.uuid}"}, 0),
    ([NULL], {"unusable": [NO_HEAPS]}, None),
    ([NULL, ADRENO], {"unusable": [NO_HEAPS, None]}, 1),
    ([NULL, LLVMPIPE], {"unusable": [NO_HEAPS, None]}, None),
    ([NULL, LLVMPIPE], {"unusable": [NO_HEAPS, None], "override": "vulkan"}, 1),
])
def test_choice(profiles: list[DeviceProfile], options: dict, expected: int | None) -> None:
    assert choose_device(profiles, **options) == expected


@pytest.mark.parametrize(("profiles", "options", "message"), [
    ([AMD], {"override": "1"}, r"'1' matches no device; found: 0: AMD Radeon"),
    ([AMD], {"override": "geforce"}, "'geforce' matches no device"),
    ([], {"override": "geforce"}, "found: none"),
    ([AMD], {"override": "radeon", "unusable": [OLD]}, "can't be used: driver too old"),
    ([AMD], {"override": "0", "unusable": [OLD]}, "can't be used: driver too old"),
    ([*TWINS], {"override": "uuid:" + "0" * 32},
     "matches no device; found: 0: NVIDIA .* .uuid 84c7545db252b9c650305931de02a4bb."),
    ([*TWINS], {"override": "pci:0001:65:00.0"}, "found: 0: NVIDIA .* .pci 0000:65:00.0., 1: "),
    ([*TWINS], {"override": "uuid:84c7"}, "'84c7' is no UUID: 32 hexadecimal digits"),
    ([*TWINS], {"override": "pci:65"}, "'65' is no PCI address: one like 0000:65:00.0"),
    ([*TWINS], {"override": "pci:", "unusable": []}, "'' is no PCI address"),
    ([AMD], {"override": "vulkan", "unusable": [OLD]}, "no usable Vulkan device.*too old"),
    ([], {"override": "vulkan"}, "no usable Vulkan device"),
    ([NULL], {"override": "vulkan", "unusable": [NO_HEAPS]},
     "no usable Vulkan device .0: Null hardware .RADV.: the device reports no memory heaps"),
    ([NULL, LLVMPIPE], {"override": "null", "unusable": [NO_HEAPS, None]},
     "Null hardware .RADV. can't be used: the device reports no memory heaps"),
])
def test_override_that_names_nothing(profiles: list[DeviceProfile], options: dict,
                                     message: str) -> None:
    with pytest.raises(DeviceNotFound, match=message):
        choose_device(profiles, **options)
