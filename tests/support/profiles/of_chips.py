"""Writes the stored profiles of the chips in `SOURCES`, as Mesa's drivers report them without the
chip (`codegen.isa.chips`; `scripts/install-chips` lays the drivers down).

    python -m tests.support.profiles.of_chips
"""

from __future__ import annotations

import json
from typing import Any

from codegen.isa import chip_profile
from codegen.isa.chips import CHIPS

from . import FOLDER

_GIB = 1 << 30
#: The file's name: the chip, and what its shim makes up, in place of which the maker's product page
#: is right. A shim has the memory of the machine that it runs on, or a constant.
SOURCES: dict[str, tuple[str, dict[str, Any]]] = {
    "amd_navi31": ("navi31", {"memory_heaps": [[32 * _GIB, False], [24 * _GIB, True]]}),
    "apple_m1": ("m1", {"memory_heaps": [[8 * _GIB, True]]}),
    "arm_mali_g610": ("mali-g610", {"memory_heaps": [[8 * _GIB, True]]}),
    "intel_dg2": ("dg2", {"memory_heaps": [[16 * _GIB, True], [32 * _GIB, False]]}),
    "nvidia_ampere": ("ampere", {
        "name": "NVIDIA GeForce RTX 3090 (NVK)",
        "memory_heaps": [[24 * _GIB, True], [32 * _GIB, False]],
    }),
    "qualcomm_adreno750": ("adreno750", {"memory_heaps": [[8 * _GIB, True]]}),
}


def profile_of(name: str) -> dict[str, Any]:
    """The profile that belongs into a file of `SOURCES`."""
    chip, corrections = SOURCES[name]
    profile = json.loads(chip_profile(chip))
    note = (
        f"{CHIPS[chip].product} by Mesa {profile['driver_version']}'s {CHIPS[chip].driver.name}, "
        f"opened without the chip; {' and '.join(corrections)} of the product"
    )
    return profile | corrections | {"note": note}


def main() -> None:
    for name in SOURCES:
        text = json.dumps(profile_of(name), indent=1) + "\n"
        (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
