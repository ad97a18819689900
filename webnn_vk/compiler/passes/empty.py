"""Tensors without elements (webnn#391): nodes that compute them vanish, and those that read them
become what they compute of nothing. The passes and kernels after this see no dimension of size 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..ir import Emitter, Graph, Node, Value
from ..types.data_types import KNOWN_TYPES, integer_range
from .rewrite import Substitution


def is_empty(value: Value) -> bool:
    """Whether a tensor has no elements."""
    return any(size == 0 for size in value.shape)


def require_result(node: Node) -> None:
    """TypeError, with operator and ``[label]``, if the node has no result because an operand has no
    elements: the largest of nothing has no index, and a window over nothing no mean."""
    if not any(map(is_empty, node.inputs)) or all(map(is_empty, node.outputs)):
        return
    name = node.operator.name
    defined = name.startswith("reduce_") or name in _RESULTS
    if name == "pad":
        defined = node.arguments["mode"] == "constant"
    elif name in ("conv2d", "conv_transpose2d"):
        channels = 1 if node.arguments["input_layout"] == "nchw" else 3
        shape = node.operands["input"].shape
        defined = all(size != 0 for axis, size in enumerate(shape) if axis != channels)
    if not defined:
        given = ", ".join(f"{key} is {v.descriptor}" for key, v in node.operands.items())
        raise TypeError(f"{node.title}: {given}; there is no result without elements")


def without_empty(graph: Graph) -> Graph:
    """The graph without tensors that have no elements, the same one if there are none. Its inputs
    and outputs of no elements are left out. Its nodes have results (``require_result``)."""
    values = [*graph.inputs.values(), *(v for n in graph.nodes for v in (*n.inputs, *n.outputs))]
    if not any(map(is_empty, values)):
        return graph
    current = Substitution()
    nodes: list[Node] = []
    for node in graph.nodes:
        if all(map(is_empty, node.outputs)):
            continue
        if not any(map(is_empty, (*node.inputs, *node.outputs))):
            nodes.append(current.apply(node))
            continue
        emit = Emitter(node.label)
        results = _computed(current.apply(node), emit)
        nodes += (replace(made, origins=node.origins) for made in emit.nodes)
        for value, result in zip(node.outputs, results, strict=True):
            if result is not None:
                current[value] = result
    outputs = {
        name: current.get(value) for name, value in graph.outputs.items() if not is_empty(value)
    }
    inputs = {name: value for name, value in graph.inputs.items() if not is_empty(value)}
    donated = {
        past: present for past, present in graph.donated.items()
        if past in inputs and present in outputs
    }
    return replace(graph, inputs=inputs, outputs=outputs, nodes=tuple(nodes), donated=donated)


def _computed(node: Node, emit: Emitter) -> list[Value | None]:
    """The results of a node that reads or computes tensors without elements; None for those."""
    name = node.operator.name
    if name.startswith("reduce_"):
        number = _OF_NOTHING[name.removeprefix("reduce_")](node.output.data_type)
        return [_filled(emit, node.output, number)]
    return _RESULTS[name](node, emit)


def _filled(emit: Emitter, like: Value, number: Any) -> Value:
    """A tensor of one number, of a value's type and shape."""
    with np.errstate(all="ignore"):
        scalar = emit.constant(np.asarray(number), like.data_type)
    return emit.expand(scalar, like.shape)


def _range(data_type: str) -> tuple[float, float]:
    floats = KNOWN_TYPES[data_type].kind == "f"
    return (-math.inf, math.inf) if floats else integer_range(data_type)


#: Reductions of no elements.
_OF_NOTHING: dict[str, Callable[[str], Any]] = {
    "sum": lambda _: 0, "l1": lambda _: 0, "l2": lambda _: 0, "sum_square": lambda _: 0,
    "product": lambda _: 1, "mean": lambda _: math.nan, "log_sum": lambda _: -math.inf,
    "log_sum_exp": lambda _: -math.inf,
    "max": lambda data_type: _range(data_type)[0], "min": lambda data_type: _range(data_type)[1],
}


def _concat(node: Node, emit: Emitter) -> list[Value | None]:
    parts = [value for value in node.sequence("inputs") if not is_empty(value)]
    if len(parts) == 1:
        return [emit.identity(parts[0])]
    return [emit.concat(parts, node.arguments["axis"])]


def _split(node: Node, emit: Emitter) -> list[Value | None]:
    source, axis, start = node.operands["input"], node.arguments["axis"], 0
    results: list[Value | None] = []
    for value in node.outputs:
        starts = [start if i == axis else 0 for i in range(len(value.shape))]
        results.append(None if is_empty(value) else emit.slice(source, starts, value.shape))
        start += value.shape[axis]
    return results


def _pad(node: Node, emit: Emitter) -> list[Value | None]:
    return [_filled(emit, node.output, node.arguments["value"])]


def _product(node: Node, emit: Emitter) -> list[Value | None]:
    """A matmul or gemm along no elements."""
    c = node.operand("c")
    if c is None:
        return [_filled(emit, node.output, 0)]
    beta = emit.constant(np.asarray(node.arguments["beta"]), c.data_type)
    return [emit.expand(emit.mul(c, beta), node.output.shape)]


def _convolution(node: Node, emit: Emitter) -> list[Value | None]:
    """A convolution of no channels: its bias."""
    bias = node.operand("bias")
    if bias is None:
        return [_filled(emit, node.output, 0)]
    if node.arguments["input_layout"] == "nchw":
        bias = emit.reshape(bias, (1, bias.shape[0], 1, 1))
    return [emit.expand(bias, node.output.shape)]


def _unchanged(node: Node, emit: Emitter) -> list[Value | None]:
    """A scatter of no updates."""
    return [emit.identity(node.operands["input"])]


_RESULTS: dict[str, Callable[[Node, Emitter], list[Value | None]]] = {
    "concat": _concat, "split": _split, "pad": _pad, "matmul": _product, "gemm": _product,
    "conv2d": _convolution, "conv_transpose2d": _convolution,
    "scatter_elements": _unchanged, "scatter_nd": _unchanged,
}
