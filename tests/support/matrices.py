"""Profiles of the test device that list cooperative matrices without the feature: kernels with them
are planned, and run in their emulation."""

from __future__ import annotations

from tests.support.running import device_profile
from webnn_vk.device_profile import CooperativeMatrix, DeviceProfile

#: Shapes (m, n, k) of fragments and sizes of subgroups, as devices have them.
SHAPES = {
    "16x16x16, subgroups of 32": ((16, 16, 16), 32),
    "16x8x16, subgroups of 32": ((16, 8, 16), 32),
    "8x8x16, subgroups of 8": ((8, 8, 16), 8),
}


def shape(m: int, n: int, k: int, data_type: str = "float16") -> CooperativeMatrix:
    """The shape of an m x k by k x n product of a data type, summed in float32."""
    return CooperativeMatrix(m, n, k, data_type, data_type, "float32", "float32")


def emulating(
    name: str = "8x8x16, subgroups of 8", data_type: str = "float16"
) -> DeviceProfile:
    """The test device's profile with one shape of `SHAPES`."""
    sizes, subgroup = SHAPES[name]
    return device_profile(
        cooperative_matrices=(shape(*sizes, data_type),), subgroup_size=subgroup
    )
