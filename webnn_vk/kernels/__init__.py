"""Kernel families: how a node becomes dispatches on a device of a given profile.

``plan(node, profile)`` picks the family from the operator's lowering. ``catalogue()`` lists the
kernels of every unfused operator and data type, for the pack of precompiled shaders.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from webnn_vk.codegen.spec import KernelSpec

from ..device_profile import DeviceProfile
from ..graph import Fused, Node
from ..ops.lowering import Elementwise
from .dispatch import Binding, Dispatch, Scratch, Unsupported

__all__ = ["FAMILIES",
    "Binding",
    "Dispatch",
    "Scratch",
    "Unsupported",
    "accepts",
    "catalogue",
    "plan",
]

# Module of this package by the name that a record's lowering gives.
FAMILIES = (
    "conv",
    "copy",
    "elementwise",
    "gather",
    "matmul",
    "norm",
    "pool",
    "reduce",
    "resample",
    "scan",
    "scatter",
    "softmax",
)


def _family(name: str):
    return importlib.import_module(f"{__name__}.{name}")


def plan(node: Node, profile: DeviceProfile) -> list[Dispatch]:
    """The dispatches that compute a node; ``Unsupported`` where the device can't run it."""
    lowering = node.operator.lowering
    name = "elementwise" if isinstance(lowering, Elementwise) else lowering.family
    return _family(name).plan(node, profile)


def accepts(node: Node, step: Fused, profile: DeviceProfile) -> bool:
    """Whether the kernel of ``node`` can apply one more element-wise step to its result."""
    from . import epilogue

    return epilogue.accepts(node, step, profile)


def catalogue(features: frozenset[str]) -> Iterator[KernelSpec]:
    """Every unfused kernel for a device with these native features, without repeats."""
    seen: set[KernelSpec] = set()
    for name in FAMILIES:
        for spec in _family(name).catalogue(features):
            if spec not in seen:
                seen.add(spec)
                yield spec
