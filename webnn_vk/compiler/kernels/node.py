"""The representation between graph and dispatch: an operator with its operands' accesses.

A ``KernelNode`` is one kernel's work: the operator whose family computes it, the accesses through
which that kernel reads and writes, and the element-wise steps applied to its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from webnn_vk.support.cached_property import cached_property
from webnn_vk.support.dataclass import dataclass

from ..ir import Node, Value
from ..ops import Operator
from ..ops.arguments import Operands
from ..types.access import Access
from ..types.data_types import MLOperandDescriptor


@dataclass(frozen=True)
class Step:
    """An element-wise operator applied to a kernel's result where it is stored. ``operands`` maps
    the operator's operands to accesses, to None for the result so far, or to the number of steps
    after which a result had come out that is meant (0: the kernel's own). The result's shape may be
    another one in each step."""

    operator: Operator
    operands: Mapping[str, Access | int | None]
    arguments: Mapping[str, Any]
    output: MLOperandDescriptor
    label: str = ""


@dataclass(frozen=True, eq=False)
class KernelNode:
    """One kernel's work. ``operands`` are the accesses of the operands given, each of the shape
    that the operator expects; a sequence operand ``inputs`` has entries ``inputs[0]``,
    ``inputs[1]`` …. ``results`` describe what the operator itself computes, ``outputs`` where the
    values are stored after the last step of the epilogue. ``sources`` are the graph's nodes that
    the kernel computes.
    """

    operator: Operator
    operands: Mapping[str, Access]
    arguments: Mapping[str, Any]
    results: tuple[MLOperandDescriptor, ...]
    outputs: tuple[Access, ...]
    sources: tuple[Node, ...]
    epilogue: tuple[Step, ...] = ()
    label: str = ""
    #: Numbers of a movement's copies (`copy.moves`) whose elements lie where they belong already.
    in_place: frozenset[int] = frozenset()
    #: Where results before the last step are stored too, by the number of steps before them.
    extra_outputs: Mapping[int, Access] = field(default_factory=dict)
    #: Another kernel's work that computes an operand where it is loaded: element-wise steps, or the
    #: normalisation of a product's row.
    prologue: KernelNode | None = None
    #: Whether the first two results in the epilogue are the halves of the kernel's own, a row.
    gated: bool = False

    @classmethod
    def of(cls, node: Node) -> KernelNode:
        """The kernel node of one node of a graph: whole tensors, row by row, nothing fused."""
        return cls(
            node.operator,
            {name: Access.dense(value) for name, value in node.operands.items()},
            node.arguments,
            tuple(value.descriptor for value in node.outputs),
            tuple(Access.dense(value) for value in node.outputs),
            (node,),
            label=node.label,
        )

    @property
    def lowering(self) -> Any:
        return self.operator.lowering

    @property
    def output(self) -> Access:
        (output,) = self.outputs
        return output

    @property
    def out_type(self) -> str:
        """The data type that is stored."""
        return self.outputs[0].value.data_type

    def operand(self, name: str) -> Access | None:
        return self.operands.get(name)

    def sequence(self, name: str) -> tuple[Access, ...]:
        """The accesses of a sequence operand."""
        return tuple(a for key, a in self.operands.items() if key.startswith(name + "["))

    @cached_property
    def side_inputs(self) -> tuple[Access, ...]:
        """The distinct accesses that the epilogue reads, in order."""
        return tuple(
            dict.fromkeys(
                access
                for step in self.epilogue
                for access in step.operands.values()
                if isinstance(access, Access)
            )
        )

    @property
    def reads(self) -> tuple[Value, ...]:
        """The values read, each once."""
        values = [access.value for access in (*self.operands.values(), *self.side_inputs)]
        if self.prologue is not None:
            values = [*self.prologue.reads, *(v for v in values if not self.computes(v))]
        return tuple(dict.fromkeys(values))

    def computes(self, value: Value) -> bool:
        """Whether the prologue computes a value."""
        return self.prologue is not None and value is self.prologue.output.value

    @property
    def writes(self) -> tuple[Value, ...]:
        return tuple(access.value for access in (*self.outputs, *self.extra_outputs.values()))

    def described(self, steps: int) -> MLOperandDescriptor:
        """The result after this many steps."""
        return self.epilogue[steps - 1].output if steps else self.results[0]

    @property
    def titles(self) -> tuple[str, ...]:
        """``("matmul [q]", "add", "gelu")``: for reports and messages."""
        parts = [(self.operator, self.label)] + [(s.operator, s.label) for s in self.epilogue]
        before = () if self.prologue is None else self.prologue.titles
        return before + tuple(operator.title(label) for operator, label in parts)

    @property
    def title(self) -> str:
        return " + ".join(self.titles)

    def evaluate(self, lookup: Callable[[Value], np.ndarray]) -> list[np.ndarray]:
        """The kernel's results, epilogue included, by the NumPy reference. ``lookup``
        gives the array of each value read. Returns an array for each value of ``writes``, in which
        only the elements that the output's access names are set."""

        def read(access: Access) -> np.ndarray:
            if self.prologue is not None and self.computes(access.value):
                return view(self.prologue.evaluate(lookup)[0], access)
            return view(lookup(access.value), access)

        operands: dict[str, Any] = {}
        for p in self.operator.operands:
            if p.argument is Operands:
                operands[p.name] = [read(access) for access in self.sequence(p.name)]
            else:
                access = self.operands.get(p.name)
                operands[p.name] = None if access is None else read(access)
        arrays = self.operator.evaluate(self.results, operands, self.arguments)
        came_out = np.split(arrays[0], 2, axis=-1) if self.gated else [arrays[0]]
        for step in self.epilogue:
            operands = {p.name: None for p in step.operator.operands} | {
                name: read(access) if isinstance(access, Access)
                else came_out[-1 if access is None else access].reshape(step.output.shape)
                for name, access in step.operands.items()
            }
            arrays = step.operator.evaluate((step.output,), operands, step.arguments)
            came_out.append(arrays[0])
        stored = []
        arrays = [*arrays, *(came_out[steps] for steps in self.extra_outputs)]
        accesses = (*self.outputs, *self.extra_outputs.values())
        for access, array in zip(accesses, arrays, strict=True):
            memory = np.zeros(access.value.shape, array.dtype)
            view(memory, access, writable=True)[...] = array.reshape(access.shape)
            stored.append(memory)
        return stored


def view(array: np.ndarray, access: Access, writable: bool = False) -> np.ndarray:
    """The elements of a contiguous array that an access names."""
    low, high = access.span
    if low < 0 or high > array.size:
        raise IndexError(f"{access} leaves an array of {array.size} elements")
    flat = array.reshape(-1)
    return np.lib.stride_tricks.as_strided(
        flat[access.offset :],
        access.shape,
        tuple(s * array.itemsize for s in access.strides),
        writeable=writable,
    )


@dataclass(frozen=True)
class Part:
    """Where a value lies that has no memory of its own: from byte ``offset`` of ``whole`` on."""

    whole: Value
    offset: int


@dataclass(frozen=True, eq=False)
class KernelGraph:
    """A graph whose nodes are kernels' work, or nodes as they were: views, and what the CPU
    computes. In topological order. ``parts``: the values that lie in the memory of others."""

    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value]
    nodes: tuple[KernelNode | Node, ...]
    #: Nodes that must be kernels by themselves: neither fused nor absorbed.
    unfused: frozenset[Node] = field(default=frozenset())
    parts: Mapping[Value, Part] = field(default_factory=dict)

    @cached_property
    def producers(self) -> dict[Value, KernelNode | Node]:
        return {value: node for node in self.nodes for value in writes(node)}

    @cached_property
    def readers(self) -> dict[Value, list[KernelNode | Node]]:
        """The nodes that read each value (graph outputs are not counted)."""
        readers: dict[Value, list[KernelNode | Node]] = {}
        for node in self.nodes:
            for value in reads(node):
                readers.setdefault(value, []).append(node)
        return readers

    @cached_property
    def output_values(self) -> frozenset[Value]:
        return frozenset(self.outputs.values())

    def verify(self) -> None:
        """Raise ValueError where a value is read before it is computed, computed twice, or an
        access leaves its value's memory."""
        known = set(self.inputs.values())
        for node in self.nodes:
            for value in reads(node):
                if not value.is_constant and value not in known:
                    raise ValueError(f"{node.title} reads a value before it is computed")
            if isinstance(node, KernelNode):
                self._verify_accesses(node)
            for value in writes(node):
                if value in known or value.is_constant:
                    raise ValueError(f"{node.title} computes a value twice")
                known.add(value)
        for name, value in self.outputs.items():
            if not value.is_constant and value not in known:
                raise ValueError(f"output {name!r} is never computed")
            if value in self.parts:
                raise ValueError(f"output {name!r} lies in another value")
        self._verify_parts(known)

    def _verify_parts(self, known: set[Value]) -> None:
        for value, part in self.parts.items():
            end = part.offset + value.descriptor.byte_length
            if part.offset < 0 or end > part.whole.descriptor.byte_length:
                raise ValueError(f"{value.descriptor} leaves {part.whole.descriptor}: {end} bytes")
            if value not in known or part.whole not in known:
                raise ValueError(f"{value.descriptor} lies in what is never computed")
        for node in self.nodes:
            if isinstance(node, Node) and node.on_cpu and not self.parts.keys().isdisjoint(
                reads(node)
            ):
                raise ValueError(f"{node.title} on the CPU reads a part of another value")

    @staticmethod
    def _verify_accesses(node: KernelNode) -> None:
        for access in (
            *node.operands.values(), *node.side_inputs, *node.outputs, *node.extra_outputs.values()
        ):
            low, high = access.span
            if low < 0 or high > access.value.descriptor.size:
                raise ValueError(f"{node.title}: {access} leaves {access.value.descriptor}")
        described = (node.epilogue[-1].output,) if node.epilogue else node.results
        described += tuple(map(node.described, node.extra_outputs))
        stored = (*node.outputs, *node.extra_outputs.values())
        for access, result in zip(stored, described, strict=True):
            if access.value.data_type != result.data_type or access.size != result.size:
                raise ValueError(f"{node.title}: stores {result} through {access}")

    def __str__(self) -> str:
        """One line per input, constant, node and output; accesses that aren't dense in full."""
        names: dict[Value, str] = {v: f"%{name}" for name, v in self.inputs.items()}
        lines = [f"input {names[v]}: {v.descriptor}" for v in self.inputs.values()]
        read = dict.fromkeys(v for node in self.nodes for v in reads(node))
        constants = [v for v in (read | dict.fromkeys(self.outputs.values())) if v.is_constant]
        for i, v in enumerate(constants):
            names[v] = f"%c{i}"
            lines.append(f"constant {names[v]}: {v.descriptor}")
        for i, node in enumerate(self.nodes):
            for j, v in enumerate(writes(node)):
                names[v] = f"%{i}" if len(writes(node)) == 1 else f"%{i}.{j}"
            lines.append(_line(node, names))
        lines += [
            f"part {names[v]} = {names[p.whole]} from byte {p.offset} on"
            for v, p in self.parts.items()
        ]
        lines += [f"output {name} = {names[v]}" for name, v in self.outputs.items()]
        return "\n".join(lines)


def reads(node: KernelNode | Node) -> tuple[Value, ...]:
    """The values that a node reads, each once."""
    if isinstance(node, KernelNode):
        return node.reads
    return tuple(dict.fromkeys(node.inputs))


def writes(node: KernelNode | Node) -> tuple[Value, ...]:
    return node.writes if isinstance(node, KernelNode) else node.outputs


def _line(node: KernelNode | Node, names: Mapping[Value, str]) -> str:
    if not isinstance(node, KernelNode):
        operands = [f"{key}={names[v]}" for key, v in node.operands.items()]
        results = ", ".join(f"{names[v]}: {v.descriptor}" for v in node.outputs)
        return f"{results} = {node.title}({', '.join(operands)}) # {node.device or 'view'}"

    def named(access: Access) -> str:
        text = names[access.value]
        if access.is_dense and access.shape == access.value.shape:
            return text
        start = f"+{access.offset}" if access.offset else ""
        return f"{text}{start}{list(access.shape)}:{list(access.strides)}"

    def sides(step: Step) -> list[str]:
        return [
            named(a) if isinstance(a, Access) else f"#{a}"
            for a in step.operands.values() if a is not None
        ]

    before = node.prologue
    names = names if before is None else {**names, before.output.value: "#"}
    operands = [f"{key}={named(a)}" for key, a in node.operands.items()]
    if before is not None:
        computed = _line(before, names).removeprefix(f"#: {before.output.value.descriptor} = ")
        operands[0] = f"{next(iter(node.operands))}=({computed})"
    arguments = [f"{key}={value!r}" for key, value in node.arguments.items()]
    own = node.titles[0 if before is None else len(before.titles):]
    steps = [
        f" |> {title}({', '.join(sides(step))})"
        for title, step in zip(own[1:], node.epilogue, strict=True)
    ]
    steps += [f" stored after {count}: {named(a)}" for count, a in node.extra_outputs.items()]
    results = ", ".join(
        f"{named(a)}: {a.value.descriptor}" for a in node.outputs
    )
    head = own[0]
    return f"{results} = {head}({', '.join(operands + arguments)}){''.join(steps)}"
