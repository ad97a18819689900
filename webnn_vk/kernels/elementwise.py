"""The element-wise family: any chain of element-wise operators, with broadcasting, in one pass.

There is one SPIR-V module per operator and data types. How each operand is read (``Mode``) and
along which dimensions it is repeated are specialisation constants; shapes are parameters. Tensors
larger than one binding are computed in slices of the output's elements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param

from ..access import Access, collapse, strides
from ..data_types import ALL_TYPES, DATA_TYPES, MLOperandDescriptor
from ..device_profile import DeviceProfile
from ..graph import Value
from ..graph.emit import make_node
from ..integers import VECTOR_BYTES, ceil_divide, padded, round_up
from ..ops import ALL_OPERATORS, Operator
from ..ops.arguments import DataTypeName
from ..ops.lowering import Elementwise
from .dispatch import Binding, Dispatch, Unsupported, grid, workgroup
from .expression import Chain, lowering, needs_int64, reciprocal, used_features
from .family import Family
from .loads import texel_bytes
from .node import KernelNode, Step
from .portions import check_bindings
from .schedule import Schedule

# Slices begin at multiples of this many elements: 256 bytes or more in every data type.
_ALIGNMENT = 256
# A part of a tensor can lie in place where it begins at a multiple of so many bytes, mostly.
_PLACED = 256


class Mode(IntEnum):
    """How an operand is read; the numbers are those of the template."""

    FLAT = 0
    SCALAR = 1
    VECTOR = 2
    SPLAT = 3
    GATHER = 4


@dataclass(frozen=True)
class _Operand:
    """An operand ``x<n>``; ``broadcasts`` tells whether its shape may differ from the output's,
    ``blockwise`` whether its elements are repeated in blocks."""

    name: str
    access: Access
    broadcasts: bool
    blockwise: bool = False


@dataclass(frozen=True)
class _Part:
    """The part of an operand that a slice reads: element ``base``, multiple of the alignment, to
    ``stop``; the whole operand when ``stop`` is None."""

    base: int = 0
    stop: int | None = None


@dataclass(frozen=True)
class _Layout:
    """How an operand is addressed: its strides over the collapsed dimensions of the output, from
    element ``offset`` on. ``by_strides``: they can't be told from which dimensions are repeated."""

    mode: Mode
    strides: tuple[int, ...] = ()
    offset: int = 0
    by_strides: bool = False


def _structure(node: KernelNode) -> tuple[Chain, list[_Operand]]:
    """The statements and the distinct operands of a node with its epilogue."""
    chain = Chain()
    kind = lowering(node.operator)
    operands: list[_Operand] = []
    named: dict[str, tuple[str, Any]] = {}
    alone = len(node.operator.operands) == 1
    for p in node.operator.operands:
        access = node.operands[p.name]
        blockwise = p.name in kind.blockwise
        broadcasts = blockwise or not (alone or kind.blockwise) or not access.is_dense
        operands.append(_Operand(f"x{len(operands)}", access, broadcasts, blockwise))
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
                operands.append(_Operand(f"x{len(operands)}", access, True))
                sides[access] = (operands[-1].name, access)
            named[p.name] = sides[access]
        text = chain.apply(step.operator, named, step.arguments, step.output)
        came_out.append((text, step.output))
    return chain, operands


def _width(data_type: str) -> int:
    return 4 if DATA_TYPES[data_type].size < 8 else 1


def _capacities(operands: Sequence[_Operand]) -> tuple[int, ...]:
    """Numbers of dimensions that modules are made for: a block splits a dimension in two."""
    if not any(o.broadcasts for o in operands):
        return (0,)
    return (8, 16) if any(o.blockwise for o in operands) else (8,)


def _spec(
    chain: Chain,
    operands: Sequence[_Operand],
    out: str,
    capacity: int,
    features: frozenset[str],
    load: str = "storage",
    taps: Sequence[tuple[int, str]] = (),
    by_strides: Sequence[str] = (),
) -> KernelSpec:
    """``taps``: statements whose results are stored too, and their data types. ``by_strides``: the
    operands that are addressed so."""
    types = {o.name: o.access.data_type for o in operands}
    buffers = [
        Buffer(name, kind, width=_width(kind), load=load if kind == "float32" else "storage")
        for name, kind in types.items()
    ]
    buffers.append(Buffer("out", out, "w", width=_width(out)))
    buffers += [
        Buffer(f"s{number}", kind, "w", width=_width(kind)) for number, (_, kind) in enumerate(taps)
    ]
    params = [Param("low"), Param("high")]
    constants = [Constant("ITEMS"), Constant("WHOLE", default=0)]
    if _width(out) == 4:
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
    if taps:
        options.append(("taps", tuple((f"s{i}", place) for i, (place, _) in enumerate(taps))))
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


# -- addressing -----------------------------------------------------------------------------------
def _layouts(
    operands: Sequence[_Operand], shape: tuple[int, ...]
) -> tuple[tuple[int, ...], list[_Layout]]:
    """The collapsed dimensions, and each operand's layout over them."""
    fine = _split(shape, [o.access.shape for o in operands if o.blockwise])
    flat = [s if d > 1 else 0 for s, d in zip(strides(fine), fine, strict=True)]
    simple: list[_Layout | None] = []
    strided: list[tuple[int, ...]] = []
    for o in operands:
        steps = _fine_strides(o, shape, fine)
        if o.broadcasts and not any(steps) and not o.access.offset:
            simple.append(_Layout(Mode.SCALAR))
        elif not o.broadcasts or (list(steps) == flat and not o.access.offset):
            simple.append(_Layout(Mode.FLAT))
        else:
            simple.append(None)
            strided.append(steps)
    dims, merged = collapse(fine, *strided)
    rest = iter(merged)
    layouts = []
    for o, layout in zip(operands, simple, strict=True):
        if layout is None:
            steps = next(rest)
            offset = o.access.offset
            mode = _mode(dims, steps, _width(o.access.data_type), offset)
            layout = _Layout(mode, steps, offset, bool(offset) or not _in_order(dims, steps))
        layouts.append(layout)
    return dims, layouts


def _split(shape: tuple[int, ...], blocks: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Each dimension as (number of blocks, block size); blockwise operands have one shape."""
    if not blocks:
        return shape
    (counts,) = set(blocks)
    return tuple(n for d, c in zip(shape, counts, strict=True) for n in (c, d // c))


def _fine_strides(
    operand: _Operand, shape: tuple[int, ...], fine: tuple[int, ...]
) -> tuple[int, ...]:
    """Strides over the dimensions of ``fine``, 0 where a dimension is repeated or of size 1."""
    access = operand.access
    if operand.blockwise:
        return tuple(
            n
            for s, d in zip(access.strides, access.shape, strict=True)
            for n in (s if d > 1 else 0, 0)
        )
    steps = access.broadcast(shape).strides
    if len(fine) == len(shape):
        return tuple(s if d > 1 else 0 for s, d in zip(steps, shape, strict=True))
    split = (n for s, b in zip(steps, fine[1::2], strict=True) for n in (s * b, s))
    return tuple(s if d > 1 else 0 for s, d in zip(split, fine, strict=True))


def _mode(dims: tuple[int, ...], steps: tuple[int, ...], width: int, offset: int) -> Mode:
    if dims[-1] % 4 == 0:
        if steps[-1] == 0:
            return Mode.SPLAT
        if width == 4 and steps[-1] == 1 and all(s % 4 == 0 for s in (*steps[:-1], offset)):
            return Mode.VECTOR
    return Mode.GATHER


def _in_order(dims: tuple[int, ...], steps: tuple[int, ...]) -> bool:
    """Whether elements lie in order over those dimensions along which they aren't repeated."""
    kept = [n for n, s in zip(dims, steps, strict=True) if s]
    return tuple(s for s in steps if s) == strides(kept)


# -- slices ---------------------------------------------------------------------------------------
def _slices(
    operands: Sequence[_Operand],
    out: MLOperandDescriptor,
    dims: tuple[int, ...],
    layouts: Sequence[_Layout],
    limit: int,
) -> Iterator[tuple[int, int, list[_Part]]]:
    """(start, stop, part of each operand) so that no binding exceeds ``limit`` bytes."""
    flat = [o.access.data_type for o, layout in zip(operands, layouts, strict=True)
            if layout.mode is Mode.FLAT]
    size = max(DATA_TYPES[t].size for t in (out.data_type, *flat))
    chunk = limit // size // _ALIGNMENT * _ALIGNMENT
    if not chunk:
        raise Unsupported(f"bindings of {limit} bytes are too small to slice {out}")
    start = 0
    while start < out.size:
        begin = start // _ALIGNMENT * _ALIGNMENT
        stop = min(out.size, begin + chunk)
        while True:
            parts = [
                _part(o, layout, dims, begin, start, stop, out.size, limit)
                for o, layout in zip(operands, layouts, strict=True)
            ]
            if None not in parts:
                break
            stop = _earlier(dims, layouts, start, stop)
        yield start, stop, parts
        start = stop


def _part(
    operand: _Operand,
    layout: _Layout,
    dims: tuple[int, ...],
    begin: int,
    start: int,
    stop: int,
    total: int,
    limit: int,
) -> _Part | None:
    """What elements ``start`` … ``stop`` read of an operand; None when that exceeds a binding."""
    descriptor = operand.access.value.descriptor
    if layout.mode is Mode.FLAT:
        return _Part(begin, None if stop == total else stop)
    if layout.mode is Mode.SCALAR or descriptor.byte_length <= limit:
        return _Part()
    low, high = _span(dims, layout.strides, start, stop)
    low, high = low + layout.offset, high + layout.offset
    base = low // _ALIGNMENT * _ALIGNMENT
    end = round_up(high + 1, 4)
    if (end - base) * DATA_TYPES[descriptor.data_type].size > limit:
        return None
    return _Part(base, min(end, descriptor.size))


def _coordinates(dims: tuple[int, ...], index: int) -> list[int]:
    coordinates = []
    for size in reversed(dims):
        index, c = divmod(index, size)
        coordinates.append(c)
    return coordinates[::-1]


def _span(
    dims: tuple[int, ...], steps: tuple[int, ...], start: int, stop: int
) -> tuple[int, int]:
    """The lowest and highest element that output elements ``start`` … ``stop`` read."""
    first, last = _coordinates(dims, start), _coordinates(dims, stop - 1)
    axis = next((i for i, (a, b) in enumerate(zip(first, last, strict=True)) if a != b), len(dims))
    low = sum(c * s for c, s in zip(first[: axis + 1], steps, strict=False))
    high = sum(c * s for c, s in zip(last[: axis + 1], steps, strict=False))
    # Below the first differing dimension every coordinate may occur.
    return low, high + sum((d - 1) * s for d, s in zip(dims[axis + 1 :], steps[axis + 1 :],
                                                        strict=True))


def _earlier(
    dims: tuple[int, ...], layouts: Sequence[_Layout], start: int, stop: int
) -> int:
    """A smaller end of a slice whose parts are too large: a border of the outermost dimension
    it crosses where an operand is repeated along it, else about half."""
    first, last = _coordinates(dims, start), _coordinates(dims, stop - 1)
    axis = next(i for i, (a, b) in enumerate(zip(first, last, strict=True)) if a != b)
    block = math.prod(dims[axis + 1 :])
    repeated = any(layout.strides and layout.strides[axis] == 0 for layout in layouts)
    if block > 1 and (repeated or last[axis] - first[axis] == 1):
        return (stop - 1) // block * block
    half = (start + (stop - start) // 2) // _ALIGNMENT * _ALIGNMENT
    return half if half > start else start + max(1, (stop - start) // 2)


# -- the family -----------------------------------------------------------------------------------
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
        _, layouts = _layouts(operands, node.output.shape)
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
        dims, layouts = _layouts(operands, out.shape)
        capacity = next(c for c in _capacities(operands) if c == 0 or c >= len(dims))
        strided = [
            o.name for o, layout in zip(operands, layouts, strict=True) if layout.by_strides
        ]
        spec = _spec(
            chain, operands, out.data_type, capacity, profile.features, schedule.load,
            [(steps, access.data_type) for steps, access in node.taps.items()], strided,
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
        if node.taps and any(v.descriptor.byte_length > limit for v in node.writes):
            raise Unsupported("several results that are larger than a binding")
        for start, stop, parts in _slices(operands, out, dims, layouts, limit):
            begin = start // _ALIGNMENT * _ALIGNMENT
            count = stop - begin
            last = stop == out.size
            if _width(out.data_type) == 4:
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
            for stored in (node.output, *node.taps.values()):
                bindings.append(_binding(stored.value, _Part(begin, None if last else stop)))
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

    def catalogue(self, features: frozenset[str]) -> Iterator[KernelSpec]:
        """One module per element-wise operator, data types and capacity."""
        for operator in ALL_OPERATORS.values():
            if isinstance(operator.lowering, Elementwise):
                for node in _samples(operator):
                    chain, operands = _structure(node)
                    floats = any(o.access.data_type == "float32" for o in operands)
                    for capacity in _capacities(operands):
                        for load in ("storage", *["texel"] * floats):
                            yield _spec(chain, operands, node.out_type, capacity, features, load)


def _binding(value: Value, part: _Part) -> Binding:
    size = DATA_TYPES[value.data_type].size
    if part.stop is None or part.stop >= value.descriptor.size:
        return Binding(value, part.base * size)
    # Whole vectors: a slice may end within one.
    length = round_up((part.stop - part.base) * size, VECTOR_BYTES)
    return Binding(value, part.base * size, length)


def _samples(operator: Operator) -> Iterator[KernelNode]:
    """A node of the operator for every combination of data types that it allows."""
    types = [operator.limit(p.name).types for p in operator.operands]
    options = [
        ALL_TYPES if p.argument is DataTypeName else (p.default,) for p in operator.arguments
    ]
    for combination in itertools.product(*types):
        operands = {
            p.name: Value(MLOperandDescriptor(t, ()), name=p.name)
            for p, t in zip(operator.operands, combination, strict=True)
        }
        for values in itertools.product(*options):
            arguments = {p.name: v for p, v in zip(operator.arguments, values, strict=True)}
            try:
                yield KernelNode.of(make_node(operator, operands, arguments))
            except TypeError:
                continue  # the combination is not allowed
