"""Graph → program: passes, kernel choice, memory plan, barriers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from webnn_vk.codegen.spec import KernelSpec

from .. import kernels
from ..device_profile import DeviceProfile
from ..graph import Graph, Node
from ..kernels import Dispatch
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
from .layout import Layout
from .program import HostSegment, Program
from .report import GraphReport, ReportStep


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


def compile_program(graph: Graph, target: Target) -> Program:
    """Compile; ValueError where ``force_cpu`` names no operator."""
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
        program = _host_program(graph, tuple(folded))
    else:
        program = _device_program(graph, target, target.profile, folded)
    seconds = {"compile": time.perf_counter() - start}
    return replace(program, report=replace(program.report, build_seconds=seconds))


def _host_program(graph: Graph, folded: tuple[str, ...]) -> Program:
    last = {value: i for i, node in enumerate(graph.nodes) for value in node.inputs}
    kept = set(graph.outputs.values()) | set(graph.inputs.values())
    dead: list[list] = [[] for _ in graph.nodes]
    for i, node in enumerate(graph.nodes):
        for value in node.outputs:
            if value not in kept:
                dead[last.get(value, i)].append(value)
    segment = HostSegment(graph.nodes, dead=tuple(map(tuple, dead)))
    constants = tuple(graph.constants())
    steps = tuple(_host_step(node, "the CPU device was chosen") for node in graph.nodes)
    weights = sum(v.descriptor.byte_length for v in constants)
    report = GraphReport(steps, folded, weight_bytes=weights)
    return Program(graph.inputs, graph.outputs, (segment,), constants, (), 0, b"", report)


def _device_program(
    graph: Graph, target: Target, profile: DeviceProfile, folded: list[str]
) -> Program:
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
    return _lay_out(graph, placement, plans, profile, tuple(folded))


def _lay_out(
    graph: Graph,
    placement: Placement,
    plans: dict[Node, list[Dispatch]],
    profile: DeviceProfile,
    folded: tuple[str, ...],
) -> Program:
    layout = Layout(graph, placement, profile)
    steps = []
    for node in graph.nodes:
        if placement.on_cpu(node):
            layout.host_node(node)
            steps.append(_host_step(node, placement.reason[node]))
        elif isinstance(node.operator.lowering, View):
            layout.view_node(node)
        else:
            dispatches = plans[node] if node in plans else kernels.plan(node, profile)
            layout.device_node(node, dispatches)
            steps.append(
                ReportStep(
                    tuple(node.title.split(" + ")),
                    "vulkan",
                    placement.reason[node] or "has a kernel for it",
                    dispatches[0].kernel if dispatches else "",
                    dispatches[0].variant if dispatches else "",
                    len(dispatches),
                    sum(d.flops for d in dispatches),
                    sum(d.bytes for d in dispatches),
                )
            )
    layout.finish()
    weights = sum(v.descriptor.byte_length for v in layout.constants)
    report = GraphReport(
        tuple(steps), folded, arena_bytes=sum(layout.arena.sizes), weight_bytes=weights
    )
    return Program(
        graph.inputs,
        graph.outputs,
        tuple(layout.segments),
        tuple(layout.constants),
        tuple(layout.arena.sizes),
        layout.host_size,
        bytes(layout.params),
        report,
    )


def _host_step(node: Node, reason: str) -> ReportStep:
    moved = sum(v.descriptor.byte_length for v in (*node.inputs, *node.outputs))
    return ReportStep(tuple(node.title.split(" + ")), "cpu", reason, "numpy", "", 0, 0, moved)
