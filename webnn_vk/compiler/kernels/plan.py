"""The planner: how a device computes a kernel node.

``plan`` is a pure function of the node and the target. It takes the best candidate that is legal
and whose modules are available (``choose``), packs constant weights for it, and makes its
dispatches. A module that the GLSL compiler or the driver refuses is added to the target's
``refused``; then the graph is planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import field

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass

from . import coopmat, coopmat2
from .choose import ranked
from .dispatch import Dispatch, KernelRefused, Packed, Refused, Unsupported
from .family import family_of, solver_of
from .node import KernelNode
from .packing import is_weight
from .schedule import Schedule, Tuned

#: How many schedules are tried where modules are refused or unavailable.
MOST_SCHEDULES = 6
#: Where modules of these kernels are unavailable, a node is planned without them: a compiler that
#: doesn't know cooperative matrices compiles the others. Where another module is unavailable, the
#: nodes that are fused in it are planned one by one.
_MATRICES = (coopmat.KERNEL, coopmat2.KERNEL)


@dataclass(frozen=True)
class KernelTarget:
    """The target that kernels are planned for: the device, the schedules that measurements chose
    for it, and the available modules.

    available: whether a module is in the shader archive or the cache, or can be compiled.
    refused: modules that the GLSL compiler refuses and pipelines that the driver refuses, and why.
    packs: whether constant weights are packed.
    """

    profile: DeviceProfile
    tuned: Tuned = field(default_factory=dict)
    available: Callable[[KernelSpec], bool] = lambda spec: True
    refused: Refused = field(default_factory=dict)
    packs: bool = True


@dataclass(frozen=True)
class Plan:
    """The dispatches that compute a node, by which schedule. ``refusal``: why not by a better
    schedule, where one was refused."""

    schedule: Schedule
    dispatches: tuple[Dispatch, ...]
    refusal: str = ""


def plan(node: KernelNode, target: KernelTarget) -> Plan:
    """How the target computes a node: by the best candidate whose modules are available, its
    constant weights packed for it if possible. Unsupported where there is none or where the best
    exceeds the device's limits, with the reason; KernelRefused where the compiler or the driver
    refused those that were tried."""
    solver, problem = solver_of(node)
    profile = target.profile
    candidates = solver.candidates(problem, profile)
    order = ranked(solver.name, candidates, problem, profile, target.tuned)
    failures: list[Unsupported] = []
    for _ in range(MOST_SCHEDULES):
        if (schedule := next(order, None)) is None:
            break
        for form in forms(node, schedule, target):
            try:
                return Plan(schedule, dispatches_by(form, schedule, target), _refusal(failures))
            except Unsupported as error:
                failures.append(error)
        if isinstance(failures[-1], _Missing) and schedule.kernel in _MATRICES:
            candidates = [c for c in candidates if c.kernel != schedule.kernel]
            order = ranked(solver.name, candidates, problem, profile, target.tuned)
        elif isinstance(failures[-1], _Missing) or all(type(e) is Unsupported for e in failures):
            break
    if refusal := _refusal(failures):
        raise KernelRefused(refusal)
    raise failures[-1]


def _refusal(failures: Iterable[Unsupported]) -> str:
    """The first message of the compiler or the driver, if it refused something."""
    return next((str(e) for e in failures if isinstance(e, KernelRefused)), "")


class _Missing(Unsupported):
    """A module is unavailable."""


def dispatches_by(
    node: KernelNode, schedule: Schedule, target: KernelTarget
) -> tuple[Dispatch, ...]:
    """The dispatches of a node by a schedule. KernelRefused if the compiler or the driver refused
    one of them or one that packs constants for them; Unsupported if one is unavailable or exceeds
    the device's limits."""
    solver, problem = solver_of(node)
    dispatches = solver.lowered(node, problem, schedule, target.profile)
    for dispatch in (*dispatches, *packing_of(dispatches, target.profile)):
        if (refusal := dispatch.refusal(target.refused)) is not None:
            raise KernelRefused(refusal)
        if not target.available(dispatch.spec):
            raise _Missing(
                f"no shader for {dispatch.kernel} in the shader archive and no GLSL compiler"
            )
    return tuple(dispatches)


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


def forms(node: KernelNode, schedule: Schedule, target: KernelTarget) -> Iterator[KernelNode]:
    """The node with its constant weights packed as the schedule reads them best, where that gains
    something and the schedule can compute it; and the node as it is."""
    family, profile = family_of(node), target.profile
    if target.packs and family.weights and is_weight(node.operands[family.weights]):
        packed = family.pack(node, family.problem(node), schedule, profile)
        if packed is not node:
            solver, problem = solver_of(packed)
            if schedule in solver.candidates(problem, profile):
                yield packed
    yield node


def packing_of(dispatches: Iterable[Dispatch], profile: DeviceProfile) -> Iterator[Dispatch]:
    """The dispatches that pack, at set-up, the constants that these dispatches read."""
    values = (binding.value for dispatch in dispatches for binding in dispatch.bindings)
    for value in dict.fromkeys(value for value in values if isinstance(value, Packed)):
        yield from value.packing.pack(value, profile)
