"""Operators fused before another kernel (``node.prologue``): what it would have loaded from memory
is computed where it is loaded.

A family that offers this for element-wise operators sets ``input_loads``: its templates load the
operand ``input`` by ``load_x`` and ``load4_x``. For those the prelude has functions that compute
(lib/prologue.glsl.j2), so that neither the family nor its templates know of it.

A product of one row can do with its sums what normalises the row by its root mean square: the
inverse root is a factor of each sum (lib/normalized.glsl.j2). Families say so by ``extends``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import padded

from ..ir import Value
from ..ops.lowering import Normalize
from ..types.access import Access
from ..types.data_types import FLOAT_TYPES
from ..types.sizes import Size
from .dispatch import Binding, Dispatch, Unsupported, declared
from .epilogue import Layout, index_of, width_of
from .expression import Chain, lowering, rounded, used_features
from .loads import read_buffer, texel_bytes
from .multi_binding import check_bindings, total_bytes
from .node import KernelNode

_BUFFER = "x"


def applied(
    dispatches: Sequence[Dispatch], node: KernelNode, profile: DeviceProfile
) -> list[Dispatch]:
    """A node's dispatches, with what they load computed by the node's prologue."""
    if node.prologue is None:
        return list(dispatches)
    apply = _normalized if isinstance(node.prologue.lowering, Normalize) else _applied
    return [
        apply(dispatch, node, node.prologue, node.prologue.output.value, profile)
        if any(node.computes(binding.value) for binding in dispatch.bindings) else dispatch
        for dispatch in dispatches
    ]


def is_factor(node: KernelNode) -> bool:
    """Whether a kernel brings one row to the root mean square 1, perhaps times a vector, so that a
    product of it is the row's own times a factor."""
    if not isinstance(node.lowering, Normalize) or node.lowering.centred or node.extra_outputs:
        return False
    row, result = node.operands["input"], node.output
    if isinstance(row.size, Size):  # known only at dispatch
        return False
    steps, sides = [lowering(step.operator) for step in node.epilogue], node.side_inputs
    times = [step.multiplies for step in steps if not step.converts]
    return (
        row.is_dense and row.shape[-1] == row.size and result.is_dense
        and node.lowering.axes(row.shape, node.arguments) == (len(row.shape) - 1,)
        and times in ([], [True]) and len(sides) == len(times)
        and all(
            access.is_dense and access.size == row.size and access.data_type in FLOAT_TYPES
            for access in sides
        )
        and {node.out_type, *(step.output.data_type for step in node.epilogue)} <= set(FLOAT_TYPES)
    )


def _normalized(
    dispatch: Dispatch, node: KernelNode, before: KernelNode, value: Value, profile: DeviceProfile
) -> Dispatch:
    spec, row = dispatch.spec, before.operands["input"]
    # Movements may have been absorbed since, and sums may have been cut into parts.
    if not is_factor(before) or dispatch.params["K"] != row.size:
        raise Unsupported(f"{before.title} can't be computed with the sums of "
                          f"{node.operator.title(node.label)}")
    at = next(n for n, binding in enumerate(dispatch.bindings) if binding.value is value)
    loaded, kept = spec.buffers[at], spec.buffers[at + 1 :]
    assert all(buffer.portions == 1 for buffer in spec.buffers[: at + 1])
    sides = before.side_inputs
    buffers = [replace(loaded, data_type=row.data_type)]
    buffers += [replace(loaded, name="row_factor", data_type=side.data_type) for side in sides]
    values = {"row_share": 1 / row.size, "row_epsilon": before.arguments["epsilon"]}
    bindings = (
        *dispatch.bindings[:at], Binding(row.value), *(Binding(side.value) for side in sides),
        *dispatch.bindings[at + 1 :],
    )
    new = replace(
        spec, buffers=(*spec.buffers[:at], *buffers, *kept),
        params=(*spec.params, *declared(values, dict.fromkeys(values, "float"))),
        options=(*spec.options, ("normalized", True), ("factors", bool(sides))),
        features=spec.features | used_features(profile.features, buffers),
    )
    check_bindings(new.binding_count, node.title, profile)
    return replace(
        dispatch, spec=new, bindings=bindings, params={**dispatch.params, **values},
        flops=dispatch.flops + 4 * row.size, bytes=total_bytes(bindings),
    )


def _applied(
    dispatch: Dispatch, node: KernelNode, before: KernelNode, value: Value, profile: DeviceProfile
) -> Dispatch:
    spec = dispatch.spec
    names = [buffer.name for buffer in spec.buffers]
    at = names.index(_BUFFER)
    loaded = spec.buffers[at]
    assert loaded.portions == 1, "what is larger than a binding is computed apart"
    shape = before.output.shape
    accesses = list(dict.fromkeys((*before.operands.values(), *before.side_inputs)))
    texels = texel_bytes(profile, loaded.load)
    buffers, values, loads = [], {}, []
    for number, access in enumerate(accesses):
        name = f"q{number}"
        layout = Layout.of(access, Access.dense(value, shape), shape)
        way = layout.way if loaded.width == 4 else "gather"
        size, width = padded(access.value.descriptor.byte_length), width_of(way)
        buffers.append(read_buffer(name, access.data_type, size, texels, width))
        index, numbers = index_of(name, layout)
        values |= numbers
        loads.append((name, index, way))
    names_of = {access: (f"v_q{n}", access) for n, access in enumerate(accesses)}
    chain, result = Chain("q"), before.results[0]
    first_operands = {p.name: names_of[before.operands[p.name]] for p in before.operator.operands}
    computed = chain.apply(before.operator, first_operands, before.arguments, result)
    chain.follow([(computed, result)], before.epilogue, names_of.__getitem__)
    *inner, (last, text) = chain.statements
    new = replace(
        spec,
        buffers=(*spec.buffers[:at], *buffers, *spec.buffers[at + 1:]),
        params=(*spec.params, *declared(values), *chain.params),
        options=(
            *spec.options,
            ("prologue", (*inner, (last, rounded(text, last)))),
            ("prologue_loads", tuple(loads)),
        ),
        features=spec.features | used_features(profile.features, buffers),
    )
    check_bindings(new.binding_count, node.title, profile)
    # Absent operands are bound to what is never looked at.
    first = sum(buffer.portions for buffer in spec.buffers[:at])
    other = Binding(accesses[0].value, 0, 16)
    kept = [other if binding.value is value else binding for binding in dispatch.bindings]
    bindings = (
        *kept[:first], *(Binding(access.value) for access in accesses), *kept[first + 1:]
    )
    return replace(
        dispatch, spec=new, bindings=bindings,
        params={**dispatch.params, **values, **chain.values},
        flops=dispatch.flops + chain.flops, bytes=total_bytes(bindings),
    )
