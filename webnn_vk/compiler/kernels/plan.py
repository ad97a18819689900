"""The planner: how a device computes a kernel node.

``plan`` is a pure function of the node and the target. It takes the best candidate that is legal
and whose modules can be had (``choose``), and makes its dispatches. A module that the
GLSL compiler or the driver refuses is added to the target's ``refused``; then the graph is planned
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.driver.device_profile import DeviceProfile

from . import coopmat, coopmat2
from .choose import choose, ranked
from .dispatch import Dispatch, KernelRefused, Packed, Refused, Unsupported
from .families import family_of, solver_of
from .node import KernelNode
from .packing import is_weight
from .schedule import Schedule, Tuned

#: How many schedules are tried where modules are refused.
MOST_SCHEDULES = 4
#: Kernels without which a node is planned where their modules can't be had: a compiler that doesn't
#: know cooperative matrices compiles the others. Where another module can't be had, the nodes that
#: are fused in it are planned one by one.
_MATRICES = (coopmat.KERNEL, coopmat2.KERNEL)


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
    """How the target computes a node: by the best candidate whose modules can be had. Unsupported
    where there is none or where the best exceeds the device's limits, with the reason;
    KernelRefused where the compiler or the driver refused the schedules that were tried."""
    solver, problem = solver_of(node)
    profile = target.profile
    candidates = solver.candidates(problem, profile)
    order = ranked(solver.name, candidates, problem, profile, target.tuned)
    refusals: list[str] = []
    missing: str | None = None
    chosen: Schedule | None = None
    while len(refusals) < MOST_SCHEDULES and (schedule := next(order, None)) is not None:
        try:
            dispatches = solver.lowered(node, problem, schedule, profile)
        except Unsupported:
            if chosen is None:
                raise
            continue
        chosen = schedule
        needed = (*dispatches, *packing_of(dispatches, profile))
        refusal = next(filter(None, (d.refusal(target.refused) for d in needed)), None)
        if refusal is not None:
            refusals.append(refusal)
            continue
        missing = next((d.kernel for d in needed if not target.available(d.spec)), None)
        if missing is None:
            return Plan(schedule, tuple(dispatches), next(iter(refusals), ""))
        if schedule.kernel not in _MATRICES:
            break
        candidates = [c for c in candidates if c.kernel != schedule.kernel]
        order = ranked(solver.name, candidates, problem, profile, target.tuned)
    if refusals:
        raise KernelRefused(refusals[0])
    raise Unsupported(f"no shader for {missing} in the pack and no GLSL compiler")


def all_modules(node: KernelNode, profile: DeviceProfile) -> Iterator[KernelSpec]:
    """The modules of every schedule by which a device could compute a node; none where it can't."""
    solver, problem = solver_of(node)
    with suppress(Unsupported):
        for number, schedule in enumerate(solver.candidates(problem, profile)):
            try:
                dispatches = solver.lowered(node, problem, schedule, profile)
            except Unsupported:
                if not number:
                    return
                continue
            yield from (d.spec for d in (*dispatches, *packing_of(dispatches, profile)))


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
