"""The kernel families by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .attention import AttentionFamily
from .batch_norm import BatchNorm
from .conv import Conv
from .copy import Copy
from .elementwise import ElementwiseFamily
from .family import Family
from .gather import GatherFamily
from .integer_product import IntegerProductFamily
from .matmul import Matmul
from .node import KernelNode
from .norm import Norm
from .pad import Pad
from .pool import PoolFamily
from .product import Product
from .reduce import ReduceFamily, Reduction
from .resample import ResampleFamily
from .scan import Scan
from .scatter import ScatterFamily
from .softmax import Softmax
from .triangular import Triangular

FAMILIES: Mapping[str, Family] = MappingProxyType({
    family.name: family
    for family in (
        AttentionFamily(), BatchNorm(), Conv(), Copy(), ElementwiseFamily(), GatherFamily(),
        IntegerProductFamily(), Matmul(), Norm(), Pad(), PoolFamily(), ReduceFamily(),
        ResampleFamily(), Scan(), ScatterFamily(), Softmax(), Triangular(),
    )
})


def family_of(node: KernelNode) -> Family:
    """The family that a node belongs to."""
    return FAMILIES[node.lowering.family]


def solver_of(node: KernelNode) -> tuple[Family, Any]:
    """The family whose kernels compute a node, and the problem that they solve. It is mostly the
    node's family; but some convolutions are matrix products, and some poolings reductions."""
    family = family_of(node)
    problem = family.problem(node)
    return FAMILIES[_SOLVERS.get(type(problem), family.name)], problem


#: Families by the problems that nodes of other families can be, too.
_SOLVERS = {Product: Matmul.name, Reduction: ReduceFamily.name}
