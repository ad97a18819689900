"""Graph → program: the passes, the kernels, and the layout in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.errors import nearest, sanitize

from ..ir import Graph
from ..kernels import (
    KERNEL_PASSES,
    HostWork,
    KernelNode,
    LoweredGraph,
    Refused,
    Schedule,
    kernel_nodes,
    lower_graph,
)
from ..ops import OPERATORS
from ..passes import (
    DEVICE_PASSES,
    HOST_PASSES,
    ORDER,
    Compilation,
    Dump,
    check_skipped,
    remove_dead_code,
    run_passes,
)
from .assemble import assemble
from .constants import Constants
from .program import Program

PASSES = (*DEVICE_PASSES, *HOST_PASSES, *KERNEL_PASSES, ORDER)


@dataclass(frozen=True)
class Target:
    """The target of a compilation; ``profile`` None is the CPU device.

    ``available``: whether a shader is available (from the archive, the cache or the compiler).
    ``refused``: the modules and pipelines that the GLSL compiler or the driver refused, and why.
    ``has_compiler``: whether kernels for this graph can be compiled. ``skip``: passes to leave out.
    ``dump``: a folder for the texts of the graphs. ``tuned``: schedules chosen by measurements.
    ``after_pass`` is called with a pass's name and the graph after it.
    """

    profile: DeviceProfile | None
    available: Callable[[KernelSpec], bool] = lambda spec: True
    has_compiler: bool = True
    skip: Collection[str] = ()
    force_cpu: Collection[str] = ()
    dump: Path | None = None
    tuned: Mapping[tuple[str, str], Schedule] = field(default_factory=dict)
    refused: Refused = field(default_factory=dict)
    after_pass: Callable[[str, Any], None] | None = None


def check_skip(names: Collection[str]) -> None:
    """ValueError if a name is no pass, or a pass that can't be left out."""
    check_skipped(names, PASSES)


def check_forced(names: Collection[str]) -> None:
    """ValueError if a name to place on the CPU is no operator."""
    for name in names:
        if name not in OPERATORS:
            raise ValueError(
                f"force_cpu: no operator is called {sanitize(name)}{nearest(name, OPERATORS)}"
            )


def compile_program(graph: Graph, target: Target) -> tuple[Program, Constants]:
    """The program and its constants. ValueError if ``force_cpu`` names no operator or ``skip`` no
    optional pass, OSError if the texts can't be written."""
    start = time.perf_counter()
    compilation = _compilation(target)
    graph = _placed(graph, compilation)
    if target.profile is None:
        works = tuple(HostWork(node, node.reason) for node in graph.nodes)
        lowered = LoweredGraph(graph.inputs, graph.outputs, works, compilation.notes.of("fold"))
    else:
        lowered = lower_graph(graph, compilation)
    program, constants = assemble(lowered, target.profile, graph)
    seconds = {"compile": time.perf_counter() - start}
    return replace(program, report=replace(program.report, build_seconds=seconds)), constants


def kernels_of(graph: Graph, target: Target) -> list[KernelNode]:
    """The kernels of a graph on a device, before packing and scheduling. Raises as
    ``compile_program``."""
    compilation = _compilation(replace(target, dump=None, after_pass=None))
    return kernel_nodes(_placed(graph, compilation), compilation)


def _compilation(target: Target) -> Compilation:
    check_forced(target.force_cpu)
    check_skip(target.skip)
    return Compilation(
        target.profile,
        frozenset(target.force_cpu),
        target.has_compiler,
        target.available,
        skip=frozenset(target.skip),
        refused=target.refused,
        tuned=target.tuned,
        dump=None if target.dump is None else Dump.within(target.dump),
        after_pass=target.after_pass,
    )


def _placed(graph: Graph, compilation: Compilation) -> Graph:
    """The graph after the passes over graphs: each node on the device or the CPU."""
    passes = HOST_PASSES if compilation.profile is None else DEVICE_PASSES
    graph = run_passes(passes, graph, compilation, clean=remove_dead_code)
    if not compilation.verify:  # otherwise it is verified already
        graph.verify()
    return graph
