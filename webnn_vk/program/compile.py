"""Graph → program: passes and kernel choice; ``assemble`` does the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from webnn_vk.codegen.spec import KernelSpec

from .. import kernels
from ..device_profile import DeviceProfile
from ..graph import Graph, Node
from ..kernels import Dispatch
from ..kernels.lowered import Alias, DeviceWork, HostWork, LoweredGraph
from ..ops import OPERATORS
from ..ops.lowering import View
from ..passes import (
    Placement,
    decompose,
    fold_constants,
    fuse_elementwise,
    place,
    remove_dead_code,
    schedule,
)
from .assemble import assemble
from .constants import Constants
from .program import Program


@dataclass(frozen=True)
class Target:
    """What a graph is compiled for: ``profile`` None is the CPU device.

    ``available`` says whether a shader can be had (pack, cache or compiler); ``fuse`` whether
    kernels made for this graph alone may be used.
    """

    profile: DeviceProfile | None
    available: Callable[[KernelSpec], bool] = lambda spec: True
    fold: bool = True
    fuse: bool = True
    force_cpu: Collection[str] = ()


def compile_program(graph: Graph, target: Target) -> tuple[Program, Constants]:
    """The program and what its constants are. ValueError where ``force_cpu`` names no operator."""
    unknown = sorted(set(target.force_cpu) - set(OPERATORS))
    if unknown:
        raise ValueError(
            f"operators to force to the CPU: no operator is called {', '.join(unknown)}"
        )
    start = time.perf_counter()
    folded: list[str] = []
    graph = remove_dead_code(graph)
    if target.fold:
        graph, folded = fold_constants(graph)
    if target.profile is None:
        graph = remove_dead_code(graph)
        works = tuple(HostWork(node, "the CPU device was chosen") for node in graph.nodes)
        lowered = LoweredGraph(graph.inputs, graph.outputs, works, tuple(folded))
    else:
        lowered = _lower_for_device(graph, target, target.profile, folded)
    program, constants = assemble(lowered, target.profile)
    seconds = {"compile": time.perf_counter() - start}
    report = replace(program.report, build_seconds=seconds)
    return replace(program, report=report), constants


def _lower_for_device(
    graph: Graph, target: Target, profile: DeviceProfile, folded: list[str]
) -> LoweredGraph:
    forced = frozenset(target.force_cpu)
    graph = decompose(graph, keep=lambda node: node.operator.name in forced)
    if target.fold:
        graph, more = fold_constants(graph)
        folded = folded + more
    graph = remove_dead_code(graph)
    plans: dict[Node, list[Dispatch]] = {}

    def obstacle(node: Node) -> str | None:
        if node.operator.name in forced:
            return "forced to the CPU"
        if isinstance(node.operator.lowering, View):
            return None
        try:
            plans[node] = kernels.plan(node, profile)
        except kernels.Unsupported as error:
            return str(error)
        for dispatch in plans[node]:
            if not target.available(dispatch.spec):
                return f"no shader for {dispatch.kernel} in the pack and no GLSL compiler"
        return None

    placement = place(graph, obstacle)
    if target.fuse:
        graph = fuse_elementwise(
            graph,
            lambda node, step: kernels.accepts(node, step, profile),
            lambda node: placement.device.get(node, "vulkan") == "vulkan",
        )
        for node in graph.nodes:
            placement.device.setdefault(node, "vulkan")
            placement.reason.setdefault(node, "")
    graph = schedule(graph, placement)
    graph.verify()
    works = tuple(_work(node, placement, plans, profile) for node in graph.nodes)
    return LoweredGraph(graph.inputs, graph.outputs, works, tuple(folded))


def _work(
    node: Node, placement: Placement, plans: dict[Node, list[Dispatch]], profile: DeviceProfile
) -> DeviceWork | HostWork | Alias:
    if placement.on_cpu(node):
        return HostWork(node, placement.reason[node])
    if isinstance(node.operator.lowering, View):
        return Alias(node.output, node.inputs[0])
    dispatches = plans[node] if node in plans else kernels.plan(node, profile)
    reason = placement.reason[node] or "has a kernel for it"
    return DeviceWork(tuple(node.title.split(" + ")), tuple(dispatches), reason)
