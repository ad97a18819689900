"""From a graph's nodes to compute dispatches on a device of a given profile.

``lower_graph`` does all of it: nodes become ``KernelNode``s, element-wise nodes are fused into
others, movements are absorbed into accesses, and ``plan`` chooses a schedule for each kernel and
makes its dispatches. For the archive of precompiled shaders ``all_modules`` lists the modules of
every schedule of a kernel. Imports `passes/`, the folders below it, and ``codegen``.
"""

from __future__ import annotations

import importlib
import pkgutil

from .coopmat import FEATURES as MATRIX_FEATURES
from .dispatch import Dispatch, Packed, Refused, Scratch, Unsupported
from .family import FAMILIES, family_of, solver_of
from .lower import KERNEL_PASSES, PACK, kernel_nodes, lower_graph
from .lowered_graph import Alias, DeviceWork, HostWork, LoweredGraph
from .node import KernelGraph, KernelNode
from .packing import packing_called
from .plan import KernelTarget, Plan, Task, all_modules, dispatches_by, forms, packing_of, plan
from .schedule import Schedule

# Families are registered when imported; the folder is the list.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
