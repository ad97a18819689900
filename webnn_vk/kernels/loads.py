"""How kernels load their operands: from storage buffers, or as uniform texels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from webnn_vk.codegen.spec import Buffer

from ..device_profile import DeviceProfile


def texel_bytes(profile: DeviceProfile, width: int = 4) -> int:
    """Up to how many bytes can be bound, whole, as uniform texels of ``width`` float32."""
    if "texel_buffers" not in profile.features:
        return 0
    return min(4 * width * profile.max_texel_buffer_elements, profile.max_storage_buffer_range)


def has_texels(profile: DeviceProfile, width: int = 4) -> bool:
    """Whether whatever one binding holds can be read as uniform texels of ``width`` float32."""
    return texel_bytes(profile, width) == profile.max_storage_buffer_range


def as_texels(buffers: Iterable[Buffer], width: int | None = None) -> tuple[Buffer, ...]:
    """The buffers, read as texels where they can be: float32, only read and bound whole. ``width``:
    of all of them; those of four elements have ``load_<name>`` and ``load4_<name>``."""
    return tuple(
        replace(b, width=width or b.width, load="texel")
        if (b.data_type, b.access, b.portions) == ("float32", "r", 1) else b
        for b in buffers
    )
