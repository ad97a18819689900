"""The element-wise family: any chain of element-wise operators, with broadcasting, in one pass.

There is one SPIR-V module per operator and data types. How each operand is read (``Mode``) and
along which dimensions it is repeated are specialisation constants; shapes are parameters. Tensors
larger than one binding are computed in slices of the output's elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import VECTOR_BYTES, ceil_divide, padded, round_up

from ..ir import Value
from ..ops.lowering import Elementwise
from ..types.access import Access, collapse
from ..types.data_types import DATA_TYPES, MLOperandDescriptor
from .addressing import ALIGNMENT, Mode, Operand, Part, layouts_of, slices, width
from .dispatch import Binding, Dispatch, Unsupported, grid, workgroup
from .expression import Chain, lowering, needs_int64, reciprocal, used_features
from .family import Family
from .loads import texel_bytes
from .multi_binding import check_bindings
from .node import KernelNode, Step
from .schedule import Schedule

# A part of a tensor can lie in place where it begins at a multiple of so many bytes, mostly.
_PLACED = 256


def _structure(node: KernelNode) -> tuple[Chain, list[Operand]]:
    """The statements and the distinct operands of a node with its epilogue."""
    chain = Chain()
    kind = lowering(node.operator)
    operands: list[Operand] = []
    named: dict[str, tuple[str, Any]] = {}
    alone = len(node.operator.operands) == 1
    for p in node.operator.operands:
        access = node.operands[p.name]
        blockwise = p.name in kind.blockwise
        broadcasts = blockwise or not (alone or kind.blockwise) or not access.is_dense
        operands.append(Operand(f"x{len(operands)}", access, broadcasts, blockwise))
        named[p.name] = (operands[-1].name, access)
    came_out: list[tuple[str, Any]] = [
        (chain.apply(node.operator, named, node.arguments, node.results[0]), node.results[0])
    ]
    # What is read already, steps behind don't read again.
    sides = {o.access: (o.name, o.access) for o in operands if not o.blockwise}
    for step in node.epilogue:
        named = {}
        # Declaration order decides which operand a number takes its type from.
        for p in step.operator.operands:
            access = step.operands[p.name]
            if not isinstance(access, Access):
                named[p.name] = came_out[-1 if access is None else access]
                continue
            if access not in sides:
                operands.append(Operand(f"x{len(operands)}", access, True))
                sides[access] = (operands[-1].name, access)
            named[p.name] = sides[access]
        text = chain.apply(step.operator, named, step.arguments, step.output)
        came_out.append((text, step.output))
    return chain, operands


def _capacities(operands: Sequence[Operand]) -> tuple[int, ...]:
    """Numbers of dimensions that modules are made for: a block splits a dimension in two."""
    if not any(o.broadcasts for o in operands):
        return (0,)
    return (8, 16) if any(o.blockwise for o in operands) else (8,)


def _in_vectors(*data_types: str) -> bool:
    """Whether a result of one of these types is stored four elements at once."""
    return 4 in map(width, data_types)


def _spec(
    chain: Chain,
    operands: Sequence[Operand],
    out: str,
    capacity: int,
    features: frozenset[str],
    load: str = "storage",
    extra_outputs: Sequence[tuple[int, str]] = (),
    by_strides: Sequence[str] = (),
) -> KernelSpec:
    """``extra_outputs``: statements whose results are stored too, and their data types.
    ``by_strides``: the operands that are addressed by strides."""
    types = {o.name: o.access.data_type for o in operands}
    buffers = [
        Buffer(name, kind, width=width(kind), load=load if kind == "float32" else "storage")
        for name, kind in types.items()
    ]
    buffers.append(Buffer("out", out, "w", width=width(out)))
    buffers += [
        Buffer(f"s{number}", kind, "w", width=width(kind))
        for number, (_, kind) in enumerate(extra_outputs)
    ]
    params = [Param("low"), Param("high")]
    constants = [Constant("ITEMS"), Constant("WHOLE", default=0)]
    if _in_vectors(out, *(kind for _, kind in extra_outputs)):
        constants.append(Constant("PARTIAL", default=0))
    broadcasting = [o.name for o in operands if o.broadcasts]
    if broadcasting:
        params += [Param("first"), *(Param(f"o_{name}") for name in broadcasting)]
        params += [Param(name, count=capacity) for name in ("dims", "reciprocals")]
        params += [Param(f"s_{name}", count=capacity) for name in by_strides]
        constants.append(Constant("RANK"))
        constants += [Constant(f"{c}_{name}") for name in broadcasting for c in "MB"]
    int64 = needs_int64(buffers, chain)
    options = [
        ("operands", tuple((o.name, o.broadcasts) for o in operands)),
        ("statements", chain.statements),
    ]
    if extra_outputs:
        stored = enumerate(place for place, _ in extra_outputs)
        options.append(("taps", tuple((f"s{i}", place) for i, place in stored)))
    if by_strides:
        options.append(("by_strides", tuple(by_strides)))
    if int64:
        options.append(("int64", True))
    return KernelSpec(
        "elementwise.comp.j2",
        tuple(buffers),
        (*params, *chain.params),
        tuple(constants),
        tuple(options),
        used_features(features, buffers, int64)
        # A driver might simplify across operators what it cannot within one.
        | (features & {"nan_preserve_f32"} if len(chain.statements) > 1 else frozenset()),
    )


@dataclass(frozen=True)
class Pointwise:
    """Statements computed for each of ``size`` elements, from operands read in these modes. The
    longest one of float32 has so many bytes (0: there is none)."""

    size: int
    statements: int
    modes: tuple[Mode, ...]
    float_bytes: int = 0

    @property
    def in_order(self) -> bool:
        """Whether every operand is read as the result is written, or is one number."""
        return all(mode in (Mode.FLAT, Mode.SCALAR) for mode in self.modes)


class ElementwiseFamily(Family):
    """See the module's docstring."""

    name = "elementwise"
    fuses = True

    def takes(self, node: KernelNode, operand: str) -> bool:
        """Operands may be broadcast; along the other dimensions they have to lie row by row."""
        return self._takes(lowering(node.operator), node.operands[operand])

    def takes_side(self, step: Step, access: Access) -> bool:
        return self._takes(lowering(step.operator), access)

    def _takes(self, kind: Elementwise, access: Access) -> bool:
        if access.is_dense:
            return True
        if kind.blockwise or any(s < 0 for s in access.strides):
            return False
        # What can lie in place is read without arithmetic then.
        dims, (steps,) = collapse(access.shape, access.strides)
        beside = (dims == (1,) or steps == (1,)) and not (
            access.offset * DATA_TYPES[access.data_type].size % _PLACED
        )
        return not beside

    def problem(self, node: KernelNode) -> Pointwise:
        chain, operands = _structure(node)
        _, layouts = layouts_of(operands, node.output.shape)
        modes = tuple(layout.mode for layout in layouts)
        values = [o.access.value for o in operands]
        longest = max((padded(v.descriptor.byte_length) for v in values
                       if v.data_type == "float32"), default=0)
        return Pointwise(node.output.size, len(chain.statements), modes, longest)

    def candidates(self, problem: Pointwise, profile: DeviceProfile) -> Sequence[Schedule]:
        texels = 0 < problem.float_bytes <= texel_bytes(profile)
        return [
            Schedule("elementwise", (("LX", workgroup(profile, size)), ("ITEMS", items)), load)
            for load in ("storage", *["texel"] * texels)
            for size, items in ((256, 1), (64, 4), (8, 1), (8, 16))
        ]

    def lower(
        self, node: KernelNode, problem: Pointwise, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """One dispatch per slice."""
        chain, operands = _structure(node)
        out = MLOperandDescriptor(node.out_type, node.output.shape)
        dims, layouts = layouts_of(operands, out.shape)
        capacity = next(c for c in _capacities(operands) if c == 0 or c >= len(dims))
        strided = [
            o.name for o, layout in zip(operands, layouts, strict=True) if layout.by_strides
        ]
        spec = _spec(
            chain, operands, out.data_type, capacity, profile.features, schedule.load,
            [(steps, access.data_type) for steps, access in node.extra_outputs.items()], strided,
        )
        check_bindings(spec.binding_count, node.title, profile)
        broadcasting = [o for o in operands if o.broadcasts]
        layout_of = {o.name: layout for o, layout in zip(operands, layouts, strict=True)}
        constants: dict[str, int | float] = dict(schedule.numbers)
        variant = "flat"
        if broadcasting:
            constants["RANK"] = len(dims)
            for o in broadcasting:
                steps = layout_of[o.name].strides
                constants[f"M_{o.name}"] = int(layout_of[o.name].mode)
                constants[f"B_{o.name}"] = sum(1 << d for d, s in enumerate(steps) if s)
            variant = "+".join(layout.mode.name.lower() for layout in layouts)
        if spec.texels:
            variant += " texels"
        padding = (0,) * (capacity - len(dims))
        dispatches = []
        per_group = 4 * schedule["LX"] * schedule["ITEMS"]
        limit = profile.max_storage_buffer_range
        if node.extra_outputs and any(v.descriptor.byte_length > limit for v in node.writes):
            raise Unsupported("several results that are larger than a binding")
        for start, stop, parts in slices(operands, out, dims, layouts, limit):
            begin = start // ALIGNMENT * ALIGNMENT
            count = stop - begin
            last = stop == out.size
            if _in_vectors(*(value.data_type for value in node.writes)):
                constants["PARTIAL"] = int(start > begin or (stop % 4 != 0 and not last))
            # Not on a CPU: another pipeline costs more there than the comparisons.
            constants["WHOLE"] = int(
                schedule["ITEMS"] > 1 and start == begin and count % per_group == 0
                and profile.device_type != "cpu"
            )
            params = {"low": start - begin, "high": count, **chain.values}
            if broadcasting:
                params["first"] = begin
                params["dims"] = dims + padding
                params["reciprocals"] = tuple(map(reciprocal, dims)) + padding
                for o, part in zip(operands, parts, strict=True):
                    if o.broadcasts:
                        layout = layout_of[o.name]
                        base = part.base if layout.strides else 0
                        params[f"o_{o.name}"] = (base - layout.offset) % 2**32
                for name in strided:
                    params[f"s_{name}"] = layout_of[name].strides + padding
            bindings = [_binding(o.access.value, w) for o, w in zip(operands, parts, strict=True)]
            for stored in (node.output, *node.extra_outputs.values()):
                bindings.append(_binding(stored.value, Part(begin, None if last else stop)))
            share = (stop - start) / out.size
            moved = sum(v.descriptor.byte_length for v in (*node.reads, *node.writes))
            groups = grid(ceil_divide(count, per_group), profile)
            dispatches.append(
                Dispatch(
                    spec, tuple(bindings), groups, params, dict(constants), kernel="elementwise",
                    variant=variant, flops=round(chain.flops * share), bytes=round(moved * share),
                )
            )
        return dispatches


def _binding(value: Value, part: Part) -> Binding:
    size = DATA_TYPES[value.data_type].size
    if part.stop is None or part.stop >= value.descriptor.size:
        return Binding(value, part.base * size)
    # Whole vectors: a slice may end within one.
    length = round_up((part.stop - part.base) * size, VECTOR_BYTES)
    return Binding(value, part.base * size, length)
