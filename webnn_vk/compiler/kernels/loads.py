"""How kernels load their operands: from storage buffers, or as uniform texels; each lane what it
needs, or each a part of what all need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from webnn_vk.codegen.spec import Buffer, Constant
from webnn_vk.driver.device_profile import DeviceProfile

from .dispatch import Dispatch
from .schedule import Schedule

#: The device features with which lanes exchange the vectors that they load.
SHUFFLES = frozenset({"subgroup_basic", "subgroup_shuffle"})
#: Those with which subgroups add up what their lanes have.
SUBGROUP_SUMS = frozenset({"subgroup_basic", "subgroup_arithmetic"})


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


def read_buffer(
    name: str, data_type: str, size: int, texels: int, width: int = 1
) -> Buffer:
    """A buffer that is only read, of ``size`` bytes: as texels if it is of float32 and no larger
    than ``texels``, otherwise ``width`` elements at once."""
    if data_type == "float32" and size <= texels:
        return Buffer(name, data_type, width=4, load="texel")
    return Buffer(name, data_type, width=width)


def as_texels(buffers: Iterable[Buffer]) -> tuple[Buffer, ...]:
    """The buffers, read as texels where they can be: float32, only read and bound whole. Buffers
    one element wide stay so, which loads as fast as picking one of four, and compiles faster."""
    return tuple(
        replace(b, load="texel")
        if (b.data_type, b.access, b.portions) == ("float32", "r", 1) else b
        for b in buffers
    )


def lanes_that_shuffle(schedule: Schedule, profile: DeviceProfile) -> int:
    """How many lanes load different vectors of what all of them need and exchange them; 0 if each
    loads all. On processors, where a load of one vector by all lanes takes as long as one of
    different vectors, and an exchange an instruction."""
    lanes = lanes_of_processor(profile, SHUFFLES)
    fills = lanes > 0 and dict(schedule.numbers).get("LY", 1) == 1 and not schedule["LX"] % lanes
    return lanes if fills else 0


def lanes_of_processor(profile: DeviceProfile, needed: frozenset[str]) -> int:
    """The invocations of a subgroup of a processor with the features that are needed; 0 for other
    devices, whose subgroups could be incomplete."""
    size = profile.subgroup_size
    whole = 1 < size == profile.min_subgroup_size == profile.max_subgroup_size
    is_one = profile.device_type == "cpu" and profile.features >= needed
    return size if is_one and whole else 0


def shuffling(step: Dispatch, lanes: int) -> Dispatch:
    """The dispatch with its module's option ``shuffle``: whether this many lanes exchange what they
    load."""
    spec = replace(step.spec, options=(*step.spec.options, ("shuffle", lanes > 0)))
    if not lanes:
        return replace(step, spec=spec)
    constants = *spec.constants, Constant("SHUFFLE")
    spec = replace(spec, constants=constants, features=spec.features | SHUFFLES)
    return replace(step, spec=spec, constants={**step.constants, "SHUFFLE": lanes})


def with_subgroup_sums(
    step: Dispatch, lanes: int, profile: DeviceProfile, needed: frozenset[str] = SUBGROUP_SUMS
) -> Dispatch:
    """The dispatch with its module's option ``subgroup_sums``: whether ``lanes`` invocations, which
    share an inner dimension, add up their sums as a subgroup, with the features ``needed``. On
    processors, which read shared memory lane by lane, where they read texels."""
    spec = step.spec
    pays = any(b.load == "texel" for b in spec.buffers) and (
        lanes_of_processor(profile, needed) == lanes > 0
    )
    features = spec.features | needed if pays else spec.features
    options = *spec.options, ("subgroup_sums", pays)
    return replace(step, spec=replace(spec, options=options, features=features))
