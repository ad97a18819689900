"""Layouts of regions: convolutions, pooling and the operators between them are all computed with
channels first or all with channels last, whichever leaves fewer bytes to transpose.

Exporters that know one layout put transposes around operators of the other. A region is a set of
nodes that can be computed in either layout at the same cost, connected by values or by such
transposes. Its nodes are rewritten for one layout. Transposes stay only at its edges, between the
region and nodes that need a certain layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from webnn_vk.support.dataclass import dataclass

from ..ir import Emitter, Graph, Node, Value
from ..ops.lowering import Convolution, Elementwise, Join, Pool, Reduce
from .pipeline import Compilation, Pass

Order = tuple[int, ...]

AS_IS: Order = (0, 1, 2, 3)
#: Permutations from the tensor at hand to the wanted one: nchw → nhwc, and back.
TO_LAST: Order = (0, 2, 3, 1)
TO_FIRST: Order = (0, 3, 1, 2)

#: Which of a node's two layouts a tensor has: 0, channels first, or 1, channels last.
_LAYOUTS = {"nchw": 0, "nhwc": 1}
#: Operators with an argument ``axis`` along which elements don't mix, or all of them do.
_AXIS = frozenset(("concat", "split", "batch_normalization", "softmax"))
#: Arguments with a number for each dimension.
_PER_DIMENSION = {
    "slice": ("starts", "sizes", "strides"),
    "pad": ("beginning_padding", "ending_padding"),
    "tile": ("repetitions",), "expand": ("new_shape",),
}


def permutation_between(layout: int, wanted: int) -> Order:
    """The permutation that brings a tensor of one layout into the other."""
    return AS_IS if layout == wanted else TO_LAST if wanted else TO_FIRST


def composed(first: Order, second: Order) -> Order:
    """The permutation that does ``first``, then ``second``."""
    return tuple(first[axis] for axis in second)


# -- what can be computed in either layout ---------------------------------------------------------
def _is_flexible(node: Node) -> bool:
    """Whether a node can be computed on its operand transposed, at the same cost."""
    if any(value.descriptor.rank > 4 for value in (*node.inputs, *node.outputs)):
        return False
    name, kind = node.operator.name, node.operator.lowering
    if isinstance(kind, Elementwise):
        # Blocks of dequantised tensors have a dimension for each of the tensor's.
        return node.output.descriptor.rank == 4 and all(
            v.descriptor.rank == 4 or not kind.blockwise for v in node.inputs
        )
    if not node.inputs or any(v.descriptor.rank != 4 for v in _layout_operands(node).values()):
        return False
    if isinstance(kind, Reduce):
        kept = [axis for axis in range(4) if axis not in _axes(node)]
        # The remaining dimensions have to keep their order.
        return node.arguments["keep_dimensions"] or all(
            sorted(kept, key=order.index) == kept for order in (TO_LAST, TO_FIRST)
        )
    if name == "resample2d":
        return tuple(node.arguments["axes"]) in ((1, 2), (2, 3))
    return (
        isinstance(kind, (Convolution, Pool))
        or name in _AXIS or name in _PER_DIMENSION
        or name in ("instance_normalization", "reverse", "identity")
    )


def _layout_operands(node: Node) -> dict[str, Value]:
    """The operands that are transposed with the node: not filters, statistics and such."""
    if isinstance(node.operator.lowering, Elementwise):
        return dict(node.operands)
    return {
        name: value for name, value in node.operands.items()
        if name == "input" or name.startswith("inputs[")
    }


def _axes(node: Node) -> tuple[int, ...]:
    axes = node.arguments["axes" if "axes" in node.arguments else "axis"]
    return (axes,) if isinstance(axes, int) else tuple(axes)


def _layout_of(node: Node) -> int | None:
    """The layout that a node's arguments give; None if they give none."""
    name = "input_layout" if "input_layout" in node.arguments else "layout"
    if name in node.arguments:
        return _LAYOUTS[node.arguments[name]]
    if node.operator.name == "resample2d":
        return 0 if tuple(node.arguments["axes"]) == (2, 3) else 1
    return None


def _is_layout_change(node: Node) -> bool:
    return node.operator.name == "transpose" and node.arguments["permutation"] in (
        TO_LAST, TO_FIRST
    )


def _transposed_forms(graph: Graph) -> dict[Value, tuple[Value, Order]]:
    """Tensors that are transposed forms of others: the other one, and the permutation."""
    forms: dict[Value, tuple[Value, Order]] = {}
    for node in filter(_is_layout_change, graph.nodes):
        root, permutation = forms.get(node.inputs[0], (node.inputs[0], AS_IS))
        forms[node.output] = root, composed(permutation, node.arguments["permutation"])
    return forms


def _transposed_arguments(node: Node, order: Order) -> dict[str, object]:
    """The arguments that a node has on tensors transposed by ``order``."""
    name, arguments = node.operator.name, node.arguments
    changed: dict[str, object] = {}
    for layout in ("input_layout", "layout"):
        if layout in arguments:
            changed[layout] = "nhwc" if arguments[layout] == "nchw" else "nchw"
    place = {axis: position for position, axis in enumerate(order)}
    if name in _AXIS or ("axis" in arguments and isinstance(node.operator.lowering, Reduce)):
        changed["axis"] = place[arguments["axis"]]
    elif isinstance(node.operator.lowering, Reduce) or name in ("resample2d", "reverse"):
        changed["axes"] = sorted(place[axis] for axis in arguments["axes"])
    for member in _PER_DIMENSION.get(name, ()):
        changed[member] = [arguments[member][axis] for axis in order]
    return changed


# -- regions ---------------------------------------------------------------------------------------
@dataclass
class _Region:
    """Nodes with their layouts in the original graph. ``fixed``: some nodes' arguments give their
    layout; otherwise the layouts are only relative to each other."""

    layouts: dict[Node, int] = field(default_factory=dict)
    fixed: bool = False

    def fits(self, other: _Region, difference: int) -> bool:
        """Whether the other's nodes, with ``difference`` added to their layouts, could join."""
        if difference == 0 or not other.layouts:
            return True
        moved = {layout + difference for layout in other.layouts.values()}
        return moved <= {0, 1} and not other.fixed

    def moved(self, difference: int) -> None:
        self.layouts = {node: layout + difference for node, layout in self.layouts.items()}


class _Regions:
    """The regions of a graph, found in a walk over its nodes in order."""

    def __init__(self, graph: Graph, kept: frozenset[str]) -> None:
        self.of: dict[Node, _Region] = {}
        #: For each result of flexible nodes and of transposes: the node, and the difference of
        #: the value's layout to the node's.
        ends: dict[Value, tuple[Node, int]] = {}
        for node in graph.nodes:
            if node.operator.name in kept:
                continue
            if _is_layout_change(node):
                step = 1 if node.arguments["permutation"] == TO_LAST else -1
                source = ends.get(node.inputs[0])
                if source is not None:
                    ends[node.output] = source[0], source[1] + step
                continue
            if not _is_flexible(node):
                continue
            layout = _layout_of(node)
            region = _Region({node: layout or 0}, layout is not None)
            self.of[node] = region
            for value in node.inputs:
                if value in ends and value.descriptor.rank == 4:
                    source, step = ends[value]
                    self._join(source, node, step)
            for value in node.outputs:
                if value.descriptor.rank == 4:
                    ends[value] = node, 0

    def _join(self, source: Node, node: Node, step: int) -> None:
        """Join the regions of ``source`` and of ``node``, which reads its result transposed by
        ``step``, if they fit."""
        before, after = self.of[source], self.of[node]
        difference = before.layouts[source] + step - after.layouts[node]
        if before is after:
            return
        if not before.fits(after, difference):
            # The other way round: the earlier region may be moved.
            if not after.fits(before, -difference):
                return
            before.moved(-difference)
            difference = 0
        after.moved(difference)
        before.layouts |= after.layouts
        before.fixed |= after.fixed
        for member in after.layouts:
            self.of[member] = before

    def __iter__(self) -> Iterator[_Region]:
        return iter({id(region): region for region in self.of.values()}.values())


class _Costs:
    """The costs of regions: the readers of each tensor, and the transposition for each."""

    def __init__(self, graph: Graph, software: bool = False) -> None:
        self.software = software
        self.sources = _transposed_forms(graph)
        self.readers: dict[Value, list[tuple[Node | None, Order]]] = {}
        self.producers = graph.producers
        for node in graph.nodes:
            if _is_layout_change(node):
                continue
            transposed = _layout_operands(node)
            for name, value in node.operands.items():
                self._read(node if name in transposed else None, value)
        for value in graph.outputs.values():
            self._read(None, value)

    def _read(self, node: Node | None, value: Value) -> None:
        root, permutation = self.sources.get(value, (value, AS_IS))
        if root.descriptor.rank == 4 and not root.is_constant:
            self.readers.setdefault(root, []).append((node, permutation))

    def of(self, region: _Region, wanted: int | None) -> int:
        """Bytes to transpose at a region's edges and, if ``wanted`` is None (the region stays as it
        is), within it. Each transposed form of a tensor counts once."""
        def order(node: Node | None) -> Order:
            if node is None or wanted is None or node not in region.layouts:
                return AS_IS
            return permutation_between(region.layouts[node], wanted)

        roots = dict.fromkeys(
            self.sources.get(value, (value, AS_IS))[0]
            for node in region.layouts for value in (*node.inputs, *node.outputs)
        )
        total = 0
        for root in roots:
            produced = order(self.producers.get(root))
            needed = {
                composed(permutation, order(reader))
                for reader, permutation in self.readers.get(root, ())
            }
            total += root.descriptor.byte_length * sum(
                form != produced and not _keeps_order(root.shape, produced, form)
                for form in needed
            )
        return total + sum(
            self._within(node, layout if wanted is None else wanted, order(node))
            for node, layout in region.layouts.items()
        )

    def _within(self, node: Node, layout: int, order: Order) -> int:
        """Further costs of a node in bytes. The parts of a concat need no copy only along the
        outermost dimension. On software devices depthwise convolutions take twice as long with
        channels last."""
        if isinstance(node.operator.lowering, Join):
            (whole,) = node.results
            before = order[: order.index(node.arguments["axis"])]
            return whole.byte_length * any(whole.shape[axis] > 1 for axis in before)
        if self.software and layout and isinstance(node.operator.lowering, Convolution):
            depthwise = node.arguments["groups"] == node.inputs[0].shape[3 if order == AS_IS else 1]
            return sum(result.byte_length for result in node.results) * depthwise
        return 0


def _keeps_order(shape: tuple[int, ...], first: Order, second: Order) -> bool:
    """Whether two transposed forms have their elements in the same order in memory, so that one is
    a view of the other."""
    return [a for a in first if shape[a] != 1] == [a for a in second if shape[a] != 1]


# -- rewriting -------------------------------------------------------------------------------------
class _Rewriting:
    """Rewrites the nodes of a graph, some to compute on transposed tensors."""

    def __init__(self, graph: Graph, orders: Mapping[Node, Order]) -> None:
        self.graph, self.orders = graph, orders
        self.nodes: list[Node] = []
        #: The forms of each value that exist, by permutation.
        self.forms: dict[Value, dict[Order, Value]] = {}
        #: The transposes of the graph, whose labels new ones take over.
        self.transposes: dict[tuple[Value, Order], Node] = {}
        self.sources = _transposed_forms(graph)

    def run(self) -> Graph:
        graph = self.graph
        for node in graph.nodes:
            if _is_layout_change(node):
                self.transposes.setdefault(self.sources[node.output], node)
            elif self.orders.get(node, AS_IS) != AS_IS:
                self._transpose_node(node, self.orders[node])
            else:
                self.nodes.append(replace(node, operands={
                    name: self.form(value) for name, value in node.operands.items()
                }))
        outputs = {name: self.form(value) for name, value in graph.outputs.items()}
        return replace(graph, outputs=outputs, nodes=tuple(self.nodes))

    def form(self, value: Value, order: Order = AS_IS) -> Value:
        """A value transposed by ``order``; emits the transpose if there is none yet."""
        root, total = self.sources.get(value, (value, AS_IS))
        wanted = composed(total, order) if root.descriptor.rank == 4 else AS_IS
        forms = self.forms.setdefault(root, {AS_IS: root})
        if wanted not in forms:
            known, form = next(iter(forms.items()))
            permutation = tuple(known.index(axis) for axis in wanted)
            transpose = self.transposes.get((root, wanted))
            emit = Emitter("" if transpose is None else transpose.label)
            if root.is_constant and root.data is not None:
                forms[wanted] = emit.constant(root.data.transpose(wanted))
            elif _keeps_order(root.shape, known, wanted):
                shape = [root.shape[axis] for axis in wanted]
                forms[wanted] = emit.reshape(form, shape)
            else:
                forms[wanted] = emit.transpose(form, permutation=permutation)
            self.nodes += emit.nodes
        return forms[wanted]

    def _transpose_node(self, node: Node, order: Order) -> None:
        emit = Emitter()
        operands = {
            name: self._operand(node, name, value, order, emit)
            for name, value in node.operands.items()
        }
        emit.like(replace(node, operands=operands), **_transposed_arguments(node, order))
        self.nodes += [replace(new, origins=node.origins) for new in emit.nodes]
        for old, new in zip(node.outputs, self.nodes[-1].outputs, strict=True):
            self.forms[old] = {order if old.descriptor.rank == 4 else AS_IS: new}

    def _operand(
        self, node: Node, name: str, value: Value, order: Order, emit: Emitter
    ) -> Value:
        whole = self.form(value)
        if name not in _layout_operands(node):
            return whole
        if value.descriptor.rank == 4:
            return self.form(value, order)
        if value.descriptor.size == 1:
            return whole
        # It broadcasts from the last dimension: transpose it like the other operands.
        shape = (1,) * (4 - value.descriptor.rank) + value.shape
        if value.data is not None:
            return emit.constant(value.data.reshape(shape).transpose(order))
        whole = emit.reshape(whole, shape)
        if _keeps_order(shape, AS_IS, order):
            return emit.reshape(whole, [shape[axis] for axis in order])
        return emit.transpose(whole, permutation=order)


def assign_layouts(graph: Graph, compilation: Compilation) -> Graph:
    """The graph with each region in the layout that leaves the fewest bytes to transpose; unchanged
    if none gains. Operators forced to the CPU stay as they are."""
    if not any(map(_is_layout_change, graph.nodes)):
        return graph
    profile = compilation.profile
    orders: dict[Node, Order] = {}
    costs = _Costs(graph, profile is not None and profile.is_software)
    for region in _Regions(graph, compilation.force_cpu):
        cost = {wanted: costs.of(region, wanted) for wanted in (None, 0, 1)}
        wanted = min(cost, key=lambda choice: cost[choice])
        if wanted is None or cost[wanted] == cost[None]:
            continue
        orders |= {
            node: permutation_between(layout, wanted) for node, layout in region.layouts.items()
        }
        name = "nhwc" if wanted else "nchw"
        saved = cost[None] - cost[wanted]
        text = f"{len(region.layouts)} operators as {name}, {saved} bytes not transposed"
        compilation.notes.add("layout", text)
    return _Rewriting(graph, orders).run() if orders else graph


LAYOUT = Pass("layout", assign_layouts)
