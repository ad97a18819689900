"""Profiles of devices for which plans and choices are tested, wherever the tests run.

llvmpipe's and that of `H200` were reported by devices (by `webnn-vk devices`), the chips' by
Mesa's drivers without the chip (``of_chips``). `adreno_minimum` and `RTX4090` were typed by hand. A
profile's ``note`` names its source.
"""

from __future__ import annotations

from pathlib import Path

from webnn_vk.driver.device_profile import DeviceProfile

FOLDER = Path(__file__).parent
#: Profiles that every kernel family is planned for, with texts of the plans.
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
#: A GPU that ran the library. Choices are tested for it, without texts of plans.
H200 = "gpus/nvidia_h200"
#: A consumer GPU. Choices are tested for it, without texts of plans.
RTX4090 = "gpus/nvidia_rtx4090"


def stored_profile(name: str = "llvmpipe") -> DeviceProfile:
    """The profile of that name, one of `NAMES`, `H200` or `RTX4090`."""
    return DeviceProfile.from_json((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
