"""The way from a graph of placed nodes to work on the device.

Nodes become kernel nodes, passes fuse and absorb, each kernel is planned once. Where the GLSL
compiler or the driver refused a kernel, the next schedules are tried. Where a kernel exceeds the
device's limits or has no shader, its nodes are tried again as kernels of their own; a node that
fails alone is computed on the CPU, with the reason in the report.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from webnn_vk.driver.device_profile import DeviceProfile

from ..ir import Graph, Node
from ..ops.lowering import View
from ..passes import ORDER, Compilation, Pass, expand_nodes, run_passes
from .absorb import absorb, remove_dead
from .dispatch import Dispatch, KernelRefused, Packed, Unsupported
from .families import family_of
from .fusion import fuse
from .in_place import lie_in_place
from .lowered import Alias, DeviceWork, HostWork, LoweredGraph
from .node import KernelGraph, KernelNode


def _fuse(graph: KernelGraph, compilation: Compilation) -> KernelGraph:
    if compilation.profile is None or not compilation.has_compiler:
        return graph
    return fuse(graph, compilation.profile)


def _absorb(graph: KernelGraph, compilation: Compilation) -> KernelGraph:
    profile = compilation.profile
    return graph if profile is None else absorb(graph, profile.max_storage_buffer_range)


def _pack(graph: KernelGraph, compilation: Compilation) -> KernelGraph:
    profile = compilation.profile
    if profile is None:
        return graph
    return replace(graph, nodes=tuple(
        family_of(node).pack(node, profile, compilation.tuned)
        if isinstance(node, KernelNode) and graph.apart.isdisjoint(node.sources) else node
        for node in graph.nodes
    ))


def _in_place(graph: KernelGraph, compilation: Compilation) -> KernelGraph:
    profile = compilation.profile
    return graph if profile is None else lie_in_place(graph, profile)


FUSE = Pass("fuse", _fuse)
ABSORB = Pass("absorb", _absorb)
PACK = Pass("pack", _pack)
IN_PLACE = Pass("in_place", _in_place)
#: From placed nodes to kernels.
KERNEL_PASSES = (FUSE, ABSORB, PACK, IN_PLACE)


#: Schedules of a kernel that are tried where those before were refused.
MOST_SCHEDULES = 4


@dataclass
class _Retry:
    """What an attempt has shown: nodes that have to be kernels of their own, nodes to take apart
    again, nodes that the device can't compute, and why. ``refused``: why a node isn't computed by
    the kernel that it was meant for, where that can't be had."""

    apart: set[Node] = field(default_factory=set)
    expanded: set[Node] = field(default_factory=set)
    obstacles: dict[Node, str] = field(default_factory=dict)
    refused: dict[Node, str] = field(default_factory=dict)


def lower_graph(graph: Graph, compilation: Compilation) -> LoweredGraph:
    """The work that computes a graph of placed nodes on the device of ``compilation``."""
    kernel_graph, dispatches, refused = _settled(graph, compilation)
    return _lowered(kernel_graph, dispatches, refused, compilation)


def kernel_nodes(graph: Graph, compilation: Compilation) -> list[KernelNode]:
    """The kernels of a graph of placed nodes, before their constants are packed: each with all the
    ways to compute it still open."""
    unpacked = replace(compilation, skip=compilation.skip | {PACK.name})
    kernel_graph, _, _ = _settled(graph, unpacked)
    return [node for node in kernel_graph.nodes if isinstance(node, KernelNode)]


def _settled(
    graph: Graph, compilation: Compilation
) -> tuple[KernelGraph, dict[KernelNode, list[Dispatch]], dict[Node, str]]:
    """The kernels of a graph, those that can be had, and their dispatches; which nodes have others
    than were meant for them, since those were refused, and why."""
    profile = compilation.profile
    assert profile is not None, "the CPU device has no kernels"
    apart: frozenset[Node] = frozenset()
    refused: dict[Node, str] = {}
    while True:
        # Nodes keep their identity over attempts but for those that move to the CPU.
        ordered = run_passes((ORDER,), graph, compilation)
        kernel_graph = run_passes(
            KERNEL_PASSES, kernelize(ordered, apart), compilation, clean=remove_dead
        )
        retry = _Retry(refused=refused)
        dispatches = _plan(kernel_graph, profile, compilation, retry)
        if not (retry.apart or retry.expanded or retry.obstacles):
            return kernel_graph, dispatches, refused
        apart |= retry.apart
        graph = expand_nodes(graph, retry.expanded.__contains__)
        graph = replace(graph, nodes=tuple(
            replace(node, device="cpu", reason=retry.obstacles[node])
            if node in retry.obstacles else node
            for node in graph.nodes
        ))


def kernelize(graph: Graph, apart: frozenset[Node] = frozenset()) -> KernelGraph:
    """Each device node as a kernel of its own; views and CPU nodes as they are."""
    return KernelGraph(
        graph.inputs,
        graph.outputs,
        tuple(
            node if node.on_cpu or isinstance(node.operator.lowering, View) else KernelNode.of(node)
            for node in graph.nodes
        ),
        apart,
    )


def _plan(
    graph: KernelGraph, profile: DeviceProfile, compilation: Compilation, retry: _Retry
) -> dict[KernelNode, list[Dispatch]]:
    """The dispatches of each kernel, but for those that ``retry`` then names."""
    dispatches: dict[KernelNode, list[Dispatch]] = {}
    for node in graph.nodes:
        if not isinstance(node, KernelNode):
            continue
        try:
            dispatches[node], reason = _available(node, profile, compilation)
            if reason:
                retry.refused.update(dict.fromkeys(node.sources, reason))
        except Unsupported as error:
            if isinstance(error, KernelRefused):
                retry.refused.update(dict.fromkeys(node.sources, str(error)))
            if len(node.sources) > 1 or not _is_plain(node):
                retry.apart.update(node.sources)
            elif hasattr(node.lowering, "expand"):
                retry.expanded.update(node.sources)
            else:
                retry.obstacles[node.sources[0]] = str(error)
    return dispatches


def _available(
    node: KernelNode, profile: DeviceProfile, compilation: Compilation
) -> tuple[list[Dispatch], str]:
    """A node's dispatches, such that their shaders and pipelines can be had, and why not by the
    schedule that was chosen, where that was refused. Compilers that don't know cooperative matrices
    make the others."""
    refusal = ""
    for way in _ways(profile):
        plans = family_of(node).plans(node, way, compilation.tuned)
        for planned in itertools.islice(plans, MOST_SCHEDULES):
            needed = (*planned, *packing_of(planned, way))
            refused = (dispatch.refusal(compilation.refused) for dispatch in needed)
            reason = next(filter(None, refused), None)
            if reason is not None:
                refusal = refusal or reason
                continue
            missing = next((d.kernel for d in needed if not compilation.available(d.spec)), None)
            if missing is None:
                return planned, refusal
            break
    if refusal:
        raise KernelRefused(refusal)
    raise Unsupported(f"no shader for {missing} in the pack and no GLSL compiler")


def _ways(profile: DeviceProfile) -> Iterator[DeviceProfile]:
    yield profile
    for feature in ("cooperative_matrix2", "cooperative_matrix"):
        without = profile.masked([feature])
        if without is not profile:
            yield without
            profile = without


def packing_of(dispatches: Iterable[Dispatch], profile: DeviceProfile) -> Iterator[Dispatch]:
    """The dispatches that pack, at set-up, what these read."""
    values = (binding.value for dispatch in dispatches for binding in dispatch.bindings)
    for packed in dict.fromkeys(value for value in values if isinstance(value, Packed)):
        yield from packed.packing.pack(packed, profile)


def _is_plain(node: KernelNode) -> bool:
    """Whether a node is just its source's kernel, by dense accesses."""
    (source,) = node.sources
    accesses = zip(node.operands.values(), source.operands.values(), strict=True)
    return all(access.value is value for access, value in accesses)


def _lowered(
    graph: KernelGraph, dispatches: Mapping[KernelNode, list[Dispatch]],
    refused: Mapping[Node, str], compilation: Compilation,
) -> LoweredGraph:
    works: list[DeviceWork | HostWork | Alias] = [
        Alias(value, part.whole, part.offset) for value, part in graph.parts.items()
    ]
    for node in graph.nodes:
        if isinstance(node, KernelNode):
            # A movement whose elements are all in place is no work.
            if dispatches[node]:
                works.append(DeviceWork(
                    node.titles, tuple(dispatches[node]), _reason(node, refused)
                ))
        elif node.on_cpu:
            works.append(HostWork(node, node.reason))
        else:
            works.append(Alias(node.output, node.inputs[0]))
    return LoweredGraph(
        graph.inputs, graph.outputs, tuple(works), compilation.notes.of("fold")
    )


def _reason(node: KernelNode, refused: Mapping[Node, str]) -> str:
    given = next((s.reason for s in node.sources if s.reason), "has a kernel for it")
    why = next((refused[s] for s in node.sources if s in refused), None)
    return given if why is None else f"{given}; not the one meant for it: {why}"
