"""The protocol of a kernel family: from a node to a problem, to a schedule, to dispatches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.driver.device_profile import DeviceProfile

from ..types.access import Access
from . import prologue
from .choose import choose, ranked
from .dispatch import Dispatch, Unsupported
from .node import KernelNode, Step
from .schedule import NOTHING_TUNED, Schedule, Tuned


class Family:
    """A group of kernels that compute one kind of problem.

    ``problem`` says what a node is to the family, as plain numbers; ``candidates`` how the device
    could compute that; ``lower`` makes the dispatches of one of them. All are pure functions.
    """

    name: ClassVar[str]
    #: Whether the kernels apply element-wise steps to what they store.
    fuses: ClassVar[bool] = False
    #: How often they load each element of the operand ``input`` about, where element-wise steps can
    #: compute it then (``prologue``); 0: they can't.
    input_loads: ClassVar[int] = 0

    def takes(self, node: KernelNode, operand: str) -> bool:
        """Whether the kernels can read this operand through its access. Unless a family says
        otherwise, only tensors that lie row by row."""
        return node.operands[operand].is_dense

    def takes_side(self, step: Step, access: Access) -> bool:
        """Whether a fused step can read an operand through this access. Epilogues that are made by
        ``epilogue.build`` can, from any strides forwards."""
        return self.fuses and not any(s < 0 for s in access.strides)

    def stores(self, node: KernelNode) -> bool:
        """Whether the kernels can write the outputs through their accesses, as ``takes``."""
        return all(is_whole(output) for output in node.outputs)

    def problem(self, node: KernelNode) -> Any:
        """What is to be computed: frozen, equal for nodes that behave alike."""
        raise NotImplementedError

    def candidates(self, problem: Any, profile: DeviceProfile) -> Sequence[Schedule]:
        """The ways in which the device can compute the problem, the plainest first. Unsupported
        where there are none, with the reason."""
        raise NotImplementedError

    def decides(self, problem: Any) -> str:
        """The name of the family whose candidates and rules a problem has: another one's where the
        problem is one of that family."""
        return self.name

    def pack(self, node: KernelNode, profile: DeviceProfile, tuned: Tuned) -> KernelNode:
        """The node with its constants packed as its kernel on this device reads them best; as it is
        where packing gains nothing."""
        return node

    def lower(
        self, node: KernelNode, problem: Any, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """The node's dispatches by a schedule. Unsupported where the device's limits forbid it."""
        raise NotImplementedError

    def catalogue(self, features: frozenset[str]) -> Iterator[KernelSpec]:
        """Every kernel of the family without fused steps, for devices with these features."""
        raise NotImplementedError

    def common(self, features: frozenset[str]) -> Iterator[KernelSpec]:
        """Kernels with the fused steps that many models have, which the pack holds too."""
        return iter(())

    def plan(
        self, node: KernelNode, profile: DeviceProfile, tuned: Tuned = NOTHING_TUNED
    ) -> list[Dispatch]:
        """Problem, choice and dispatches of a node."""
        return next(self.plans(node, profile, tuned))

    def plans(
        self, node: KernelNode, profile: DeviceProfile, tuned: Tuned = NOTHING_TUNED
    ) -> Iterator[list[Dispatch]]:
        """The dispatches of a node by the schedule that is chosen, then by the others, the best
        first."""
        problem = self.problem(node)
        name, candidates = self.decides(problem), self.candidates(problem, profile)
        chosen = choose(name, candidates, problem, profile, tuned)
        yield self.lowered(node, problem, chosen, profile)
        for schedule in ranked(name, candidates, problem, profile):
            if schedule != chosen:
                try:
                    yield self.lowered(node, problem, schedule, profile)
                except Unsupported:
                    continue

    def lowered(
        self, node: KernelNode, problem: Any, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """``lower``, with the node's prologue."""
        return prologue.applied(self.lower(node, problem, schedule, profile), node, profile)


def is_whole(access: Access) -> bool:
    """Whether an access is its value, row by row."""
    return access.is_dense and access.size == access.value.descriptor.size
