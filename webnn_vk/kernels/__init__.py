"""Kernel families: how a node becomes dispatches on a device of a given profile.

``plan(node, profile)`` picks the family from the operator's lowering. ``catalogue()`` lists the
kernels of every unfused operator and data type, for the pack of precompiled shaders.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from webnn_vk.codegen.spec import KernelSpec

from ..graph import Node
from ..ops.lowering import Elementwise, Kernel
from ..profile import DeviceProfile
from .dispatch import Binding, Dispatch, Scratch

__all__ = ["FAMILIES", "Binding", "Dispatch", "Scratch", "catalogue", "plan"]

# Module of this package by the name that a record's lowering gives.
FAMILIES = (
    "elementwise",
)


def _family(name: str):
    return importlib.import_module(f"{__name__}.{name}")


def plan(node: Node, profile: DeviceProfile) -> list[Dispatch]:
    """The dispatches that compute a node; NotImplementedError is never raised: a device that
    can't run the node raises ``Unsupported`` with the reason."""
    lowering = node.operator.lowering
    name = "elementwise" if isinstance(lowering, Elementwise) else lowering.family
    return _family(name).plan(node, profile)


def catalogue(features: frozenset[str]) -> Iterator[KernelSpec]:
    """Every unfused kernel for a device with these native features, without repeats."""
    seen: set[KernelSpec] = set()
    for name in FAMILIES:
        for spec in _family(name).catalogue(features):
            if spec not in seen:
                seen.add(spec)
                yield spec
