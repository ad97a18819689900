"""Element-wise operators fused before another kernel (``node.prologue``): what it would have loaded
from memory is computed where it is loaded.

A family that offers this sets ``input_loads``: its templates load the operand ``input`` by
``load_x`` and ``load4_x``. For those the prelude has functions that compute (lib/prologue.glsl.j2),
so that neither the family nor its templates know of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import padded

from ..ir import Value
from ..types.access import Access
from .dispatch import Binding, Dispatch, declared
from .epilogue import Layout, index_of, width_of
from .expression import Chain, rounded, used_features
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
    value = node.operands["input"].value
    return [
        _applied(dispatch, node, node.prologue, value, profile)
        if any(binding.value is value for binding in dispatch.bindings) else dispatch
        for dispatch in dispatches
    ]


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
