"""Profiles of devices: what plans and choices are tested for, wherever the tests run.

Only llvmpipe's was reported by a device (by `webnn-vk devices`). Those of GPUs are typed by hand
from what makers and public databases say, no GPU has run them, and none but `MATRICES2` lists
cooperative matrices, which the real chips have.
"""

from __future__ import annotations

from pathlib import Path

from webnn_vk.driver.device_profile import DeviceProfile

FOLDER = Path(__file__).parent
#: Those that every family of kernels is planned for, with texts of what comes of it.
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
#: The profiles whose plans are the same, by the name of their golden files: typed by hand, the
#: large GPUs differ in nothing that a rule asks for.
_ALIKE = dict.fromkeys(("amd_rdna3", "intel_arc", "nvidia_h200"), "large_gpus")
#: A GPU with cooperative matrices NV2, for the kernels by these alone.
MATRICES2 = "matrices2/nvidia_rtx4090"


def stored_profile(name: str = "llvmpipe") -> DeviceProfile:
    """The profile of that name, one of `NAMES` or `MATRICES2`."""
    return DeviceProfile.from_json((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def golden_name(profile: str) -> str:
    """What the golden files of a profile's plans are called. Where profiles that share files come
    apart, the test of one of them fails, with --update-golden too: give it files of its own."""
    return _ALIKE.get(profile, profile)
