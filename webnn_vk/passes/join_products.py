"""Products of one operand with several constant matrices, as of queries, keys and values, become
one product whose columns they share: the operand is read once, and a device with little to do has
more."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..data_types import MLOperandDescriptor
from ..graph import Emitter, Graph, Node, Value
from ..pages import own_pages
from .pipeline import Compilation, Pass
from .rewrite import Substitution

#: Operators that see a slice of the product through an access of their own.
_READERS = frozenset({"attention", "matmul"})
_MOVES = frozenset({"reshape", "transpose"})
_EMITTED = frozenset({"slice", "add"})


@dataclass(frozen=True)
class _Linear:
    """a · weight + bias: one product, and the addition after it where the product has none."""

    product: Node
    addition: Node | None
    weight: Value
    bias: Value | None

    @property
    def output(self) -> Value:
        return (self.addition or self.product).output

    @property
    def columns(self) -> int:
        return self.output.shape[-1]


def join_products(graph: Graph, compilation: Compilation) -> Graph:
    """The graph with products joined whose results are read as slices without a copy."""
    groups: dict[object, list[_Linear]] = {}
    for node in graph.nodes:
        linear = _linear(node, graph)
        if linear is None or not _is_read_in_place(linear.output, graph):
            continue
        names = {node.operator.name} | _EMITTED
        if names.isdisjoint(compilation.force_cpu):
            a, transposed = node.operands["a"], node.arguments.get("b_transpose", False)
            key = (a, node.operator, transposed, linear.bias is None)
            groups.setdefault(key, []).append(linear)
    joined = {group[0].product: group for group in groups.values() if len(group) > 1}
    if not joined:
        return graph
    gone = {
        node for group in joined.values() for part in group
        for node in (part.product, part.addition) if node is not None
    }
    known = Substitution()
    nodes: list[Node] = []
    for node in graph.nodes:
        if node in joined:
            group = joined[node]
            made = _joined(group, known)
            nodes += made
            known.update(zip((p.output for p in group), (n.output for n in made[-len(group):]),
                             strict=True))
            titles = (n.title for p in group for n in (p.product, p.addition) if n is not None)
            compilation.notes.add("join_products", " + ".join(titles))
        elif node not in gone:
            nodes.append(known.apply(node))
    outputs = {name: known.get(v) for name, v in graph.outputs.items()}
    return replace(graph, outputs=outputs, nodes=tuple(nodes))


def _linear(node: Node, graph: Graph) -> _Linear | None:
    """What a node is as a product with a constant matrix that nothing else reads."""
    if node.operator.name not in ("matmul", "gemm"):
        return None
    weight, options = node.operands["b"], node.arguments
    if weight.data is None or len(weight.shape) != 2 or len(graph.users[weight]) != 1:
        return None
    bias: Value | None = None
    addition = None
    if node.operator.name == "gemm":
        bias = node.operand("c")
        if options["a_transpose"] or options["alpha"] != 1 or options["beta"] != 1:
            return None
    else:
        users = graph.users.get(node.output, [])
        if len(users) == 1 and users[0].operator.name == "add":
            a, b = users[0].operands["a"], users[0].operands["b"]
            bias = b if a is node.output else a
            if users[0].output.shape != node.output.shape or bias is node.output:
                return None
            addition = users[0]
            if node.output in graph.output_values:
                return None
    columns = node.output.shape[-1]
    if bias is not None and (bias.data is None or bias.shape != (columns,)):
        return None
    # Rows of vectors of 4 stay that.
    return None if columns % 4 else _Linear(node, addition, weight, bias)


def _is_read_in_place(value: Value, graph: Graph) -> bool:
    """Whether all that comes of a value is read through movements by kernels that take them."""
    if value in graph.output_values:
        return False
    return all(
        user.operator.name in _READERS
        or (user.operator.name in _MOVES and _is_read_in_place(user.output, graph))
        for user in graph.users.get(value, [])
    )


def _joined(group: Sequence[_Linear], known: Substitution) -> list[Node]:
    """One product in the place of several, and the slices that they were, last."""
    first = group[0].product
    emit = Emitter(first.label)
    a = known.get(first.operands["a"])
    across = 0 if first.arguments.get("b_transpose", False) else 1
    weight = _side_by_side([p.weight for p in group], across)
    biases = [p.bias for p in group if p.bias is not None]
    bias = _side_by_side(biases, 0) if biases else None
    if first.operator.name == "gemm":
        result = emit.gemm(a, weight, c=bias, b_transpose=across == 0)
    else:
        result = emit.matmul(a, weight)
        if bias is not None:
            result = emit.add(result, bias)
    *shape, _ = result.shape
    at = 0
    for part in group:
        emit.slice(
            result, (0,) * len(shape) + (at,), (*shape, part.columns), label=part.product.label
        )
        at += part.columns
    nodes = [n for p in group for n in (p.product, p.addition) if n is not None]
    origins = tuple(dict.fromkeys(o for n in nodes for o in n.origins))
    return [replace(n, origins=origins) for n in emit.nodes]


def _side_by_side(values: Sequence[Value], axis: int) -> Value:
    """A constant of several; it has a key of its own where all have one."""
    parts = [v.data for v in values if v.data is not None]
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    # The parts go at once, the whole goes as soon as it is on the device.
    data = own_pages(tuple(shape), parts[0].dtype)
    np.concatenate(parts, axis, out=data)
    data.setflags(write=False)
    keys = [v.key for v in values]
    key = None if None in keys else hashlib.sha256(repr(("join", axis, keys)).encode()).hexdigest()
    return Value(MLOperandDescriptor(values[0].data_type, data.shape), data=data, key=key)


JOIN_PRODUCTS = Pass("join_products", join_products)
