"""Which family computes a node."""

from __future__ import annotations

from typing import Any

from .family import FAMILIES, Family
from .node import KernelNode


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
