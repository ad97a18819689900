"""From a graph of placed nodes to work on the device.

Nodes become kernel nodes, passes fuse and absorb them, and each kernel is planned. Where a kernel
can't be planned, because it exceeds the device's limits or no module for it is available, the
graph is planned again with each of its nodes as a kernel by itself. A node that can't be planned by
itself is decomposed or computed on the CPU, with the reason in the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from webnn_vk.support.dataclass import dataclass

from ..ir import Graph, Node
from ..ops.lowering import Repeat, View
from ..passes import ORDER, Compilation, Pass, decompose_nodes, run_passes
from .absorb import absorb, remove_dead
from .dispatch import KernelRefused, Unsupported
from .fusion import fuse
from .gated import fuse_gates
from .heuristics import device_class
from .in_place import lie_in_place
from .loops import NotALoop, repeat_work
from .lowered_graph import Alias, DeviceWork, HostWork, LoweredGraph, RepeatWork
from .node import KernelGraph, KernelNode
from .plan import KernelTarget, Plan, plan
from .scatter_in_place import reads_as_it_writes, update_in_place


def _target(compilation: Compilation) -> KernelTarget:
    profile = compilation.profile
    assert profile is not None, "the CPU device has no kernels"
    return KernelTarget(
        profile, compilation.tuned, compilation.available, compilation.refused,
        packs=PACK.name not in compilation.skip, planned=compilation.planned,
    )


def _fuse(graph: KernelGraph, compilation: Compilation) -> KernelGraph:
    return fuse(graph, _target(compilation).profile) if compilation.has_compiler else graph


def _absorb(graph: KernelGraph, compilation: Compilation) -> KernelGraph:
    profile = _target(compilation).profile
    limit, merges = profile.max_storage_buffer_range, device_class(profile).merges_epilogues
    graph = absorb(graph, limit, merges)
    fuses = compilation.has_compiler and FUSE.name not in compilation.skip
    return fuse_gates(graph, profile) if fuses else graph


def _in_place(graph: KernelGraph, compilation: Compilation) -> KernelGraph:
    return lie_in_place(graph, _target(compilation).profile)


FUSE = Pass("fuse", _fuse)
ABSORB = Pass("absorb", _absorb)
IN_PLACE = Pass("in_place", _in_place)
DONATE = Pass("donate", lambda graph, compilation: update_in_place(graph, compilation.donated))
#: No pass over the graph: the planner packs weights for the schedule that it chooses.
PACK = Pass("pack", lambda graph, compilation: graph)
#: From placed nodes to kernels.
KERNEL_PASSES = (FUSE, ABSORB, IN_PLACE, DONATE)


@dataclass
class _Attempt:
    """The outcome of planning every kernel of a graph: the plans, nodes that have to be kernels by
    themselves, nodes to decompose, and nodes that the device can't compute, with the reasons.
    ``refused``: why a node isn't computed by the kernel that was chosen first."""

    plans: dict[KernelNode, Plan] = field(default_factory=dict)
    loops: dict[Node, RepeatWork] = field(default_factory=dict)
    unfused: set[Node] = field(default_factory=set)
    decomposed: set[Node] = field(default_factory=set)
    unsupported: dict[Node, str] = field(default_factory=dict)
    refused: dict[Node, str] = field(default_factory=dict)


def lower_graph(graph: Graph, compilation: Compilation) -> LoweredGraph:
    """The work that computes a graph of placed nodes on the device of ``compilation``."""
    return _lowered(*_planned(graph, compilation), compilation)


def kernel_nodes(graph: Graph, compilation: Compilation) -> list[KernelNode]:
    """The kernels of a graph of placed nodes."""
    kernel_graph, _ = _planned(graph, compilation)
    return [node for node in kernel_graph.nodes if isinstance(node, KernelNode)]


def _planned(graph: Graph, compilation: Compilation) -> tuple[KernelGraph, _Attempt]:
    """The kernels of a graph, all of which can be planned, and their plans.

    Almost always the first attempt succeeds. Planning each node by itself before nodes are fused
    would need no further attempts, and double the time of compiling (60 ms more in 75 for MiniLM
    and MobileNetV2)."""
    unfused: frozenset[Node] = frozenset()
    refused: dict[Node, str] = {}
    while True:
        # Nodes keep their identity over attempts, except nodes that move to the CPU.
        ordered = run_passes((ORDER,), graph, compilation)
        kernel_graph = run_passes(
            KERNEL_PASSES, kernelize(ordered, unfused), compilation, clean=remove_dead
        )
        attempt = _attempt(kernel_graph, compilation, refused)
        if not (attempt.unfused or attempt.decomposed or attempt.unsupported):
            return kernel_graph, attempt
        unfused |= attempt.unfused
        refused = attempt.refused
        graph = decompose_nodes(graph, attempt.decomposed.__contains__)
        graph = replace(graph, nodes=tuple(
            replace(node, device="cpu", reason=attempt.unsupported[node])
            if node in attempt.unsupported else node
            for node in graph.nodes
        ))


def kernelize(graph: Graph, unfused: frozenset[Node] = frozenset()) -> KernelGraph:
    """Each device node as one kernel; views and CPU nodes as they are. ``unfused``: nodes that the
    passes must leave so."""
    return KernelGraph(
        graph.inputs,
        graph.outputs,
        tuple(
            node if node.on_cpu or isinstance(node.operator.lowering, View | Repeat)
            else KernelNode.of(node)
            for node in graph.nodes
        ),
        unfused,
    )


def _attempt(
    graph: KernelGraph, compilation: Compilation, refused: Mapping[Node, str]
) -> _Attempt:
    """Plans each kernel. ``refused``: what earlier attempts have shown."""
    attempt, target = _Attempt(refused=dict(refused)), _target(compilation)
    for node in graph.nodes:
        if not isinstance(node, KernelNode):
            if not node.on_cpu and isinstance(node.operator.lowering, Repeat):
                try:
                    attempt.loops[node] = repeat_work(node, compilation, lower_graph)
                except Unsupported as error:
                    attempt.unsupported[node] = str(error)
                except NotALoop:
                    attempt.decomposed.add(node)
            continue
        try:
            attempt.plans[node] = made = plan(node, target)
            if made.refusal:
                attempt.refused.update(dict.fromkeys(node.sources, made.refusal))
        except Unsupported as error:
            if isinstance(error, KernelRefused):
                attempt.refused.update(dict.fromkeys(node.sources, str(error)))
            if len(node.sources) > 1 or not _is_plain(node):
                attempt.unfused.update(node.sources)
            elif getattr(node.lowering, "decompose", None) is not None:
                attempt.decomposed.update(node.sources)
            else:
                attempt.unsupported[node.sources[0]] = str(error)
    return attempt


def _is_plain(node: KernelNode) -> bool:
    """Whether a node is only its source's kernel, with dense accesses."""
    (source,) = node.sources
    accesses = zip(node.operands.values(), source.operands.values(), strict=True)
    return all(access.value is value for access, value in accesses)


def _lowered(graph: KernelGraph, attempt: _Attempt, compilation: Compilation) -> LoweredGraph:
    works: list[DeviceWork | HostWork | Alias | RepeatWork] = [
        Alias(value, part.whole, part.offset) for value, part in graph.parts.items()
    ]
    for node in graph.nodes:
        if isinstance(node, KernelNode):
            dispatches = attempt.plans[node].dispatches
            # A movement whose elements are all in place is no work.
            if dispatches:
                works.append(DeviceWork(
                    node.titles, dispatches, _reason(node, attempt.refused),
                    reads_as_it_writes(node),
                ))
        elif node.on_cpu:
            works.append(HostWork(node, node.reason))
        elif node in attempt.loops:
            works.append(attempt.loops[node])
        else:
            works.append(Alias(node.output, node.inputs[0]))
    return LoweredGraph(
        graph.inputs, graph.outputs, tuple(works), compilation.notes.of("fold"),
        compilation.donated,
    )


def _reason(node: KernelNode, refused: Mapping[Node, str]) -> str:
    given = next((s.reason for s in node.sources if s.reason), "has a kernel for it")
    why = next((refused[s] for s in node.sources if s in refused), None)
    return given if why is None else f"{given}; not the one meant for it: {why}"
