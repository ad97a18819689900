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
from typing import Any

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass

from . import attention, conv_columns, coopmat
from .choose import ranked
from .dispatch import Dispatch, KernelRefused, Packed, Refused, Specialised, Unsupported
from .family import Family, family_of, solver_of
from .node import KernelNode
from .packing import is_weight
from .schedule import Schedule, Tuned

#: How many schedules are tried where modules are refused or unavailable.
MOST_SCHEDULES = 6
#: Where modules of these kernels are unavailable, a node is planned without them: a compiler may
#: not know cooperative matrices, and the shader archive lacks `attention.PARTED`. Where another
#: module is unavailable, the nodes that are fused in it are planned one by one.
_OPTIONAL = (coopmat.KERNEL, conv_columns.BY_MATRICES, attention.PARTED)


@dataclass(frozen=True)
class KernelTarget:
    """The target that kernels are planned for: the device, the schedules that measurements chose
    for it, and the available modules.

    available: whether a module is in the shader archive or the cache, or can be compiled.
    refused: modules that the GLSL compiler refuses and pipelines that the driver refuses, and why.
    packs: whether constant weights are packed.
    planned: is told each pipeline.
    """

    profile: DeviceProfile
    tuned: Tuned = field(default_factory=dict)
    available: Callable[[KernelSpec], bool] = lambda spec: True
    refused: Refused = field(default_factory=dict)
    packs: bool = True
    planned: Callable[[KernelSpec, Specialised], None] | None = None


@dataclass(frozen=True)
class Task:
    """A node, the family whose kernels compute it, and the problem that it is for them. Whatever
    plans a node asks its family once."""

    node: KernelNode
    solver: Family
    problem: Any

    @classmethod
    def of(cls, node: KernelNode) -> Task:
        """The task that a node is."""
        return cls(node, *solver_of(node))

    def lowered(self, schedule: Schedule, profile: DeviceProfile) -> list[Dispatch]:
        """The dispatches by a schedule. Unsupported where the device's limits forbid it."""
        return self.solver.lowered(self.node, self.problem, schedule, profile)


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
    task, profile = Task.of(node), target.profile
    solver, problem = task.solver, task.problem
    candidates = solver.candidates(problem, profile)
    order = ranked(solver.name, candidates, problem, profile, target.tuned)
    failures: list[Unsupported] = []
    for _ in range(MOST_SCHEDULES):
        if (schedule := next(order, None)) is None:
            break
        for form in forms(task, schedule, target):
            try:
                return Plan(schedule, dispatches_by(form, schedule, target), _refusal(failures))
            except Unsupported as error:
                failures.append(error)
        if isinstance(failures[-1], _Missing) and schedule.kernel in _OPTIONAL:
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


def dispatches_by(task: Task, schedule: Schedule, target: KernelTarget) -> tuple[Dispatch, ...]:
    """The dispatches of a task by a schedule. KernelRefused if the compiler or the driver refused
    one of them or one that packs constants for them; Unsupported if one is unavailable or exceeds
    the device's limits."""
    dispatches = task.lowered(schedule, target.profile)
    needed = (*dispatches, *packing_of(dispatches, target.profile))
    for dispatch in needed:
        if (refusal := dispatch.refusal(target.refused)) is not None:
            raise KernelRefused(refusal)
        if not target.available(dispatch.spec):
            raise _Missing(
                f"no shader for {dispatch.kernel} in the shader archive and no GLSL compiler"
            )
    if target.planned is not None:
        for dispatch in needed:
            target.planned(dispatch.spec, dispatch.specialised)
    return tuple(dispatches)


def all_modules(node: KernelNode, profile: DeviceProfile) -> Iterator[KernelSpec]:
    """The modules of every schedule by which a device could compute a node; none where it can't."""
    task = Task.of(node)
    with suppress(Unsupported):
        for number, schedule in enumerate(task.solver.candidates(task.problem, profile)):
            try:
                dispatches = task.lowered(schedule, profile)
            except Unsupported:
                if not number:
                    return
                continue
            yield from (d.spec for d in (*dispatches, *packing_of(dispatches, profile)))


def forms(task: Task, schedule: Schedule, target: KernelTarget) -> Iterator[Task]:
    """The task with its constant weights packed as the schedule reads them best, where that gains
    something and the schedule can compute it; and the task as it is."""
    node, profile = task.node, target.profile
    family = family_of(node)
    if target.packs and family.weights and is_weight(node.operands[family.weights]):
        packed = family.pack(node, task.problem, schedule, profile)
        if packed is not node:
            form = Task.of(packed)
            if schedule in form.solver.candidates(form.problem, profile):
                yield form
    yield task


def packing_of(dispatches: Iterable[Dispatch], profile: DeviceProfile) -> Iterator[Dispatch]:
    """The dispatches that pack, at set-up, the constants that these dispatches read."""
    values = (binding.value for dispatch in dispatches for binding in dispatch.bindings)
    for value in dict.fromkeys(value for value in values if isinstance(value, Packed)):
        yield from value.packing.pack(value, profile)
