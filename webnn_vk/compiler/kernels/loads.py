"""How kernels load their operands: from storage buffers, or as uniform texels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from webnn_vk.codegen.spec import Buffer
from webnn_vk.driver.device_profile import DeviceProfile


def texel_bytes(profile: DeviceProfile, load: str = "texel") -> int:
    """Bytes up to which the operands of a schedule with this ``load`` can be read as texels of
    four float32. The limit of storage buffers' ranges is not theirs."""
    if load != "texel" or "texel_buffers" not in profile.features:
        return 0
    return 16 * profile.max_texel_buffer_elements


def has_texels(profile: DeviceProfile) -> bool:
    """Whether whatever one binding holds can be read as uniform texels of one float32."""
    room = 4 * profile.max_texel_buffer_elements
    return "texel_buffers" in profile.features and room >= profile.max_storage_buffer_range


def as_texels(buffers: Iterable[Buffer]) -> tuple[Buffer, ...]:
    """The buffers, read as texels where they can be: float32, only read and bound whole. Those one
    element wide stay so: that loads as fast as picking one of four, and compiles faster."""
    return tuple(
        replace(b, load="texel")
        if (b.data_type, b.access, b.portions) == ("float32", "r", 1) else b
        for b in buffers
    )
