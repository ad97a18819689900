"""Elements [outer, middle, inner] whose work depends on the middle position alone.

An invocation computes what belongs to a position once and applies it to several elements, along the
outer or the inner dimension: integer divisions and weights cost more than an element.
"""

from __future__ import annotations

from dataclasses import dataclass

from webnn_vk.codegen.spec import Constant, Param

from ..device_profile import DeviceProfile
from .axes import ITERATIONS, check_iterations

#: What `lib/positions.glsl.j2` reads.
PARAMS = tuple(
    Param(name) for name in ("outer", "middle", "inner", "lead", "items", "invocations")
)
CONSTANTS = (Constant("OUTER"),)

# Elements that an invocation takes at most.
_ITEMS = 8


@dataclass(frozen=True)
class Sharing:
    """Values of `PARAMS` and `CONSTANTS`, and the number of invocations needed."""

    params: dict[str, int]
    constants: dict[str, int]
    invocations: int


def share(
    outer: int, middle: int, inner: int, profile: DeviceProfile, iterations: int = 1
) -> Sharing:
    """Along the longer one of outer and inner; fewer elements each where that leaves too few
    invocations to fill the device. ``iterations``: what an element costs."""
    check_iterations(iterations, profile)
    enough = 1024 if profile.is_software else 1 << 16
    items = min(_ITEMS, outer * middle * inner // enough, ITERATIONS // (iterations + 1))
    items = max(1, items)
    along_outer = outer >= inner
    if along_outer:
        lead, blocks = inner, -(-outer // items)
    else:
        lead, blocks = -(-inner // items), outer
    invocations = lead * middle * blocks
    params = {
        "outer": outer, "middle": middle, "inner": inner, "lead": lead, "items": items,
        "invocations": invocations,
    }
    return Sharing(params, {"OUTER": int(along_outer)}, invocations)
