"""Products of one operand with several constant matrices (for queries, keys and values) become one
product with the columns of all: the operand is read once, and a device that was not full has more
work at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.mmap_array import own_pages

from ..ir import Emitter, Graph, Node, Value
from .fold import derived_constant
from .pipeline import Compilation, Pass
from .rewrite import Substitution

#: Operators that can read a slice of the product in place.
_READERS = frozenset({"attention", "matmul"})
_MOVES = frozenset({"reshape", "transpose"})
_PRODUCTS = frozenset({"matmul", "gemm", "quantized_matmul", "block_matmul"})


@dataclass(frozen=True)
class _Linear:
    """A product with a constant matrix, and the steps after it: casts, and additions and
    multiplications of a row or number. ``rows`` has the row or number of each step."""

    product: Node
    weight: Value
    bias: Value | None
    #: The scales and offsets of blocks of the weight's integers.
    scale: Value | None = None
    offset: Value | None = None
    steps: tuple[Node, ...] = ()
    rows: tuple[Value | None, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.product, *self.steps)

    @property
    def output(self) -> Value:
        return self.nodes[-1].output

    @property
    def columns(self) -> int:
        return self.output.shape[-1]

    @property
    def key(self) -> object:
        """Products with equal keys can be joined."""
        node = self.product
        steps = tuple((step.operator, step.output.data_type) for step in self.steps)
        return (
            node.operands["a"], node.operator, tuple(sorted(node.arguments.items())),
            self.weight.data_type, self.bias is None, self.scale and self.scale.shape[1],
            self.scale and self.scale.data_type, self.offset is None, steps,
        )


def join_products(graph: Graph, compilation: Compilation) -> Graph:
    """The graph in which products are joined if their results can be read as slices, without a
    copy."""
    groups: dict[object, list[_Linear]] = {}
    for node in graph.nodes:
        linear = _linear(node, graph)
        if linear is None or not _is_read_in_place(linear.output, graph):
            continue
        names = {"slice"} | {n.operator.name for n in linear.nodes}
        if names.isdisjoint(compilation.force_cpu):
            groups.setdefault(linear.key, []).append(linear)
    joined = {group[0].product: group for group in groups.values() if len(group) > 1}
    if not joined:
        return graph
    gone = {node for group in joined.values() for part in group for node in part.nodes}
    known = Substitution()
    nodes: list[Node] = []
    for node in graph.nodes:
        if node in joined:
            group = joined[node]
            made = _joined(group, known)
            nodes += made
            known.update(zip((p.output for p in group), (n.output for n in made[-len(group):]),
                             strict=True))
            titles = (n.title for p in group for n in p.nodes)
            compilation.notes.add("join_products", " + ".join(titles))
        elif node not in gone:
            nodes.append(known.apply(node))
    return known.rebuild(graph, nodes)


def _linear(node: Node, graph: Graph) -> _Linear | None:
    """A node as a product with a constant matrix that nothing else reads; None if it is none."""
    if node.operator.name not in _PRODUCTS:
        return None
    weight, options = node.operands["b"], node.arguments
    if weight.data is None or len(weight.shape) != 2 or len(graph.users[weight]) != 1:
        return None
    columns = node.output.shape[-1]
    bias: Value | None = None
    if node.operator.name == "gemm":
        bias = node.operand("c")
        if options["a_transpose"] or options["alpha"] != 1 or options["beta"] != 1:
            return None
        if bias is not None and (bias.data is None or bias.shape != (columns,)):
            return None
    scale, offset = node.operand("scale"), node.operand("offset")
    # Rows stay multiples of 4 elements, so that kernels can load vectors.
    if columns % 4 or any(v is not None and v.data is None for v in (scale, offset)):
        return None
    steps: list[Node] = []
    rows: list[Value | None] = []
    value = node.output
    while value not in graph.output_values and len(graph.users.get(value, ())) == 1:
        (user,) = graph.users[value]
        row: Value | None = None
        if user.operator.name in ("add", "mul"):
            a, b = user.operands["a"], user.operands["b"]
            row = b if a is value else a
            if row is value or not _is_row(row, columns) or user.output.shape != value.shape:
                break
        elif user.operator.name != "cast":
            break
        steps.append(user)
        rows.append(row)
        value = user.output
    return _Linear(node, weight, bias, scale, offset, tuple(steps), tuple(rows))


def _is_row(value: Value, columns: int) -> bool:
    """Whether a value is a known number, or has a known number for each column."""
    return value.data is not None and (
        value.descriptor.size == 1 or value.descriptor.size == value.shape[-1] == columns
    )


def _is_read_in_place(value: Value, graph: Graph) -> bool:
    """Whether all readers of a value, also through movements, are kernels that read slices."""
    if value in graph.output_values:
        return False
    return all(
        user.operator.name in _READERS
        or (user.operator.name in _MOVES and _is_read_in_place(user.output, graph))
        for user in graph.users.get(value, [])
    )


def _joined(group: Sequence[_Linear], known: Substitution) -> list[Node]:
    """The nodes that replace several products: one product, then a slice for each."""
    first = group[0].product
    emit = Emitter(first.label)
    rows_of_b = first.operator.name == "block_matmul" or first.arguments.get("b_transpose", False)
    across = 0 if rows_of_b else 1
    changes = {
        "a": known.get(first.operands["a"]),
        "b": _concatenated([p.weight for p in group], across),
    }
    biases = [p.bias for p in group if p.bias is not None]
    if biases:
        changes["c"] = _concatenated(biases, 0)
    scales = [p.scale for p in group if p.scale is not None]
    if scales:
        changes["scale"] = _concatenated(scales, 0)
    offsets = [p.offset for p in group if p.offset is not None]
    if offsets:
        changes["offset"] = _concatenated(offsets, 0)
    result = emit.like(first, **changes)
    for number, step in enumerate(group[0].steps):
        if step.operator.name == "cast":
            result = emit.like(step, input=result)
        else:
            row = _concatenated([_row(p.rows[number], p.columns) for p in group], 0)
            result = getattr(emit, step.operator.name)(result, row)
    *shape, _ = result.shape
    at = 0
    for part in group:
        emit.slice(
            result, (0,) * len(shape) + (at,), (*shape, part.columns), label=part.product.label
        )
        at += part.columns
    origins = tuple(dict.fromkeys(o for p in group for n in p.nodes for o in n.origins))
    return [replace(n, origins=origins) for n in emit.nodes]


def _row(value: Value | None, columns: int) -> Value:
    """A number, or a row of any rank, as a row of rank 1."""
    assert value is not None and value.data is not None
    if value.shape == (columns,):
        return value
    data = np.broadcast_to(value.data.reshape(-1), (columns,))
    return derived_constant(data, [value], "row", columns)


def _concatenated(values: Sequence[Value], axis: int) -> Value:
    """Constants concatenated along an axis."""
    parts = [v.data for v in values if v.data is not None]
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    # The constants concatenated are freed at once, the result as soon as it is on the device.
    data = own_pages(tuple(shape), parts[0].dtype)
    np.concatenate(parts, axis, out=data)
    return derived_constant(data, values, "join", axis)


JOIN_PRODUCTS = Pass("join_products", join_products)
