"""The protocol of a kernel family: from a node to a problem, to candidates, to dispatches. ``plan``
chooses among the candidates. Which family computes a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from webnn_vk.driver.device_profile import DeviceProfile

from ..types.access import Access
from . import prologue
from .dispatch import Dispatch
from .node import KernelNode, Step
from .schedule import Schedule

#: The families by name. A family is registered when its class is made.
FAMILIES: dict[str, Family] = {}


class Family:
    """A group of kernels that compute one kind of problem.

    ``problem`` says what a node is to the family, as plain numbers; ``candidates`` how the device
    could compute that; ``lower`` makes the dispatches of one of them. All are pure functions.
    """

    name: ClassVar[str]
    #: Whether the kernels apply element-wise steps to what they store.
    fuses: ClassVar[bool] = False
    #: About how often the kernels load each element of the operand ``input``, if element-wise steps
    #: can compute it where it is loaded (``prologue``); 0: they can't.
    input_loads: ClassVar[int] = 0
    #: The kernels' templates, without ``.comp.j2``; (): the one of the family's name. A change of
    #: one makes tuned schedules of the family void.
    templates: ClassVar[tuple[str, ...]] = ()
    #: The operand that ``pack`` packs where it is a constant; "": none.
    weights: ClassVar[str] = ""
    #: The type of problem that only this family's kernels solve, whichever family the node is of.
    solves: ClassVar[type | None] = None

    def __init_subclass__(cls) -> None:
        FAMILIES[cls.name] = cls()

    def takes(self, node: KernelNode, operand: str) -> bool:
        """Whether the kernels can read this operand through its access. Unless a family says
        otherwise, only tensors that lie row by row."""
        return node.operands[operand].is_dense

    def takes_side(self, step: Step, access: Access) -> bool:
        """Whether a fused step can read an operand through this access. Epilogues that are made by
        ``epilogue.build`` can, from any strides forwards."""
        return self.fuses and not any(s < 0 for s in access.strides)

    def extends(self, node: KernelNode, profile: DeviceProfile) -> bool:
        """Whether kernels of a product of one row can compute a node whose prologue normalises the
        operand ``a``, or that is ``gated``."""
        return False

    def stores(self, node: KernelNode) -> bool:
        """Whether the kernels can write the outputs through their accesses, as ``takes``."""
        return all(is_whole(output) for output in node.outputs)

    def problem(self, node: KernelNode) -> Any:
        """The problem to be solved: frozen, equal for nodes that behave alike."""
        raise NotImplementedError

    def candidates(self, problem: Any, profile: DeviceProfile) -> Sequence[Schedule]:
        """The ways in which the device can compute the problem, the plainest first. Unsupported
        where there are none, with the reason."""
        raise NotImplementedError

    def rounding(self, problem: Any) -> float:
        """The relative error by which kernels may round elements of an operand before they multiply
        them."""
        return 0.0

    def pack(
        self, node: KernelNode, problem: Any, schedule: Schedule, profile: DeviceProfile
    ) -> KernelNode:
        """The node with its constant ``weights`` packed as its kernel by this schedule reads them
        best; the node as it is where packing gains nothing."""
        return node

    def lower(
        self, node: KernelNode, problem: Any, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """The node's dispatches by a schedule. Unsupported where the device's limits forbid it."""
        raise NotImplementedError

    def lowered(
        self, node: KernelNode, problem: Any, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """``lower``, with the node's prologue."""
        return prologue.applied(self.lower(node, problem, schedule, profile), node, profile)


def is_whole(access: Access) -> bool:
    """Whether an access is its value, row by row."""
    return access.is_dense and access.size == access.value.descriptor.size


def family_of(node: KernelNode) -> Family:
    """The family that a node belongs to."""
    return FAMILIES[node.lowering.family]


def solver_of(node: KernelNode) -> tuple[Family, Any]:
    """The family whose kernels compute a node, and the problem that they solve. It is mostly the
    node's family; but some convolutions are matrix products, and some poolings reductions."""
    family = family_of(node)
    problem = family.problem(node)
    solver = next((f for f in FAMILIES.values() if f.solves is type(problem)), family)
    return solver, problem
