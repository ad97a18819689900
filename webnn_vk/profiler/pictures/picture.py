"""A picture as plain data: a graph as boxes and the values that flow between them.

A picture is made of a graph between passes, or of a program, whose boxes are the kernels that run.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from webnn_vk.compiler.ir import Graph, Node, Value
from webnn_vk.compiler.kernels import KernelGraph, KernelNode
from webnn_vk.compiler.program import (
    CopyStep,
    CpuStep,
    DispatchStep,
    Program,
    RepeatStep,
    ReportLine,
)
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize

from ..report import steps_of


@dataclass(frozen=True)
class Box:
    """One box.

    ``kind``: "input", "output", "node" (an operator), "view" (another shape of the same memory,
    without work), "kernel" (with its ``operators`` inside) or "copy". ``device``: "vulkan", "cpu",
    or "" before placement. ``reads`` and ``writes`` are keys into the picture's values. ``about``:
    lines shown on hovering; ``reason``: why it is on its device. ``mark``: "new" if a pass created
    it, "gone" if a pass removes it. ``seconds``: its time in a profile, if there is one.
    """

    kind: str
    title: str
    operators: tuple[str, ...] = ()
    device: str = ""
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    about: tuple[str, ...] = ()
    reason: str = ""
    mark: str = ""
    seconds: float | None = None

    @property
    def label(self) -> str:
        """Its operators in one line."""
        return " + ".join(self.operators) or self.title

    @property
    def names(self) -> tuple[str, ...]:
        """Operators without their labels, for counting and for finding repeated blocks."""
        return tuple(o.partition(" ")[0].partition("[")[0] for o in self.operators or (self.title,))


@dataclass(frozen=True)
class Picture:
    """Boxes in topological order. ``values``: type and shape of each value by key. A value is read
    from the boxes that wrote it before. ``seconds``: the total in a profile, if there is one."""

    title: str
    boxes: tuple[Box, ...]
    values: Mapping[int, str] = field(default_factory=dict)
    seconds: float = 0.0

    def edges(self) -> Iterator[tuple[int, int, int]]:
        """(box, box, value) for each value that one box writes and a later one reads. If several
        boxes write parts of a value, those with a path to another of them are omitted."""
        writers: dict[int, list[int]] = defaultdict(list)
        # For each box, the boxes with a path to it, as bits.
        before: list[int] = []
        for number, box in enumerate(self.boxes):
            sources = 0
            for value in dict.fromkeys(box.reads):
                passed_on = 0
                for writer in writers[value]:
                    passed_on |= before[writer]
                for writer in writers[value]:
                    sources |= before[writer] | 1 << writer
                    if not passed_on >> writer & 1:
                        yield writer, number, value
            before.append(sources)
            for value in box.writes:
                writers[value].append(number)


def of_graph(
    graph: Graph | KernelGraph, title: str, keys: dict[Value, int] | None = None
) -> Picture:
    """The picture of a graph before, between or after passes. ``keys``: numbers of values, to which
    the graph's are added. Pictures with the same ``keys`` can be compared (``compared``)."""
    known = {} if keys is None else keys
    values: dict[int, str] = {}

    def key(value: Value) -> int:
        number = known.setdefault(value, len(known))
        values[number] = str(value.descriptor)
        return number

    boxes = [_port("input", name, writes=(key(v),)) for name, v in graph.inputs.items()]
    for node in graph.nodes:
        is_kernel = isinstance(node, KernelNode)
        boxes.append(_kernel(node, key) if is_kernel else _node(node, key, graph))
    boxes += [
        _port("output", name, reads=() if v.is_constant else (key(v),))
        for name, v in graph.outputs.items()
    ]
    return Picture(title, _readers_near(boxes), values)


def _port(kind: str, name: str, **ends: tuple[int, ...]) -> Box:
    return Box(kind, sanitize(name), about=(kind,), **ends)


def _node(node: Node, key: Callable[[Value], int], graph: Graph | KernelGraph) -> Box:
    # In a graph of kernels, other nodes that are not on the CPU cost nothing.
    is_view = isinstance(graph, KernelGraph) and not node.on_cpu
    about = [*_constants(node.operands.items()), *_arguments(node.arguments)]
    return Box(
        "view" if is_view else "node", sanitize(node.title), (), node.device,
        tuple(key(v) for v in node.inputs if not v.is_constant),
        tuple(map(key, node.outputs)), tuple(map(sanitize, about)), sanitize(node.reason),
    )


def _kernel(node: KernelNode, key: Callable[[Value], int]) -> Box:
    operands = ((name, access.value) for name, access in node.operands.items())
    about = [*_constants(operands), *_arguments(node.arguments)]
    return Box(
        "kernel", "kernel", tuple(map(sanitize, node.titles)), "vulkan",
        tuple(key(v) for v in node.reads if not v.is_constant),
        tuple(map(key, node.writes)), tuple(map(sanitize, about)),
    )


def _constants(operands: Iterable[tuple[str, Value]]) -> Iterator[str]:
    for name, value in operands:
        if value.is_constant:
            yield f"{name}: constant {value.descriptor}"


def _arguments(arguments: Mapping[str, object]) -> Iterator[str]:
    for name, value in arguments.items():
        if value is not None:
            yield f"{name}: {str(value):.60}"


def _readers_near(boxes: Sequence[Box]) -> tuple[Box, ...]:
    """Move inputs before the first box that reads them, so that they are drawn near it."""
    inputs = {box.writes[0]: box for box in boxes if box.kind == "input"}
    ordered: list[Box] = []
    for box in boxes:
        if box.kind != "input":
            ordered += [inputs.pop(value) for value in dict.fromkeys(box.reads) if value in inputs]
            ordered.append(box)
    return (*ordered, *inputs.values())


def compared(before: Picture, after: Picture) -> tuple[Picture, Picture]:
    """Both pictures, with marks on the boxes that only one of them has."""

    def identity(box: Box) -> object:
        return box.kind == "kernel", box.label, box.reads, box.writes, box.about

    known, still = (Counter(map(identity, p.boxes)) for p in (before, after))

    def marked(picture: Picture, other: Counter[object], mark: str) -> Picture:
        left, boxes = other.copy(), []
        for box in picture.boxes:
            left[identity(box)] -= 1
            boxes.append(replace(box, mark=mark) if left[identity(box)] < 0 else box)
        return replace(picture, boxes=tuple(boxes))

    return marked(before, still, "gone"), marked(after, known, "new")


# -- programs -------------------------------------------------------------------------------------
def of_program(
    program: Program, title: str, lines: Sequence[ReportLine] = (),
    seconds: Mapping[int, float] | None = None, total: float = 0.0,
) -> Picture:
    """The picture of a program: a box for each kernel with its operators, for each operator on the
    CPU and for each copy. ``lines``: the lines of its report, which name the CPU's kernels;
    ``seconds`` by number of line, of ``total``."""
    lines = lines or program.report.lines
    kept = [n for n, slot in enumerate(program.slots)
            if slot.kind in ("input", "output", "arena", "host", "array")]
    values = {n: _described(program.slots[n].descriptor, program.slots[n].size) for n in kept}
    boxes = [
        _port("input", slot.name, writes=(n,))
        for n, slot in enumerate(program.slots) if slot.kind == "input"
    ]
    steps = enumerate(step for _, step in steps_of(program))
    taken = seconds or {}
    for _, group in itertools.groupby(steps, lambda one: _origin(*one)):
        numbers, parts = zip(*group, strict=True)
        used = [_uses(step) for step in parts]
        times = [taken[n] for n in numbers if n in taken]
        boxes.append(_step_box(
            lines[numbers[0] : numbers[-1] + 1], parts[0],
            tuple(dict.fromkeys(s for reads, _ in used for s in reads if s in values)),
            tuple(dict.fromkeys(s for _, writes in used for s in writes if s in values)),
            sum(times) if times else None,
        ))
    boxes += [
        _port("output", slot.name, reads=(n,))
        for n, slot in enumerate(program.slots) if slot.kind == "output"
    ]
    return Picture(title, _readers_near(boxes), values, total)


def _origin(number: int, step: DispatchStep | CopyStep | CpuStep | RepeatStep) -> object:
    """The common part of consecutive dispatches of one kernel. Its copies are before them."""
    return step.origin if isinstance(step, DispatchStep) else (number,)


def _uses(step: DispatchStep | CopyStep | CpuStep | RepeatStep) -> tuple[list[int], list[int]]:
    """The slots that a step reads and writes."""
    if isinstance(step, CpuStep):
        return [t.slot for t in step.operands.values()], [t.slot for t in step.results]
    accesses = list(step.accesses())
    return ([place.slot for place, reads, _ in accesses if reads],
            [place.slot for place, _, writes in accesses if writes])


def _step_box(
    lines: Sequence[ReportLine], step: DispatchStep | CopyStep | CpuStep | RepeatStep,
    reads: tuple[int, ...], writes: tuple[int, ...], seconds: float | None,
) -> Box:
    first = lines[0]
    about = [f"{line.kernel} {line.variant}".strip() for line in lines]
    flops, size = sum(line.flops for line in lines), sum(line.bytes for line in lines)
    if flops:
        about.append(f"{flops / 1e6:.3f} MFLOP")
    about.append(f"{size / 1e6:.3f} MB")
    operators: tuple[str, ...] = tuple(map(sanitize, first.operators))
    kind, title = "kernel", first.kernel
    if isinstance(step, CopyStep):
        kind, title, operators = "copy", f"copy {sanitize(first.variant)}", ()
    elif isinstance(step, CpuStep):
        kind, title, operators = "node", " + ".join(operators), ()
    elif len(lines) > 1:
        title = f"{first.kernel}, {len(lines)} dispatches"
    return Box(kind, title, operators, first.device, reads, writes, tuple(map(sanitize, about)),
               sanitize(first.reason), seconds=seconds)


def _described(descriptor: MLOperandDescriptor | None, size: int) -> str:
    return f"{size} bytes" if descriptor is None else str(descriptor)
