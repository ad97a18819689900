"""Element-wise chains that many models have behind a convolution or a product: with their kernels
in the pack, common models start without a GLSL compiler."""

from __future__ import annotations

import functools
from dataclasses import replace

from ..ir.emit import Emitter
from ..ir.graph import Value
from ..types.access import Access
from ..types.data_types import MLOperandDescriptor
from . import epilogue
from .dispatch import Binding
from .epilogue import Epilogue
from .node import KernelNode, Step

#: Operators in turn. What they read beside the kernel's result: a tensor of its shape, a row of it
#: or a number.
_Chain = tuple[tuple[str, str], ...]
OF_CONVOLUTIONS: tuple[_Chain, ...] = (
    (("relu", ""),),
    (("clamp", ""),),
    (("add", "tensor"),),
    (("add", "tensor"), ("relu", "")),
)
#: Behind products that have their bias, beside those of convolutions.
OF_BIASED: tuple[_Chain, ...] = ((("gelu", ""),),)
#: Behind products whose bias is an addition of its own.
OF_PRODUCTS: tuple[_Chain, ...] = (
    (("add", "row"),),
    (("add", "row"), ("relu", "")),
    (("add", "row"), ("gelu", "")),
    (("add", "row"), ("add", "tensor")),
)
#: Behind the first product of an attention.
OF_SCORES: tuple[_Chain, ...] = (
    (("mul", "number"),),
    (("div", "number"),),
    (("mul", "number"), ("add", "row")),
)
_SHAPES = {"tensor": (2, 8), "row": (8,), "number": ()}


@functools.cache
def epilogues(chains: tuple[_Chain, ...]) -> tuple[Epilogue, ...]:
    """What the chains add to a float32 kernel, as ``epilogue.build`` has it of models' nodes."""
    return tuple(epilogue.build(_node(chain)) for chain in chains)


@functools.cache
def merged() -> Epilogue:
    """The one form that several of them have where they are merged."""
    node = _node(())
    return epilogue.merged(node, epilogue.build(node), Binding(node.output.value))


def _node(chain: _Chain) -> KernelNode:
    emit = Emitter()
    value = emit.identity(Value(MLOperandDescriptor("float32", _SHAPES["tensor"])))
    for name, side in chain:
        sides = [Value(MLOperandDescriptor("float32", _SHAPES[side]))] if side else []
        value = getattr(emit, name)(value, *sides)
    first, *others = emit.nodes
    steps, running = [], first.outputs[0]
    for node in others:
        operands = {
            name: None if operand is running else Access.dense(operand)
            for name, operand in node.operands.items()
        }
        running = node.outputs[0]
        steps.append(Step(node.operator, operands, node.arguments, running.descriptor, ""))
    kernel = KernelNode.of(first)
    outputs = (Access.dense(running),)
    return replace(kernel, epilogue=tuple(steps), outputs=outputs)
