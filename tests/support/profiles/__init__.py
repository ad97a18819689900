"""Profiles of devices for which plans and choices are tested, wherever the tests run.

Only llvmpipe's was reported by a device (by `webnn-vk devices`). The GPUs' profiles were typed by
hand from documents of the makers and public databases; no GPU has run them, and none except
`MATRICES2` lists cooperative matrices, which the real chips have.
"""

from __future__ import annotations

from pathlib import Path

from webnn_vk.driver.device_profile import DeviceProfile

FOLDER = Path(__file__).parent
#: Profiles that every kernel family is planned for, with texts of the plans.
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
#: Profiles with equal plans, by the name of their golden files: typed by hand, the large GPUs don't
#: differ in any property that a rule uses.
_ALIKE = dict.fromkeys(("amd_rdna3", "intel_arc", "nvidia_h200"), "large_gpus")
#: A GPU with cooperative matrices NV2, for the kernels that need them.
MATRICES2 = "matrices2/nvidia_rtx4090"


def stored_profile(name: str = "llvmpipe") -> DeviceProfile:
    """The profile of that name, one of `NAMES` or `MATRICES2`."""
    return DeviceProfile.from_json((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def golden_name(profile: str) -> str:
    """The name of the golden files of a profile's plans. If profiles that share files become
    different, the test of one of them fails, with --update-golden too: give it its own files."""
    return _ALIKE.get(profile, profile)
