"""The element-wise family: any chain of element-wise operators, with broadcasting, in one pass.

There is one SPIR-V module per operator and data types. How each operand is read (``Mode``) and
along which dimensions it is repeated are specialisation constants; shapes are parameters. Tensors
larger than one binding are computed in slices of the output's elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import mul

from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import ceil_divide, padded

from ..ir import Value
from ..ops.lowering import Elementwise
from ..types.access import Access, collapse, span, strides
from ..types.data_types import DATA_TYPES, FLOAT_TYPES, MLOperandDescriptor
from ..types.sizes import Size
from .addressing import Mode, Operand, laid_out, width
from .dispatch import Binding, Dispatch, Unsupported, grid, workgroup
from .expression import Chain, Named, lowering, needs_int64, reciprocal, used_features
from .family import Family
from .loads import texel_bytes
from .multi_binding import check_bindings
from .node import KernelNode, Step
from .parts import (
    Items,
    Reach,
    bind,
    bind_range,
    block_shape,
    blocks,
    byte_length,
    cuts,
    ranges,
)
from .schedule import Schedule

# A part of a tensor can mostly lie in place where it begins at a multiple of this many bytes.
_PLACED = 256
# Invocations of a workgroup of GPUs and the vectors that each loads before it computes: the more of
# them are under way, the nearer is memory to its rate.
_TOGETHER = (64, 4), (128, 4), (256, 4), (128, 2), (128, 8)
# Slices begin at multiples of this many elements: 256 bytes or more in every data type.
_ALIGNMENT = 256


def _structure(node: KernelNode) -> tuple[Chain, list[Operand]]:
    """The statements and the distinct operands of a node with its epilogue."""
    chain = Chain()
    kind = lowering(node.operator)
    operands: list[Operand] = []
    named: dict[str, Named] = {}
    alone = len(node.operator.operands) == 1
    for p in node.operator.operands:
        access = node.operands[p.name]
        blockwise = p.name in kind.blockwise
        broadcasts = blockwise or not (alone or kind.blockwise) or not access.is_dense
        operands.append(Operand(f"x{len(operands)}", access, broadcasts, blockwise))
        named[p.name] = (operands[-1].name, access)
    result = chain.apply(node.operator, named, node.arguments, node.results[0])
    # Later steps don't read an operand again.
    sides = {o.access: (o.name, o.access) for o in operands if not o.blockwise}

    def read(access: Access) -> Named:
        if access not in sides:
            operands.append(Operand(f"x{len(operands)}", access, True))
            sides[access] = (operands[-1].name, access)
        return sides[access]

    chain.follow([(result, node.results[0])], node.epilogue, read)
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
) -> KernelSpec:
    """``extra_outputs``: statements whose results are stored too, and their data types."""
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
    # Of GPUs, which read no texels.
    together = all(b.data_type in FLOAT_TYPES and b.load == "storage" for b in buffers)
    constants += [Constant("TOGETHER")] * together
    if _in_vectors(out, *(kind for _, kind in extra_outputs)):
        constants.append(Constant("PARTIAL", default=0))
    broadcasting = [o.name for o in operands if o.broadcasts]
    by_strides = tuple(o.name for o in operands if o.by_strides)
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
    if together:
        options.append(("together", True))
    if extra_outputs:
        stored = enumerate(place for place, _ in extra_outputs)
        options.append(("extra_outputs", tuple((f"s{i}", place) for i, place in stored)))
    if by_strides:
        options.append(("by_strides", by_strides))
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
    longest one of float32 has that many bytes (0: there is none). ``floats``: nothing else is read
    or stored."""

    size: int
    statements: int
    modes: tuple[Mode, ...]
    float_bytes: int = 0
    floats: bool = False

    @property
    def in_order(self) -> bool:
        """Whether every operand is read as the result is written, or is one number."""
        return all(mode in (Mode.FLAT, Mode.SCALAR) for mode in self.modes)


class ElementwiseFamily(Family):
    """See the module's docstring."""

    name = "elementwise"
    fuses = True

    def takes(self, node: KernelNode, operand: str) -> bool:
        """Operands may be broadcast, and their rows may lie in any order."""
        return self._takes(lowering(node.operator), node.operands[operand])

    def takes_side(self, step: Step, access: Access) -> bool:
        return self._takes(lowering(step.operator), access)

    def _takes(self, kind: Elementwise, access: Access) -> bool:
        if access.is_dense:
            return True
        dims, (steps,) = collapse(access.shape, access.strides)
        if kind.blockwise or steps[-1] < 0:
            return False
        # Parts that lie in place are then read without arithmetic.
        beside = (dims == (1,) or steps == (1,)) and not (
            access.offset * DATA_TYPES[access.data_type].size % _PLACED
        )
        return not beside

    def problem(self, node: KernelNode) -> Pointwise:
        chain, operands = _structure(node)
        _, operands = laid_out(operands, node.output.shape)
        modes = tuple(o.mode for o in operands)
        values = [o.access.value for o in operands]
        longest = max((padded(v.descriptor.byte_length) for v in values
                       if v.data_type == "float32"), default=0)
        floats = all(v.data_type in FLOAT_TYPES for v in (*values, *node.writes))
        return Pointwise(node.output.size, len(chain.statements), modes, longest, floats)

    def candidates(self, problem: Pointwise, profile: DeviceProfile) -> Sequence[Schedule]:
        texels = 0 < problem.float_bytes <= texel_bytes(profile)
        candidates = [
            Schedule("elementwise", (("LX", workgroup(profile, size)), ("ITEMS", items)), load)
            for load in ("storage", *["texel"] * texels)
            for size, items in ((256, 1), (64, 4), (8, 1), (8, 16))
        ]
        known = not isinstance(problem.size, Size)
        if profile.device_type != "cpu" and problem.in_order and problem.floats and known:
            candidates += [
                Schedule("elementwise", (("LX", size), ("ITEMS", items), ("TOGETHER", items)))
                for size, items in _TOGETHER
                if size == workgroup(profile, size) and not problem.size % (4 * size * items)
            ]
        return candidates

    def lower(
        self, node: KernelNode, problem: Pointwise, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """One dispatch per slice."""
        chain, operands = _structure(node)
        out = MLOperandDescriptor(node.out_type, node.output.shape)
        dims, operands = laid_out(operands, out.shape)
        capacity = next(c for c in _capacities(operands) if c == 0 or c >= len(dims))
        spec = _spec(
            chain, operands, out.data_type, capacity, profile.features, schedule.load,
            [(steps, access.data_type) for steps, access in node.extra_outputs.items()],
        )
        check_bindings(spec.binding_count, node.title, profile)
        broadcasting = [o for o in operands if o.broadcasts]
        constants: dict[str, int | float] = dict(schedule.numbers)
        variant = "flat"
        if broadcasting:
            constants["RANK"] = len(dims)
            for o in broadcasting:
                constants[f"M_{o.name}"] = int(o.mode)
                constants[f"B_{o.name}"] = sum(1 << d for d, s in enumerate(o.strides) if s)
            variant = "+".join(o.mode.name.lower() for o in operands)
        if spec.texels:
            variant += " texels"
        padding = (0,) * (capacity - len(dims))
        dispatches = []
        per_group = 4 * schedule["LX"] * schedule["ITEMS"]
        limit = profile.max_storage_buffer_range
        if node.extra_outputs and any(v.descriptor.byte_length > limit for v in node.writes):
            raise Unsupported("several results that are larger than a binding")
        for start, stop, places in _slices(operands, dims, out, profile):
            begin = start // _ALIGNMENT * _ALIGNMENT
            count = stop - begin
            last = stop == out.size
            if _in_vectors(*(value.data_type for value in node.writes)):
                constants["PARTIAL"] = int(start > begin or (not last and stop % 4 != 0))
            # Not on a CPU, nor for a size that is known at dispatch: another pipeline costs more
            # there than the comparisons.
            constants["WHOLE"] = int(
                profile.device_type != "cpu" and not isinstance(count, Size)
                and schedule["ITEMS"] > 1 and start == begin and count % per_group == 0
            )
            if not constants["WHOLE"]:
                constants.pop("TOGETHER", None)
            params = {"low": start - begin, "high": count, **chain.values}
            if broadcasting:
                params["first"] = begin
                params["dims"] = dims + padding
                params["reciprocals"] = tuple(map(reciprocal, dims)) + padding
                for o in broadcasting:
                    params[f"o_{o.name}"] = (places[o][1] - o.access.offset) % 2**32
                    if o.by_strides:  # negative ones wrap around, as positions do
                        params[f"s_{o.name}"] = tuple(s % 2**32 for s in o.strides) + padding
            bindings = [places[o][0] for o in operands]
            for value in node.writes:
                bindings.append(_in_order(value, Items(begin, stop), out.size, profile))
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


def _slices(
    operands: Sequence[Operand], dims: tuple[int, ...], out: MLOperandDescriptor,
    profile: DeviceProfile,
) -> Iterator[tuple[int, int, dict[Operand, tuple[Binding, int]]]]:
    """(start, stop) of the slices of the output, and for each operand what a slice binds and the
    first element in it."""
    flat = [o for o in operands if o.mode is Mode.FLAT]
    size = max([DATA_TYPES[out.data_type].size, *(o.size for o in flat)])
    step = next(ranges(out.size, size, profile, _ALIGNMENT)).count
    large = {
        o: Reach(o.strides, o.size, o.access.offset) for o in operands
        if o.strides and byte_length(o.access.value) > profile.max_storage_buffer_range
    }
    block = block_shape(dims, [*large.values()], profile, in_order=True)
    for corner, shape in blocks(dims, block):
        places = {o: (Binding(o.access.value), 0) for o in operands}
        for o, reach in large.items():
            first = reach.start + sum(map(mul, corner, reach.strides))
            low, high = (n * reach.size for n in span(shape, reach.strides, first))
            binding, base = bind(o.access.value, profile, low, high)
            places[o] = binding, base // reach.size
        first = sum(map(mul, corner, strides(dims)))
        last = first + math.prod(shape)
        for begin, end in cuts(first // step * step, last, step):
            start, stop = max(first, begin), end
            part = Items(start // _ALIGNMENT * _ALIGNMENT, stop)
            in_order = {o: (_in_order(o.access.value, part, out.size, profile), 0) for o in flat}
            yield start, stop, places | in_order


def _in_order(value: Value, part: Items, total: int, profile: DeviceProfile) -> Binding:
    """A binding with a part of a tensor's elements; with all of it where that is all of them."""
    if part.count == total:
        return Binding(value)
    return bind_range(value, profile, part, DATA_TYPES[value.data_type].size)
