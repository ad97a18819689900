"""Elements [outer, middle, inner] whose work depends on the middle position alone.

An invocation computes what belongs to a position once and applies it to several elements, along the
outer or the inner dimension: integer divisions and weights cost more than an element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from webnn_vk.codegen.spec import Constant, Param

from ..device_profile import DeviceProfile
from ..integers import ceil_divide
from .heuristics import rules
from .rows import check_iterations, loop_budget
from .schedule import Schedule

#: What `lib/positions.glsl.j2` reads.
PARAMS = tuple(
    Param(name) for name in ("outer", "middle", "inner", "lead", "items", "invocations")
)
CONSTANTS = (Constant("OUTER"),)

# Elements that an invocation takes at most.
_ITEMS = 8


@dataclass(frozen=True)
class Positions:
    """Sizes of the three parts; ``iterations``: what an element costs."""

    outer: int
    middle: int
    inner: int
    iterations: int = 1


@dataclass(frozen=True)
class Work:
    """Values of `PARAMS` and `CONSTANTS`, and the number of invocations needed."""

    params: Mapping[str, int]
    constants: Mapping[str, int]
    invocations: int


def schedules(p: Positions, profile: DeviceProfile) -> Sequence[Schedule]:
    """One schedule: several elements an invocation, fewer where that would leave too few
    invocations to fill the device. Unsupported where one element costs too much."""
    check_iterations(p.iterations, profile)
    items = min(_ITEMS, p.outer * p.middle * p.inner // rules(profile).fill)
    budget = loop_budget(profile)
    if budget is not None:
        items = min(items, budget // (p.iterations + 1))
    return [Schedule("positions", (("items", max(1, items)),))]


def work(p: Positions, schedule: Schedule) -> Work:
    """The elements of an invocation lie along the longer one of outer and inner."""
    items = schedule["items"]
    along_outer = p.outer >= p.inner
    if along_outer:
        lead, blocks = p.inner, ceil_divide(p.outer, items)
    else:
        lead, blocks = ceil_divide(p.inner, items), p.outer
    invocations = lead * p.middle * blocks
    params = {
        "outer": p.outer, "middle": p.middle, "inner": p.inner, "lead": lead, "items": items,
        "invocations": invocations,
    }
    return Work(params, {"OUTER": int(along_outer)}, invocations)
