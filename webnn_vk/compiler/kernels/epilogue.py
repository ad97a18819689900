"""Element-wise operators fused behind another kernel (``node.epilogue``).

A family that offers this sets ``fuses = True`` and adds what ``build`` returns to its KernelSpec
and Dispatch. Its template includes ``lib/epilogue.glsl.j2`` after the prelude and stores
``w_epilogue(v, index)`` instead of ``v``: ``v`` has the arithmetic type of ``node.results[0]``, and
``index`` is the element's position in the output's memory. One that stores vectors of 4 applies
``by_vectors`` and stores ``w_epilogue4(v, index)``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import padded

from ..types.access import Access, collapse
from ..types.data_types import DATA_TYPES
from .dispatch import Binding, declared
from .expression import Chain, lowering, needs_int64, reciprocal, used_features
from .loads import as_texels, read_buffer
from .node import KernelNode


@dataclass(frozen=True)
class Layout:
    """Where a broadcast operand's elements lie that belong to another tensor's, in the order of
    that tensor's memory: sizes and strides of the fewest dimensions, and the first element."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, side: Access, out: Access, shape: tuple[int, ...]) -> Layout:
        """The layout of ``side``, broadcast to ``shape``, in ``out``'s memory."""
        if out.shape != shape:
            out = Access.dense(out.value, shape)
        steps = side.broadcast(shape).strides
        order = sorted(range(len(shape)), key=lambda axis: -out.strides[axis])
        dims, (strides,) = collapse(
            tuple(shape[axis] for axis in order), tuple(steps[axis] for axis in order)
        )
        return cls(dims, strides, side.offset)

    @property
    def way(self) -> str:
        """How the elements of 4 neighbours are loaded, the first of which is at a multiple of 4:
        like those, as a vector, as one for all, or each by its own index."""
        *outer, last = self.strides
        if self.strides == (1,) and self.offset == 0:
            return "flat"
        if last == 0 and (not outer or self.dims[-1] % 4 == 0):
            return "splat"
        aligned = last == 1 and not any(n % 4 for n in (self.dims[-1], *outer, self.offset))
        return "vector" if aligned else "gather"


def width_of(way: str) -> int:
    """Elements that a buffer's loads by ``Layout.way`` bring."""
    return 4 if way in ("flat", "vector") else 1


@dataclass(frozen=True)
class Epilogue:
    """The parts that fused operators add to a kernel. With nothing fused, only ``options`` is set.

    ``buffers`` and ``bindings`` (e0, e1 …) are the operands that the fused operators read beside
    the kernel's result, ``layouts`` how they lie in the output's. ``params`` and ``values`` say how
    they are indexed, and hold the operators' numbers. ``options`` go into the KernelSpec's options.
    ``int64``: whether 64-bit integers occur (for ``expression.used_features``).
    """

    buffers: tuple[Buffer, ...]
    bindings: tuple[Binding, ...]
    params: tuple[Param, ...]
    values: dict[str, Any]
    options: tuple[tuple[str, Any], ...]
    int64: bool
    flops: int
    bytes: int
    layouts: tuple[Layout, ...] = ()

    def spec(
        self, kernel: str, buffers: Iterable[Buffer], params: Iterable[Param],
        features: frozenset[str], constants: tuple[Constant, ...] = (),
        options: Iterable[tuple[str, Any]] = (), *, texels: bool = False,
    ) -> KernelSpec:
        """The template of this name with this epilogue, and the kernel's own buffers, parameters
        and options. ``texels``: what is read is read as texels."""
        buffers = (*buffers, *self.buffers)
        if texels:
            buffers = as_texels(buffers)
        return KernelSpec(
            f"{kernel}.comp.j2", buffers, (*params, *self.params), constants,
            (*options, *self.options), used_features(features, buffers, self.int64),
        )


#: Of a kernel whose template has none.
NONE = Epilogue((), (), (), {}, (), False, 0, 0)


def nothing(data_type: str) -> Epilogue:
    """The epilogue of a kernel with nothing fused whose results have this type: of all but the last
    of a node's dispatches."""
    options = (("epilogue", ()), ("epilogue_loads", ()), ("epilogue_type", data_type))
    return Epilogue((), (), (), {}, options, False, 0, 0)


def build(node: KernelNode, texels: int = 0) -> Epilogue:
    """The epilogue of a node with one output. ``texels``: up to how many bytes float32 operands are
    read as texels (``loads.texel_bytes``)."""
    chain = Chain()
    result = node.results[0]
    buffers: list[Buffer] = []
    bindings: list[Binding] = []
    values: dict[str, Any] = {}
    loads: list[tuple[str, str]] = []
    layouts: list[Layout] = []
    names = {access: f"e{i}" for i, access in enumerate(node.side_inputs)}
    # Reshapes may lie between the steps: what one reads belongs to elements of its own shape.
    shapes = {
        access: step.output.shape
        for step in node.epilogue for access in step.operands.values() if isinstance(access, Access)
    }
    for access, name in names.items():
        size = padded(access.value.descriptor.byte_length)
        buffers.append(read_buffer(name, access.data_type, size, texels))
        bindings.append(Binding(access.value))
        layouts.append(Layout.of(access, node.output, shapes[access]))
        index, numbers = index_of(name, layouts[-1])
        values |= numbers
        loads.append((name, index))
    start = chain.start("v", result.data_type) if node.epilogue else "v"
    first = [(start, result)]
    if node.gated:
        half = replace(result, shape=node.epilogue[0].output.shape)
        # A variable of the kernel's (lib/gated.glsl.j2).
        loads.append(("second", "i"))
        first = [(start, half), (chain.start("v_second", result.data_type), half)]
    came_out = chain.follow(
        first, node.epilogue, lambda access: (f"v_{names[access]}", access),
        one_order=True,
    )
    stores: list[tuple[str, str]] = []
    for number, (steps, access) in enumerate(node.extra_outputs.items()):
        buffers.append(Buffer(f"s{number}", access.data_type, "w"))
        bindings.append(Binding(access.value))
        stores.append((f"s{number}", came_out[steps][0]))
    if stores:
        values["stored"] = node.output.size
    # The result itself is in no buffer when something is fused.
    int64 = needs_int64(buffers, chain) or (
        bool(node.epilogue) and DATA_TYPES[result.data_type].size == 8
    )
    return Epilogue(
        tuple(buffers),
        tuple(bindings),
        (*declared(values), *chain.params),
        values | chain.values,
        (
            ("epilogue", chain.statements),
            ("epilogue_loads", tuple(loads)),
            ("epilogue_type", result.data_type),
            *((("epilogue_stores", tuple(stores)),) if stores else ()),
            *((("gated", True),) if node.gated else ()),
            *((("int64", True),) if int64 else ()),
        ),
        int64,
        chain.flops,
        sum(b.value.descriptor.byte_length for b in bindings),
        tuple(layouts),
    )


def merged(node: KernelNode, extra: Epilogue, other: Binding) -> Epilogue:
    """``extra``, which ``build`` made for the node, in the one form that stands for nothing, an
    addition of a tensor that lies as the result does, limits, and both: whether it adds and the
    limits are parameters. As it is where it is something else. One kernel is compiled where there
    would be six, each of which takes software Vulkan a third of a second.

    ``other``: what is bound in the place of an absent addend, and not looked at but in one element.
    """
    steps = [lowering(step.operator) for step in node.epilogue]
    adds = bool(steps) and steps[0].adds
    limits = steps[adds:]
    types = {node.results[0].data_type, node.out_type, *(b.data_type for b in extra.buffers)}
    loads = dict(extra.options)["epilogue_loads"]
    if (
        types != {"float32"}
        or len(limits) > 1
        or not all(step.limits for step in limits)
        or loads != ((("e0", "i"),) if adds else ())
        or node.extra_outputs
    ):
        return extra
    low, high = -math.inf, math.inf
    for step in limits:
        low, high = step.limits(node.epilogue[-1].arguments)
    statements = (
        ("float32", "v"),
        ("float32", "mix(t0, w_add(t0, v_e0), P.adds != 0u)"),
        ("float32", "w_clamp(t1, P.low, P.high)"),
    )
    return replace(
        extra,
        buffers=(Buffer("e0", "float32"),),
        bindings=extra.bindings if adds else (other,),
        params=(Param("adds"), Param("low", "float"), Param("high", "float")),
        values={"adds": int(adds), "low": low, "high": high},
        options=(
            ("epilogue", statements),
            ("epilogue_loads", (("e0", "P.adds != 0u ? i : 0u"),)),
            ("epilogue_type", "float32"),
        ),
        layouts=(Layout((node.output.size,), (1,), 0),),
    )


def by_vectors(extra: Epilogue, stores: bool = True) -> Epilogue:
    """The epilogue of a kernel that ``stores`` vectors: ``w_epilogue4`` takes 4 neighbours at once,
    and loads vectors of what lies as they do."""
    if not stores:
        return extra
    ways = tuple(
        layout.way if DATA_TYPES[buffer.data_type].size <= 4 else "gather"
        for layout, buffer in zip(extra.layouts, extra.buffers, strict=False)
    )
    read = (
        replace(buffer, width=max(width_of(way), buffer.width))
        for way, buffer in zip(ways, extra.buffers, strict=False)
    )
    return replace(
        extra, buffers=(*read, *extra.buffers[len(ways):]),
        options=(*extra.options, ("epilogue_ways", ways)),
    )


def index_of(name: str, layout: Layout) -> tuple[str, dict[str, int]]:
    """GLSL for the element of a broadcast operand that belongs to element ``i`` of the output's
    memory, and the numbers in it: a sum of i / block mod size * stride over the dimensions that are
    not repeated."""
    dims, strides = layout.dims, layout.strides
    numbers: dict[str, int] = {}
    terms = []

    def number(value: int) -> str:
        numbers[f"{name}n{len(numbers)}"] = value
        return f"P.{name}n{len(numbers) - 1}"

    if layout.offset:
        terms.append(number(layout.offset))
    for axis, (size, stride) in enumerate(zip(dims, strides, strict=True)):
        if stride == 0:
            continue
        term = "i"
        if axis < len(dims) - 1:
            block = math.prod(dims[axis + 1 :])
            term = f"divide({term}, {number(block)}, {number(reciprocal(block))}).x"
        if axis > 0:
            term = f"divide({term}, {number(size)}, {number(reciprocal(size))}).y"
        terms.append(term if stride == 1 else f"{term} * {number(stride % 2**32)}")
    return " + ".join(terms) or "0u", numbers
