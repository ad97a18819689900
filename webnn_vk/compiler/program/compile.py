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
    """What a graph is compiled for: ``profile`` None is the CPU device.

    ``available`` says whether a shader can be had (pack, cache or compiler); ``refused`` which the
    GLSL compiler or the driver has refused, and why; ``has_compiler``
    whether kernels made for this graph alone may be used. ``skip`` names passes to leave out,
    ``dump`` a folder for the texts of the graphs. ``tuned``: schedules that measurements chose.
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
    """ValueError where a name is no pass, or one that can't be left out."""
    check_skipped(names, PASSES)


def check_forced(names: Collection[str]) -> None:
    """ValueError where a name to place on the CPU is no operator."""
    for name in names:
        if name not in OPERATORS:
            raise ValueError(
                f"force_cpu: no operator is called {sanitize(name)}{nearest(name, OPERATORS)}"
            )


def compile_program(graph: Graph, target: Target) -> tuple[Program, Constants]:
    """The program and what its constants are. ValueError where ``force_cpu`` names no operator or
    ``skip`` no optional pass, OSError where the texts can't be written."""
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
    """The kernels that a graph becomes on a device, with nothing packed or scheduled yet. Raises as
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
    if not compilation.verify:  # or else it is verified already
        graph.verify()
    return graph
