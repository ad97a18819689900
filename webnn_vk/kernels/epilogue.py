"""Element-wise operators fused behind another kernel (``node.epilogue``).

A family that offers this sets ``EPILOGUE = True``, adds what ``build`` returns to its KernelSpec
and Dispatch, includes ``lib/epilogue.glsl.j2`` after the prelude and stores
``w_epilogue(v, index)`` instead of ``v``: ``v`` has the arithmetic type of ``node.results[0]``,
``index`` is the element's linear index in the whole output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from webnn_vk.codegen.spec import Buffer, Param

from ..data_types import DATA_TYPES
from ..device_profile import DeviceProfile
from ..graph import Fused, Node
from ..ops.lowering import Elementwise, Kernel
from .dispatch import Binding, broadcast_strides, collapse
from .expression import Chain, needs_int64, reciprocal

# Longer chains make the driver's compile longer and win little.
MAX_STEPS = 16


@dataclass(frozen=True)
class Epilogue:
    """What a fused kernel has beside its own: all empty (``options`` apart) when nothing is fused.

    ``buffers``/``bindings`` e0, e1 … are the side operands; ``params`` with ``values`` their index
    arithmetic and the operators' numbers; ``options`` belong into the KernelSpec's options.
    ``int64`` tells whether 64-bit integers occur (for ``expression.used_features``).
    """

    buffers: tuple[Buffer, ...]
    bindings: tuple[Binding, ...]
    params: tuple[Param, ...]
    values: dict[str, Any]
    options: tuple[tuple[str, Any], ...]
    int64: bool
    flops: int
    bytes: int


def nothing(data_type: str) -> Epilogue:
    """What `build` gives for a node of that result type with nothing fused: for catalogues, and
    for the dispatches before a node's last."""
    options = (("epilogue", ()), ("epilogue_loads", ()), ("epilogue_type", data_type))
    return Epilogue((), (), (), {}, options, False, 0, 0)


def build(node: Node) -> Epilogue:
    """The epilogue of a node with one output."""
    chain = Chain()
    result = node.results[0]
    buffers: list[Buffer] = []
    bindings: list[Binding] = []
    params: list[Param] = []
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    loads: list[tuple[str, str]] = []
    described = result
    current = chain.start("v", result.data_type) if node.epilogue else "v"
    for step in node.epilogue:
        operands = {}
        for name, own in step.operands.items():
            if own is None:
                operands[name] = (current, described)
                continue
            value = node.operands[own]
            if own not in names:
                names[own] = buffer = f"e{len(names)}"
                buffers.append(Buffer(buffer, value.data_type))
                bindings.append(Binding(value))
                index, numbers = _index(buffer, value.shape, result.shape)
                params += [Param(name) for name in numbers]
                values |= numbers
                loads.append((buffer, index))
            operands[name] = (f"v_{names[own]}", value.descriptor)
        # Declaration order decides which operand a number takes its type from.
        order = [p.name for p in step.operator.operands if p.name in operands]
        current = chain.apply(
            step.operator, {name: operands[name] for name in order}, step.arguments, step.output
        )
        described = step.output
    # The result itself is in no buffer when something is fused.
    int64 = needs_int64(buffers, chain) or (
        bool(node.epilogue) and DATA_TYPES[result.data_type].size == 8
    )
    return Epilogue(
        tuple(buffers),
        tuple(bindings),
        (*params, *chain.params),
        values | chain.values,
        (
            ("epilogue", chain.statements),
            ("epilogue_loads", tuple(loads)),
            ("epilogue_type", result.data_type),
            *((("int64", True),) if int64 else ()),
        ),
        int64,
        chain.flops,
        sum(b.value.descriptor.byte_length for b in bindings),
    )


def _index(
    name: str, shape: tuple[int, ...], target: tuple[int, ...]
) -> tuple[str, dict[str, int]]:
    """GLSL for the element of a broadcast operand that belongs to output element ``i``, and the
    numbers in it: a sum of i / block mod size * stride over the dimensions not repeated."""
    dims, (strides,) = collapse(target, broadcast_strides(shape, target))
    numbers: dict[str, int] = {}
    terms = []

    def number(value: int) -> str:
        numbers[f"{name}n{len(numbers)}"] = value
        return f"P.{name}n{len(numbers) - 1}"

    for axis, (size, stride) in enumerate(zip(dims, strides, strict=True)):
        if stride == 0:
            continue
        term = "i"
        if axis < len(dims) - 1:
            block = math.prod(dims[axis + 1 :])
            term = f"divide({term}, {number(block)}, {number(reciprocal(block))}).x"
        if axis > 0:
            term = f"divide({term}, {number(size)}, {number(reciprocal(size))}).y"
        terms.append(term if stride == 1 else f"{term} * {number(stride)}")
    return " + ".join(terms) or "0u", numbers


def accepts(node: Node, step: Fused, profile: DeviceProfile) -> bool:
    """Whether the kernel of ``node`` (whose operands include the step's) can apply ``step`` to its
    result."""
    lowering = node.operator.lowering
    if isinstance(lowering, Kernel):
        from . import _family

        if not getattr(_family(lowering.family), "EPILOGUE", False):
            return False
    elif not isinstance(lowering, Elementwise):
        return False
    own = step.operator.lowering
    if not isinstance(own, Elementwise) or own.blockwise or len(node.results) != 1:
        return False
    if step.output.shape != node.output.shape or len(node.epilogue) >= MAX_STEPS:
        return False
    # Beside the result, kernels may bind absent operands too, and the parameters.
    sides = sum(name.startswith("side") for name in node.operands)
    if len(node.operator.operands) + sides + 2 > min(
        profile.max_storage_buffers_per_stage, profile.max_storage_buffers_per_set
    ):
        return False
    # Only the element-wise family slices its side operands.
    tensors = [v.descriptor for v in node.inputs] + [node.results[0], step.output]
    return isinstance(lowering, Elementwise) or all(
        t.byte_length <= profile.max_storage_buffer_range for t in tensors
    )
