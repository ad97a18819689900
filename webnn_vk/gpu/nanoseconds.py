"""The kernel that turns a device's ticks into nanoseconds."""

from __future__ import annotations

import numpy as np

from webnn_vk.codegen import KernelSpec
from webnn_vk.codegen.spec import Buffer, Param
from webnn_vk.driver.device_profile import DeviceProfile

#: Invocations of a workgroup.
GROUP = 64


def spec() -> KernelSpec:
    """Times, two words each, in place."""
    names = ("count", "multiplier", "shift", "mask_low", "mask_high")
    return KernelSpec(
        "nanoseconds.comp.j2", (Buffer("times", "uint32", "rw"),), tuple(map(Param, names))
    )


def needed(profile: DeviceProfile) -> bool:
    """Whether the device's ticks need converting: they are not nanoseconds, or have fewer than 64
    bits."""
    return profile.timestamp_period != 1 or profile.timestamp_valid_bits < 64


def params(count: int, profile: DeviceProfile) -> dict[str, int]:
    """The kernel's parameters for ``count`` times. The period is a 32-bit float: a fraction whose
    numerator has 24 bits and whose denominator, from 2⁻³⁹ ns on, is at most 2⁶³."""
    multiplier, denominator = float(np.float32(profile.timestamp_period)).as_integer_ratio()
    mask = (1 << profile.timestamp_valid_bits) - 1
    return {
        "count": count, "multiplier": multiplier, "shift": denominator.bit_length() - 1,
        "mask_low": mask & 0xFFFFFFFF, "mask_high": mask >> 32,
    }
