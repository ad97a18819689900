"""Graph → program: the passes, the kernels, and the layout in memory."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from webnn_vk.support.errors import nearest, sanitize

from ..ir import Graph
from ..kernels import (
    KERNEL_PASSES,
    PACK,
    HostWork,
    KernelNode,
    LoweredGraph,
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
    without_empty,
)
from ..passes.pipeline import Target
from .assemble import assemble
from .constants import Constants
from .program import Program

PASSES = (*DEVICE_PASSES, *HOST_PASSES, *KERNEL_PASSES, PACK, ORDER)


def check_skip(names: Collection[str]) -> None:
    """ValueError if a name is not an optional pass's."""
    check_skipped(names, PASSES)


def check_forced(names: Collection[str]) -> None:
    """ValueError if a name to place on the CPU is not an operator's."""
    for name in names:
        if name not in OPERATORS:
            raise ValueError(
                f"force_cpu: no operator is called {sanitize(name)}{nearest(name, OPERATORS)}"
            )


def compile_program(graph: Graph, target: Target) -> tuple[Program, Constants]:
    """The program and its constants. ValueError if ``force_cpu`` names no operator or ``skip`` no
    optional pass, OSError if the texts can't be written."""
    start = time.perf_counter()
    given, graph = graph, without_empty(graph)
    compilation = _compilation(target, graph.donated)
    graph = _placed(graph, compilation)
    if target.profile is None:
        works = tuple(HostWork(node, node.reason) for node in graph.nodes)
        lowered = LoweredGraph(
            graph.inputs, graph.outputs, works, compilation.notes.of("fold"), compilation.donated
        )
    else:
        lowered = lower_graph(graph, compilation)
    program, constants = assemble(lowered, target.profile, graph)
    # As the builder described them: with tensors without elements, which are no part of the steps,
    # and low-precision types.
    program = replace(
        program,
        inputs={name: value.descriptor for name, value in given.inputs.items()},
        outputs={name: value.descriptor for name, value in given.outputs.items()},
        donated=dict(given.donated),
    )
    seconds = {"compile": time.perf_counter() - start}
    return replace(program, report=replace(program.report, build_seconds=seconds)), constants


def kernels_of(graph: Graph, target: Target) -> list[KernelNode]:
    """The kernels of a graph on a device, before scheduling. Raises as
    ``compile_program``."""
    graph = without_empty(graph)
    silent = replace(target, dump=None, after_pass=None, planned=None)
    compilation = _compilation(silent, graph.donated)
    return kernel_nodes(_placed(graph, compilation), compilation)


def _compilation(target: Target, donated: Mapping[str, str]) -> Compilation:
    check_forced(target.force_cpu)
    check_skip(target.skip)
    texts = None if target.dump is None else Dump.within(target.dump)
    names = {"force_cpu": frozenset(target.force_cpu), "skip": frozenset(target.skip)}
    return Compilation(**vars(target) | names, texts=texts, donated=donated)


def _placed(graph: Graph, compilation: Compilation) -> Graph:
    """The graph after the passes over graphs: each node on the device or the CPU."""
    passes = HOST_PASSES if compilation.profile is None else DEVICE_PASSES
    graph = run_passes(passes, graph, compilation, clean=remove_dead_code)
    if not compilation.verify:  # otherwise it is verified already
        graph.verify()
    return graph
