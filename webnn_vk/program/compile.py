"""Graph → program: passes, kernel choice, memory plan, barriers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from webnn_vk.codegen.spec import KernelSpec

from .. import kernels
from ..device_profile import DeviceProfile
from ..graph import Graph, Node, Value
from ..kernels import Dispatch
from ..ops import OPERATORS
from ..ops.lowering import View
from ..passes import (
    DEVICE_PASSES,
    HOST_PASSES,
    ORDER,
    Compilation,
    Dump,
    Pass,
    check_skipped,
    fuse_elementwise,
    remove_dead_code,
    run_passes,
)
from .layout import Layout
from .program import HostSegment, Program
from .report import GraphReport, ReportStep


@dataclass(frozen=True)
class Target:
    """What a graph is compiled for: ``profile`` None is the CPU device.

    ``available`` says whether a shader can be had (pack, cache or compiler); ``has_compiler``
    whether kernels made for this graph alone may be used. ``skip`` names passes to leave out,
    ``dump`` a folder for the texts of the graphs.
    """

    profile: DeviceProfile | None
    available: Callable[[KernelSpec], bool] = lambda spec: True
    has_compiler: bool = True
    skip: Collection[str] = ()
    force_cpu: Collection[str] = ()
    dump: Path | None = None


def _fuse(graph: Graph, compilation: Compilation) -> Graph:
    profile = compilation.profile
    if profile is None or not compilation.has_compiler:
        return graph
    return fuse_elementwise(
        graph,
        lambda node, step: kernels.accepts(node, step, profile),
        lambda node: not node.on_cpu,
    )


FUSE = Pass("fuse", _fuse)
PASSES = (*DEVICE_PASSES, FUSE, ORDER)


def check_skip(names: Collection[str]) -> None:
    """ValueError where a name is no pass, or one that can't be left out."""
    check_skipped(names, (*PASSES, *HOST_PASSES))


def compile_program(graph: Graph, target: Target) -> Program:
    """Compile; ValueError where ``force_cpu`` names no operator or ``skip`` no optional pass,
    OSError where the texts can't be written."""
    unknown = sorted(set(target.force_cpu) - set(OPERATORS))
    if unknown:
        raise ValueError(
            f"operators to force to the CPU: no operator is called {', '.join(unknown)}"
        )
    check_skip(target.skip)
    start = time.perf_counter()
    plans: dict[Value, list[Dispatch]] = {}
    profile = target.profile

    def obstacle(node: Node) -> str | None:
        """Why the device can't run a node; its plan is kept by the first output."""
        if isinstance(node.operator.lowering, View):
            return None
        try:
            planned = plans[node.outputs[0]] = kernels.plan(node, profile)
        except kernels.Unsupported as error:
            return str(error)
        for dispatch in planned:
            if not target.available(dispatch.spec):
                return f"no shader for {dispatch.kernel} in the pack and no GLSL compiler"
        return None

    compilation = Compilation(
        profile,
        frozenset(target.force_cpu),
        target.has_compiler,
        target.available,
        obstacle,
        frozenset(target.skip),
        dump=None if target.dump is None else Dump.within(target.dump),
    )
    passes = HOST_PASSES if profile is None else PASSES
    graph = run_passes(passes, graph, compilation, clean=remove_dead_code)
    if not compilation.verify:  # or else it is verified already
        graph.verify()
    folded = compilation.notes.of("fold")
    if profile is None:
        program = _host_program(graph, folded)
    else:
        program = _lay_out(graph, plans, profile, folded)
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
    steps = tuple(_host_step(node) for node in graph.nodes)
    weights = sum(v.descriptor.byte_length for v in constants)
    report = GraphReport(steps, folded, weight_bytes=weights)
    return Program(graph.inputs, graph.outputs, (segment,), constants, (), 0, b"", report)


def _lay_out(
    graph: Graph,
    plans: dict[Value, list[Dispatch]],
    profile: DeviceProfile,
    folded: tuple[str, ...],
) -> Program:
    layout = Layout(graph, profile)
    steps = []
    for node in graph.nodes:
        if node.on_cpu:
            layout.host_node(node)
            steps.append(_host_step(node))
        elif isinstance(node.operator.lowering, View):
            layout.view_node(node)
        else:
            planned = None if node.epilogue else plans.get(node.outputs[0])
            dispatches = kernels.plan(node, profile) if planned is None else planned
            layout.device_node(node, dispatches)
            steps.append(
                ReportStep(
                    tuple(node.title.split(" + ")),
                    "vulkan",
                    node.reason or "has a kernel for it",
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


def _host_step(node: Node) -> ReportStep:
    moved = sum(v.descriptor.byte_length for v in (*node.inputs, *node.outputs))
    return ReportStep(tuple(node.title.split(" + ")), "cpu", node.reason, "numpy", "", 0, 0, moved)
