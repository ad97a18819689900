"""Writing ONNX nodes: the writer that the rules of the operators use.

    @rule("softsign")
    def softsign(w, input):
        return w.op("Softsign", input)

A rule gets the writer, the node's operands by name (None if absent, a list for a sequence) and its
arguments, and returns the result's tensor, or a list of tensors. It may omit arguments of the
operator that the result's descriptor (``w.result``) implies.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import reduce
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize
from webnn_vk.support.topological import needed_nodes

from ...types.broadcasting import broadcast_shapes
from ...types.data_types import DATA_TYPES, MLOperandDescriptor
from ...types.sizes import Size, alike, symbolic
from ..emit import Emitter
from ..graph import Graph, Node, Value
from .sizes import Inexpressible, Sizes

#: ONNX's data type for ours, by its number in ``TensorProto`` (a stable part of the format).
ELEMENT_TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "float64": 11, "uint32": 12, "uint64": 13,
}


@dataclass(frozen=True)
class Tensor:
    """A tensor of the ONNX graph. ``array`` holds the elements of a constant if they are known."""

    name: str
    data_type: str
    shape: tuple[int, ...]
    array: np.ndarray | None = field(default=None, compare=False)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.data_type in ("float32", "float16", "float64")


@dataclass(frozen=True)
class Problem:
    """An operator that ONNX can't express, and the reason; ``title`` is the name of its nodes."""

    operator: str
    reason: str
    title: str = ""


@dataclass
class Fragment:
    """A graph as ONNX: ``nodes`` in order, ``constants`` (initializers) by name, ``inputs`` and
    ``outputs`` by name. ``problems`` replace nodes that can't be expressed."""

    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: dict[str, MLOperandDescriptor] = field(default_factory=dict)
    outputs: dict[str, MLOperandDescriptor] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    #: The bounds of named dimensions, and what sizes have to fulfil besides, as text.
    dimensions: dict[str, tuple[int, int]] = field(default_factory=dict)
    conditions: list[str] = field(default_factory=list)


Rule = Callable[..., Any]
Result = TypeVar("Result")
#: The rules by the operator's name.
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Decorator that makes a function the rule of operators."""

    def register(function: Rule) -> Rule:
        for name in names:
            assert name not in RULES, f"two rules for {name}"
            RULES[name] = function
        return function

    return register


def write(
    graph: Graph,
    elements: Callable[[Value], np.ndarray | None],
    titles: Mapping[Node, str] | None = None,
    careful: bool = False,
) -> Fragment:
    """The graph in ONNX, with its inputs and outputs by name. ``elements`` returns the elements of
    a constant. ``titles`` names nodes; the names of all ONNX nodes of a node begin with its title.
    ``careful``: use other operators where ONNX Runtime's are less accurate than WebNN's
    tests require."""
    writer = Writer(elements, careful)
    taken = set(graph.inputs)
    for name in graph.outputs:
        if name in taken:
            writer.fragment.problems.append(Problem(
                f"output {sanitize(name)!r}", "an input has this name; ONNX's names are unique"
            ))
    writer.reserve([*graph.inputs, *graph.outputs])
    for name, value in graph.inputs.items():
        writer.fragment.inputs[name] = value.descriptor
        writer.tensors[value] = Tensor(name, value.data_type, value.shape)
    writer.sizes = Sizes.of(writer, graph)
    for node in graph.nodes:
        writer.write(node, (titles or {}).get(node, node.title))
    if writer.sizes is not None:
        writer.sizes.finish()
    if not writer.fragment.problems:
        writer.finish(graph)
    return writer.fragment


def _broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    shape = reduce(lambda a, b: broadcast_shapes(a, b) or (), shapes)
    return tuple(shape)


def _with_bodies(nodes: Iterable[Any]) -> Iterator[Any]:
    """ONNX nodes, and the nodes of their bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _with_bodies(attribute.g.node)


class Writer:
    """Collects ONNX nodes. ``node`` is the node being written, ``result`` its first output's
    descriptor. ``careful``: see ``write``."""

    def __init__(
        self, elements: Callable[[Value], np.ndarray | None], careful: bool = False
    ) -> None:
        self.fragment = Fragment()
        self.careful = careful
        self.tensors: dict[Value, Tensor] = {}
        self._elements = elements
        self._names: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._small: dict[tuple[str, tuple[int, ...], bytes], Tensor] = {}
        # The bool tensors from which uint8 tensors of zeros and ones were cast.
        self._bools: dict[str, Tensor] = {}
        self.node: Node | None = None
        self._title = ""
        #: Sizes that are known when the model runs, if there are any.
        self.sizes: Sizes | None = None

    def reserve(self, names: Sequence[str]) -> None:
        """Reserve names, so that no other tensor or node gets them."""
        self._names.update(names)

    # -- nodes of the graph --------------------------------------------------------------------
    def write(self, node: Node, title: str) -> None:
        """Write the ONNX nodes of one node, or record the problem."""
        start = len(self.fragment.nodes)
        self._title = title
        try:
            results = self.call(node) if self.sizes is None else self.sizes.unfixed(
                lambda: self.call(node)
            )
        except Inexpressible as problem:
            del self.fragment.nodes[start:]
            self.fragment.problems.append(Problem(node.title, str(problem), title))
            results = [self._fresh(d.data_type, d.shape) for d in node.results]
        self.tensors.update(zip(node.outputs, results, strict=True))

    def call(self, node: Node) -> list[Tensor]:
        """The results of a node, by its operator's rule or its decomposition."""
        function = RULES.get(node.operator.name)
        if function is None:
            return self.decomposed(node)
        outer, self.node = self.node, node
        try:
            given = node.gather(self.tensor)
            taken = inspect.signature(function).parameters
            given |= {k: v for k, v in node.arguments.items() if k in taken}
            made = function(self, **given)
        finally:
            self.node = outer
        made = list(made) if isinstance(made, (list, tuple)) else [made]
        # The node decides shapes and types, not the rule's last ONNX node.
        return [
            Tensor(t.name, d.data_type, d.shape, t.array)
            for t, d in zip(made, node.results, strict=True)
        ]

    def decomposed(self, node: Node | None = None) -> list[Tensor]:
        """The results of a node (by default the one being written), by other operators."""
        node = node or self.node
        assert node is not None
        decompose = getattr(node.operator.lowering, "decompose", None)
        if decompose is None:
            raise Inexpressible(f"there is no rule for {node.operator.name}")
        emit = Emitter(node.label)
        values = decompose(emit, node.gather(lambda v: v), node.arguments, node.results)
        for inner in emit.nodes:
            self.tensors.update(zip(inner.outputs, self.call(inner), strict=True))
        values = values if isinstance(values, (list, tuple)) else [values]
        return [self.tensor(v) for v in values]

    def tensor(self, value: Value) -> Tensor:
        """The tensor of a value."""
        if value not in self.tensors:
            elements = self._elements(value)
            if elements is None:
                raise Inexpressible("a constant's elements are not available")
            self.tensors[value] = self.constant(elements)
        return self.tensors[value]

    def named(self, value: Value) -> Tensor:
        """A tensor for a value that no node of the graph makes: an input of a body."""
        made = self.tensors[value] = self._fresh(value.data_type, value.shape)
        return made

    def apart(self, function: Callable[[], Result]) -> tuple[Result, list[Any]]:
        """The function's result, and the ONNX nodes that it writes, for a body; they are not among
        the graph's."""
        outer, self.fragment.nodes = self.fragment.nodes, []
        try:
            return function(), self.fragment.nodes
        finally:
            self.fragment.nodes = outer

    @property
    def result(self) -> MLOperandDescriptor:
        assert self.node is not None
        return self.node.results[0]

    # -- ONNX nodes ----------------------------------------------------------------------------
    def ops(
        self, kind: str, *inputs: Tensor | None,
        results: Sequence[tuple[str, Sequence[int]] | None], **attributes: Any
    ) -> list[Tensor]:
        """An ONNX node with several outputs of these (type, shape); None: an unused output."""
        from onnx import helper

        outputs = [r and self._fresh(r[0], tuple(r[1])) for r in results]
        attributes = symbolic(attributes, int)
        names = [i.name if i is not None else "" for i in inputs]
        while names and not names[-1]:
            names.pop()
        self.fragment.nodes.append(helper.make_node(
            kind, names, [o.name if o else "" for o in outputs],
            self._unique(f"{self._title}:{kind}"), **attributes,
        ))
        return [o for o in outputs if o]

    def op(
        self, kind: str, *inputs: Tensor | None, shape: Sequence[int] | None = None,
        data_type: str = "", **attributes: Any
    ) -> Tensor:
        """An ONNX node with one output, of the first input's type and of ``shape`` (by default the
        shape that the inputs broadcast to)."""
        present = [i for i in inputs if i is not None]
        if shape is None:
            shape = _broadcast(*(i.shape for i in present))
        described = (data_type or present[0].data_type, shape)
        return self.ops(kind, *inputs, results=[described], **attributes)[0]

    def constant(self, array: Any, data_type: str = "") -> Tensor:
        """A constant; equal small constants are shared."""
        array = np.asarray(array, DATA_TYPES[data_type].numpy if data_type else None)
        key = (array.dtype.name, array.shape, array.tobytes() if array.nbytes <= 256 else b"")
        if key[2] and key in self._small:
            return self._small[key]
        made = self._fresh(array.dtype.name, array.shape, array)
        self.fragment.constants[made.name] = array
        if key[2]:
            self._small[key] = made
        return made

    def integers(self, numbers: Sequence[int]) -> Tensor:
        """A list of int64, for shapes and axes."""
        if self.sizes is not None and any(isinstance(n, Size) for n in numbers):
            return self.sizes.tensor(numbers)
        return self.constant(np.array(list(numbers), np.int64))

    def scalar(self, value: Any, like: Tensor | str) -> Tensor:
        """A constant of no dimensions, of a tensor's data type."""
        data_type = like if isinstance(like, str) else like.data_type
        return self.constant(np.array(value, np.dtype(data_type)))

    # -- what many rules need ------------------------------------------------------------------
    def cast(self, x: Tensor, data_type: str) -> Tensor:
        """x in another data type, by ONNX's Cast."""
        if x.data_type == data_type:
            return x
        if x.array is not None and data_type != "bool" and x.array.nbytes <= 4096:
            with np.errstate(all="ignore"):
                return self.constant(x.array.astype(data_type))
        return self.op("Cast", x, data_type=data_type, to=ELEMENT_TYPES[data_type])

    def bool_of(self, x: Tensor) -> Tensor:
        """A bool tensor: whether each element of a uint8 tensor is not 0."""
        known = self._bools.get(x.name)
        return known if known is not None else self.cast(x, "bool")

    def uint8_of(self, x: Tensor) -> Tensor:
        """A bool tensor as uint8."""
        made = self.cast(x, "uint8")
        self._bools[made.name] = x
        return made

    def select(self, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """a where the bool condition holds, else b."""
        if self.careful and a.data_type == "uint64":  # ONNX Runtime 1.32 has no kernel
            chosen = self.select(condition, self.signed(a), self.signed(b))
            return self.cast(chosen, "uint64")
        shape = _broadcast(condition.shape, a.shape, b.shape)
        return self.op("Where", condition, a, b, data_type=a.data_type, shape=shape)

    def compare(self, kind: str, a: Tensor, b: Tensor) -> Tensor:
        """A bool tensor, of Equal, Less, Greater …."""
        return self.op(kind, a, b, data_type="bool")

    def between(self, x: Tensor, low: Any, high: Any) -> Tensor:
        """x limited to ``low`` … ``high`` (numbers, arrays, tensors, or None for no limit). Not by
        Clip, Min or Max, in which ONNX Runtime 1.31 compares only the lower halves of some int64.
        """
        for kind, bound in (("Less", low), ("Greater", high)):
            if bound is None:
                continue
            limit = self.cast(bound, x.data_type) if isinstance(bound, Tensor) else (
                self.constant(np.asarray(bound, x.data_type))
            )
            x = self.select(self.compare(kind, x, limit), limit, x)
        return x

    def reshape(self, input: Tensor, new_shape: Sequence[int]) -> Tensor:
        if alike(new_shape, input.shape):
            return input
        if input.array is not None:
            return self.constant(input.array.reshape(new_shape))
        return self.op("Reshape", input, self.integers(new_shape), shape=new_shape)

    def signed(self, x: Tensor) -> Tensor:
        """Unsigned integers of 32 and 64 bits as int64 with the same low bits: for sums, which few
        runtimes support for unsigned integers."""
        return self.cast(x, "int64") if x.data_type in ("uint32", "uint64") else x

    def ordered(self, x: Tensor) -> Tensor:
        """Unsigned integers of 32 and 64 bits as int64 in the same order."""
        if x.data_type != "uint64":
            return self.signed(x)
        return self.op("Add", self.cast(x, "int64"), self.scalar(-(2**63), "int64"))

    def unordered(self, x: Tensor, data_type: str) -> Tensor:
        """The inverse of ``ordered``."""
        if data_type == "uint64":
            x = self.op("Add", x, self.scalar(-(2**63), "int64"))
        return self.cast(x, data_type)

    def transpose(self, input: Tensor, permutation: Sequence[int]) -> Tensor:
        if list(permutation) == list(range(input.rank)):
            return input
        if input.array is not None:
            return self.constant(np.ascontiguousarray(input.array.transpose(permutation)))
        shape = [input.shape[axis] for axis in permutation]
        return self.op("Transpose", input, shape=shape, perm=list(permutation))

    def rearrange(self, x: Tensor, layout: str, target: str) -> Tensor:
        """x with its dimensions, named by the letters of ``layout``, in the order of ``target``."""
        return self.transpose(x, [layout.index(letter) for letter in target])

    def expand(self, input: Tensor, new_shape: Sequence[int]) -> Tensor:
        if alike(new_shape, input.shape):
            return input
        return self.op("Expand", input, self.integers(new_shape), shape=new_shape)

    def concat(self, inputs: Sequence[Tensor], axis: int) -> Tensor:
        if len(inputs) == 1:
            return inputs[0]
        if all(p.array is not None for p in inputs):
            return self.constant(np.concatenate([p.array for p in inputs], axis))  # type: ignore[misc]
        shape = list(inputs[0].shape)
        shape[axis] = sum(p.shape[axis] for p in inputs)
        return self.op("Concat", *inputs, shape=shape, axis=axis)

    def split(self, input: Tensor, splits: Sequence[int], axis: int) -> list[Tensor]:
        if len(splits) == 1:
            return [input]
        if input.array is not None:
            parts = np.split(input.array, np.cumsum(splits)[:-1], axis)
            return [self.constant(np.ascontiguousarray(p)) for p in parts]
        results = [
            (input.data_type, (*input.shape[:axis], size, *input.shape[axis + 1 :]))
            for size in splits
        ]
        return self.ops("Split", input, self.integers(splits), results=results, axis=axis)

    def slice(
        self, x: Tensor, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int],
        axes: Sequence[int] | None = None,
    ) -> Tensor:
        """ONNX's Slice along ``axes``, by default all; ``ends`` are of the sliced elements."""
        axes = range(x.rank) if axes is None else axes
        if not axes:
            return x
        shape = list(x.shape)
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            shape[axis] = -((start - end) // step) if step > 0 else x.shape[axis]
        lists = map(self.integers, (starts, ends, list(axes), steps))
        return self.op("Slice", x, *lists, shape=shape)

    def pad(
        self, x: Tensor, begin: Sequence[int], end: Sequence[int], value: Any = 0,
        mode: str = "constant",
    ) -> Tensor:
        """ONNX's Pad in all dimensions."""
        if not any(begin) and not any(end):
            return x
        shape = [b + d + e for b, d, e in zip(begin, x.shape, end, strict=True)]
        fill = self.scalar(value, x) if mode == "constant" else None
        return self.op("Pad", x, self.integers([*begin, *end]), fill, shape=shape, mode=mode)

    def nchw(self, layout: str, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """``function`` applied to x with channels second; the result is in x's layout."""
        y = function(self.rearrange(x, layout, "nchw"))
        return self.rearrange(y, "nchw", layout)

    # -- the end -------------------------------------------------------------------------------
    def finish(self, graph: Graph) -> None:
        """Name the outputs, and remove nodes and constants that no output needs."""
        made = {name for node in self.fragment.nodes for name in node.output}
        renamed: dict[str, str] = {}
        self._title = "output"
        for name, value in graph.outputs.items():
            tensor = self.tensor(value)
            self.fragment.outputs[name] = value.descriptor
            if tensor.name in made and tensor.name not in renamed:
                renamed[tensor.name] = name
            else:
                copied = self.op("Identity", tensor)
                renamed[copied.name] = name
        for node in _with_bodies(self.fragment.nodes):
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    if name in renamed:
                        names[i] = renamed[name]
        kept, needed = needed_nodes(
            self.fragment.nodes, graph.outputs,
            lambda node: [name for n in _with_bodies([node]) for name in n.input if name],
            attrgetter("output"),
        )
        self.fragment.nodes = [*kept]
        constants = self.fragment.constants
        self.fragment.constants = {k: a for k, a in constants.items() if k in needed}

    # -- names ---------------------------------------------------------------------------------
    def _fresh(
        self, data_type: str, shape: Sequence[int], array: np.ndarray | None = None
    ) -> Tensor:
        name = self._unique("c" if array is not None else "t")
        sizes = tuple(d if isinstance(d, Size) else int(d) for d in shape)
        return Tensor(name, data_type, sizes, array)

    def _unique(self, stem: str) -> str:
        while True:
            number = self._numbers[stem] = self._numbers.get(stem, -1) + 1
            name = f"{stem}{number}" if len(stem) == 1 else (f"{stem}:{number}" if number else stem)
            if name not in self._names:
                self._names.add(name)
                return name
