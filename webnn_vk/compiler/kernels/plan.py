"""The planner: how a device computes a kernel node.

``plan`` is a pure function of the node and the target. It lists the legal candidates, takes the
tuned or otherwise best one whose modules can be had, and makes its dispatches. A module that the
GLSL compiler or the driver refuses is added to the target's ``refused``; then the graph is planned
again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.driver.device_profile import DeviceProfile

from .choose import choose, preferred
from .dispatch import Dispatch, KernelRefused, Packed, Refused, Unsupported
from .families import family_of, solver_of
from .family import Family
from .node import KernelNode
from .packing import is_weight
from .schedule import Schedule, Tuned

#: How many schedules of a kernel are tried where modules are refused.
MOST_SCHEDULES = 4


@dataclass(frozen=True)
class KernelTarget:
    """What kernels are planned for: the device, the schedules that measurements chose for it, and
    which modules can be had.

    available: whether a module is in the shader archive or the cache, or can be compiled.
    refused: modules that the GLSL compiler refuses and pipelines that the driver refuses, and why.
    """

    profile: DeviceProfile
    tuned: Tuned = field(default_factory=dict)
    available: Callable[[KernelSpec], bool] = lambda spec: True
    refused: Refused = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The dispatches that compute a node, by which schedule. ``refusal``: why not by a better
    schedule, where one was refused."""

    schedule: Schedule
    dispatches: tuple[Dispatch, ...]
    refusal: str = ""


def plan(node: KernelNode, target: KernelTarget) -> Plan:
    """How the target computes a node. Unsupported where it can't, with the reason; KernelRefused
    where the compiler or the driver refused the schedules that were tried."""
    solver, problem = solver_of(node)
    refusal = missing = ""
    for profile in _with_fewer_matrices(target.profile):
        candidates = solver.candidates(problem, profile)
        schedules = preferred(solver.name, candidates, problem, profile, target.tuned)
        plans = _legal(node, problem, solver, schedules, profile)
        for schedule, dispatches in itertools.islice(plans, MOST_SCHEDULES):
            needed = (*dispatches, *packing_of(dispatches, profile))
            reason = next(filter(None, (d.refusal(target.refused) for d in needed)), None)
            if reason is not None:
                refusal = refusal or reason
                continue
            missing = next((d.kernel for d in needed if not target.available(d.spec)), "")
            if not missing:
                return Plan(schedule, tuple(dispatches), refusal)
            break
    if refusal:
        raise KernelRefused(refusal)
    raise Unsupported(f"no shader for {missing} in the pack and no GLSL compiler")


def all_modules(node: KernelNode, profile: DeviceProfile) -> Iterator[KernelSpec]:
    """The modules of every schedule by which a device could compute a node; none where it can't."""
    solver, problem = solver_of(node)
    try:
        schedules = solver.candidates(problem, profile)
        for _, dispatches in _legal(node, problem, solver, schedules, profile):
            yield from (d.spec for d in (*dispatches, *packing_of(dispatches, profile)))
    except Unsupported:
        return


def packed(node: KernelNode, target: KernelTarget) -> KernelNode:
    """The node with its constant weights packed as the schedule that is chosen for it reads them
    best; the node as it is where packing gains nothing."""
    family = family_of(node)
    if not family.weights or not is_weight(node.operands[family.weights]):
        return node
    solver, problem = solver_of(node)
    candidates = solver.candidates(problem, target.profile)
    schedule = choose(solver.name, candidates, problem, target.profile, target.tuned)
    return family.pack(node, problem, schedule, target.profile)


def packing_of(dispatches: Iterable[Dispatch], profile: DeviceProfile) -> Iterator[Dispatch]:
    """The dispatches that pack, at set-up, the constants that these dispatches read."""
    values = (binding.value for dispatch in dispatches for binding in dispatch.bindings)
    for value in dict.fromkeys(value for value in values if isinstance(value, Packed)):
        yield from value.packing.pack(value, profile)


def _with_fewer_matrices(profile: DeviceProfile) -> Iterator[DeviceProfile]:
    """The device, then the device without its kinds of cooperative matrices, one after the other:
    a compiler that doesn't know them can compile the other kernels."""
    yield profile
    for feature in ("cooperative_matrix2", "cooperative_matrix"):
        without = profile.masked([feature])
        if without is not profile:
            yield without
            profile = without


def _legal(
    node: KernelNode, problem: Any, solver: Family, schedules: Iterable[Schedule],
    profile: DeviceProfile,
) -> Iterator[tuple[Schedule, list[Dispatch]]]:
    """The schedules with their dispatches, but for those that exceed the device's limits.
    Unsupported where the first one does."""
    for number, schedule in enumerate(schedules):
        try:
            yield schedule, solver.lowered(node, problem, schedule, profile)
        except Unsupported:
            if not number:
                raise
