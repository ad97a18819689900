"""Profiles of devices, stored as `webnn-vk devices` reports them: what plans and choices are
tested for, wherever the tests run."""

from __future__ import annotations

from pathlib import Path

from webnn_vk.device_profile import DeviceProfile

FOLDER = Path(__file__).parent
#: Those that every family of kernels is planned for, with texts of what comes of it.
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


#: A GPU with cooperative matrices NV2, for the kernels by these alone.
MATRICES2 = "matrices2/nvidia_rtx4090"


def stored_profile(name: str = "llvmpipe") -> DeviceProfile:
    """The profile of that name, one of `NAMES` or `MATRICES2`."""
    return DeviceProfile.from_json((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
