"""Profiles of devices for which plans and choices are tested, wherever the tests run.

llvmpipe's was reported by a device (by `webnn-vk devices`), the chips' by Mesa's drivers without
the chip (``of_chips``). `adreno_minimum` and `MATRICES2` were typed by hand. A profile's ``note``
names its source.
"""

from __future__ import annotations

from pathlib import Path

from webnn_vk.driver.device_profile import DeviceProfile

FOLDER = Path(__file__).parent
#: Profiles that every kernel family is planned for, with texts of the plans.
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
#: A GPU with cooperative matrices NV2, for the kernels that need them.
MATRICES2 = "matrices2/nvidia_rtx4090"


def stored_profile(name: str = "llvmpipe") -> DeviceProfile:
    """The profile of that name, one of `NAMES` or `MATRICES2`."""
    return DeviceProfile.from_json((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
