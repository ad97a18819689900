"""Outputs seen as [outer, middle, inner], where the position along ``middle`` decides what is read.

Pooling and resampling are computed this way. An invocation computes a position's coordinates and
weights once and uses them for several elements along the outer or the inner dimension, because the
integer divisions for a position cost more than an element. Batch normalisation does the same, with
channels in the middle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import ceil_divide

from .dispatch import Dispatch
from .epilogue import build
from .heuristics import device_class
from .loads import has_texels
from .multi_binding import Bound, dispatch
from .node import KernelNode
from .rows import check_iterations, launch, loop_budget
from .schedule import Schedule

# Elements that an invocation takes at most.
_ITEMS = 8


@dataclass(frozen=True)
class Positions:
    """Sizes of the three dimensions; ``texels``: whether the elements can be read as texels;
    ``iterations``: loop iterations for one element."""

    outer: int
    middle: int
    inner: int
    texels: bool
    iterations: int = 1


def schedules(p: Positions, profile: DeviceProfile) -> Sequence[Schedule]:
    """Several elements per invocation, fewer where that would leave too few invocations to fill the
    device. Unsupported where one element takes too many iterations."""
    check_iterations(p.iterations, profile)
    items = min(_ITEMS, p.outer * p.middle * p.inner // device_class(profile).min_invocations)
    budget = loop_budget(profile)
    if budget is not None:
        items = min(items, budget // (p.iterations + 1))
    return [
        Schedule("positions", (("items", max(1, items)),), load)
        for load in ("storage", *["texel"] * (p.texels and has_texels(profile)))
    ]


def of_positions(
    node: KernelNode, template: str, operands: Sequence[Bound], p: Positions, schedule: Schedule,
    profile: DeviceProfile, params: Mapping[str, Any], variant: str,
    constants: Mapping[str, int] | None = None, **more: Any,
) -> Dispatch:
    """The dispatch of a schedule: an invocation's elements lie along the longer of the
    outer and the inner dimension. ``params``, ``constants``: what the template adds to
    `lib/positions.glsl.j2`; ``more`` as for ``dispatch``."""
    items, texels = schedule["items"], schedule.load == "texel"
    along_outer = p.outer >= p.inner
    if along_outer:
        lead, blocks = p.inner, ceil_divide(p.outer, items)
    else:
        lead, blocks = ceil_divide(p.inner, items), p.outer
    invocations = lead * p.middle * blocks
    size, groups = launch(invocations, 1, profile)
    numbers = {
        "outer": p.outer, "middle": p.middle, "inner": p.inner, "lead": lead, "items": items,
        "invocations": invocations,
    }
    return dispatch(
        node, template, operands, build(node), groups, {**numbers, **params},
        {"LX": size, "OUTER": int(along_outer)} | dict(constants or ()), profile,
        texels=texels, variant=variant + " texels" * texels, **more,
    )
