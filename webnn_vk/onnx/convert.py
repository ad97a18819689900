"""Walking a model's nodes: each becomes calls of the builder, or a value known at import."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, TensorProto

from webnn_vk.api.builder import MLGraphBuilder, MLOperand, experimental_of
from webnn_vk.compiler.types.sizes import Size
from webnn_vk.support.errors import sanitize

from . import folding, functions, records, shape_arithmetic
from .context import NodeContext
from .errors import InvalidModelError, NeedsValue, Problem, Unsupported, UseFunctionBody
from .nodes import NodeCall, decode_node, sparse_array
from .reading import Model, domain_name, entries_of, live_nodes, port_type
from .scope import Scope
from .types import STORAGE_ONLY, carrier, to_carrier
from .values import Maps, Missing, Tensor, TensorList, Text, Value
from .weights import to_array, to_words

#: Nodes and initializers that expanding functions and unrolling loops may add to the file's.
MAX_NODES = 60_000
MAX_CALL_DEPTH = 40
#: Operators that move text as they move numbers.
_MOVES = {"ArrayFeatureExtractor", "Reshape", "Squeeze", "Unsqueeze", "Flatten"}
#: Calls of the builder beyond a few for each node of the file: operators that become loops (depths
#: of a filter, steps of a network) count.
MAX_CALLS = 200_000
_CALLS_OF_A_NODE = 8
#: Sizes that are known at dispatch in a tensor that is used as data.
_MAX_SIZES = 64

#: Makes the constant operand of an array in its WebNN data type.
MakeConstant = Callable[[MLGraphBuilder, np.ndarray], MLOperand]


class Conversion:
    """One import of a model onto a builder. ``problems`` gathers what can't be taken."""

    def __init__(
        self,
        model: Model,
        builder: MLGraphBuilder,
        make_constant: MakeConstant,
        narrow_double: bool = False,
        donated: frozenset[str] = frozenset(),
    ) -> None:
        self.model = model
        #: Inputs that outputs take over.
        self.donated = donated
        self.builder = builder
        self.narrow_double = narrow_double
        self.low_precision = "low-precision" in experimental_of(builder)
        self.problems: list[Problem] = []
        self._make_constant = make_constant
        self._scalars: dict[tuple[str, Any], MLOperand] = {}
        self._sources: frozenset[str] = frozenset()
        # How many more are allowed.
        own = entries_of(model)
        self._nodes = MAX_NODES + own
        self._calls = MAX_CALLS + _CALLS_OF_A_NODE * own
        self._depth = 0

    # -- values ----------------------------------------------------------------------------------
    def tensor(self, array: np.ndarray) -> Tensor:
        """A known tensor."""
        return Tensor(array.dtype.name, array.shape, array=array, make=self._constant)

    def computed(self, operand: MLOperand, type: str) -> Tensor:
        """A tensor that the graph computes from the current node's inputs."""
        return Tensor(type, operand.shape, made=operand, sources=self._sources)

    def carrier(self, name: str) -> str:
        """The WebNN data type for an ONNX one; Unsupported when there is none."""
        return carrier(name, self.narrow_double, self.low_precision)

    def count_call(self) -> None:
        """Before every call of the builder."""
        self._calls -= 1
        if self._calls < 0:
            own = entries_of(self.model)
            raise InvalidModelError(
                f"the model becomes more than {MAX_CALLS + _CALLS_OF_A_NODE * own} operators"
            )

    def scalar(self, data_type: str, number: Any) -> MLOperand:
        """A scalar constant, made once."""
        key = (data_type, repr(number))
        if key not in self._scalars:
            with np.errstate(all="ignore"):
                array = np.asarray(number).astype(data_type).reshape(())
            self._scalars[key] = self._make_constant(self.builder, array)
        return self._scalars[key]

    def observe(self, node: NodeCall, inputs: Sequence[Value | None]) -> None:
        """Before each node is converted, nodes of functions included."""

    def _constant(self, tensor: Tensor) -> MLOperand:
        assert tensor.array is not None
        data_type = self.carrier(tensor.type)
        if 0 in tensor.shape:
            raise Unsupported(f"a tensor of shape {list(tensor.shape)} is empty, WebNN has none")
        return self._make_constant(self.builder, to_carrier(tensor.array, data_type))

    def of_sizes(self, type: str, values: Any) -> Tensor:
        """A tensor of numbers and sizes; a known one if there are no sizes."""
        array = np.empty(np.shape(values), object)
        array[...] = values
        if not shape_arithmetic.has_sizes(array):
            return self.tensor(array.astype(type))
        return Tensor(
            type, array.shape, sizes=array, sources=self._sources, make=self._from_tables
        )

    def from_table(self, type: str, start: Any, length: Any) -> MLOperand:
        """``length`` numbers from ``start`` on, either of which may be known only at dispatch."""
        self.count_call()
        count = shape_arithmetic.table_length(start + length)
        if count is None or shape_arithmetic.table_length(start) is None:
            raise Unsupported(f"numbers {start} … {start + length} are too many to be stored")
        table = np.arange(count, dtype=type)
        constant = self._make_constant(self.builder, to_carrier(table, self.carrier(type)))
        return self.builder.slice(constant, [start], [length])

    def _from_tables(self, tensor: Tensor) -> MLOperand:
        """Sizes as data."""
        assert tensor.sizes is not None
        sizes = tensor.sizes.reshape(-1).tolist()
        if len(sizes) > _MAX_SIZES:
            raise Unsupported(f"{len(sizes)} sizes that are known at dispatch are used as data")
        parts = [self._as_data(tensor.type, size) for size in sizes]
        whole = self.builder.concat(parts, 0) if len(parts) > 1 else parts[0]
        return self.builder.reshape(whole, tensor.shape)

    def _as_data(self, type: str, size: Any) -> MLOperand:
        """A size, or what floats make of it, as an operand of one element."""
        if isinstance(size, shape_arithmetic.Scaled):
            number, factor = self._as_data(type, size.size), size.factor
            if factor is None:
                return self.builder.div(number, self.builder.constant(type, size.divisor))
            return self.builder.mul(number, self.builder.constant(type, factor))
        if isinstance(size, Size) and size.trace.interval(size.terms)[1] < 0:
            return self.builder.neg(self.from_table(type, -size, 1))
        return self.from_table(type, size, 1)

    # -- graphs ----------------------------------------------------------------------------------
    def run(
        self, inputs: Mapping[str, Value], outputs: Sequence[str] | None = None
    ) -> dict[str, Value]:
        """The outputs (all, or those named) of the model's graph for values of its inputs."""
        return self.graph(self.model.graph, Scope(self.model.opsets), inputs, outputs)

    def graph(
        self,
        graph: GraphProto,
        scope: Scope,
        inputs: Mapping[str, Value],
        outputs: Sequence[str] | None = None,
    ) -> dict[str, Value]:
        """A graph's outputs by name; ``scope`` is fresh, its parent the graph around."""
        self._spend(len(graph.initializer) + len(graph.sparse_initializer))
        for proto in graph.initializer:
            scope.stored[proto.name] = partial(self._initializer, proto, proto.name, to_array)
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            scope.stored[name] = partial(self._initializer, sparse, name, sparse_array)
        scope.values |= inputs
        names = [v.name for v in graph.output] if outputs is None else outputs
        self.body(graph.node, scope, names)
        self._check_types(graph, scope)
        return {name: scope.find(name) for name in names}

    def _spend(self, entries: int) -> None:
        """Before nodes, also those that no output needs, or initializers are looked at."""
        self._nodes -= entries
        if self._nodes < 0:
            raise InvalidModelError(
                f"more than {MAX_NODES} nodes and initializers are added when functions are "
                "expanded and loops unrolled"
            )

    def _check_types(self, graph: GraphProto, scope: Scope) -> None:
        """Check that results have the types that the graph declares, as ONNX Runtime does."""
        inner = graph.value_info if scope.parent is None else ()
        for declared in (*graph.output, *inner):
            value = scope.values.get(declared.name)
            if isinstance(value, Tensor) and declared.type.WhichOneof("value") == "tensor_type":
                kind = port_type(declared.type.tensor_type.elem_type)
                if kind not in (value.type, "undefined"):
                    maker = next((n for n in graph.node if declared.name in n.output), None)
                    by = "" if maker is None else (
                        f" by {sanitize(maker.op_type)} {sanitize(maker.name)!r}"
                    )
                    raise InvalidModelError(
                        f"{sanitize(declared.name)!r} is declared {kind}, and made{by} as "
                        f"{value.type}{list(value.shape)}"
                    )

    def _initializer(self, proto: Any, name: str, read: Callable[..., np.ndarray]) -> Value:
        arrays = self.model.arrays
        if id(proto) not in arrays:
            try:
                # The message is kept too: while it lives nothing else has its identity.
                if isinstance(proto, TensorProto) and proto.data_type == TensorProto.STRING:
                    return self._text(proto)
                arrays[id(proto)] = proto, read(proto, self.model.external)
            except Unsupported as error:
                self.problems.append(Problem(name, "initializer", str(error)))
                return Missing()
        return self.tensor(arrays[id(proto)][1])

    def _text(self, proto: TensorProto) -> Text:
        shape, words = to_words(proto)
        codes = np.arange(len(words), dtype=np.int64).reshape(shape)
        return Text(self.tensor(codes), words)

    def body(self, nodes: Iterable[NodeProto], scope: Scope, outputs: Iterable[str]) -> None:
        """Convert the nodes that ``outputs`` depend on."""
        nodes = list(nodes)
        self._spend(len(nodes))
        wanted, scope.live = live_nodes(nodes, outputs)
        for node in wanted:
            try:
                decoded = decode_node(node, scope.opsets, self.model.external, scope.attributes)
            except Unsupported as error:
                self.problems.append(Problem(node.name, node.op_type, str(error)))
                scope.values |= {name: Missing() for name in node.output}
                continue
            self._node(decoded, scope)

    # -- nodes -----------------------------------------------------------------------------------
    def _node(self, node: NodeCall, scope: Scope) -> None:
        inputs = [scope.find(name) if name else None for name in node.inputs]
        outer, self._sources = self._sources, _sources(inputs)
        self.observe(node, inputs)
        try:
            results = self._results(node, scope, inputs)
        except NeedsValue as error:
            results = self._needs(node, error)
        except Unsupported as error:
            results = self._failed(node, str(error))
        except InvalidModelError:
            raise
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
            # What the builder refuses, and attributes and inputs that no valid node has.
            results = self._failed(node, _described(error, node, inputs))
        finally:
            self._sources = outer
        for i, name in enumerate(node.outputs):
            if name:
                given = results[i] if i < len(results) else None
                if given is None and name in scope.live:
                    self._failed(node, f"its output {i} is not supported")
                scope.values[name] = Missing() if given is None else given

    def _failed(self, node: NodeCall, reason: str) -> list[Value | None]:
        self.problems.append(Problem(node.title, node.full_name, reason))
        return [Missing()] * len(node.outputs)

    def _needs(self, node: NodeCall, error: NeedsValue) -> list[Value | None]:
        sources = error.tensor.sources if isinstance(error.tensor, Tensor) else frozenset()
        names = ", ".join(repr(sanitize(name)) for name in sorted(sources))
        reason = f"{error} has to be known at import; it is computed from input {names}"
        self.problems.append(Problem(node.title, node.full_name, reason, sources))
        return [Missing()] * len(node.outputs)

    def _results(
        self, node: NodeCall, scope: Scope, inputs: Sequence[Value | None]
    ) -> Sequence[Value | None]:
        if any(isinstance(x, Missing) for x in inputs):
            return [Missing()] * len(node.outputs)
        key = (node.domain, node.operator, node.overload)
        if key in self.model.functions:
            function = self.model.functions[key]
            return self._call(function, scope, node, inputs)
        plain = all(x is None or isinstance(x, Tensor) for x in inputs)
        if plain and all(x is None or x.known for x in inputs):  # type: ignore[union-attr]
            arrays = folding.evaluate(node, [x and x.array for x in inputs])  # type: ignore
            if arrays is not None:
                return [self.tensor(a) for a in arrays]
        if plain and any(x is not None and x.sizes is not None for x in inputs):  # type: ignore[union-attr]
            arithmetic = self._arithmetic(node, inputs)  # type: ignore[arg-type]
            if arithmetic is not None:
                return arithmetic
        record = records.find(*key[:2], node.version)
        if record is not None:
            with suppress(UseFunctionBody):
                return self._record(record, node, scope, inputs)
        body = functions.schema_function(node, inputs) if plain else None
        if body is not None:
            return self._call(body, scope, node, inputs)
        raise Unsupported(functions.why_not(node))

    def _arithmetic(
        self, node: NodeCall, inputs: Sequence[Tensor | None]
    ) -> list[Tensor] | None:
        """The outputs of a node that computes with sizes; None if it doesn't, or also with data."""
        if any(x is not None and x.array is None and x.sizes is None for x in inputs):
            return None
        made = shape_arithmetic.evaluate(
            node, [x.type for x in inputs if x is not None],
            [x if x is None else x.array if x.sizes is None else x.sizes for x in inputs],
        )
        return made and [self.of_sizes(*each) for each in made]

    def _record(
        self, record: records.Record, node: NodeCall, scope: Scope, inputs: Sequence[Value | None]
    ) -> Sequence[Value | None]:
        if record.inputs is not None and len(inputs) > record.inputs:
            if any(x is not None for x in inputs[record.inputs :]):
                raise Unsupported(f"it has {len(inputs)} inputs, {record.inputs} are supported")
            inputs = inputs[: record.inputs]
        unknown = node.attributes.keys() - record.attributes
        if unknown:
            raise Unsupported(f"attributes {sorted(unknown)} are not supported")
        for i, needed in enumerate(record.required):
            if needed and (i >= len(inputs) or inputs[i] is None):
                raise Unsupported(f"its input {i} is missing")
        if not record.raw:
            if record.inputs is None and None in inputs:
                raise Unsupported("one of its inputs is missing")
            if inputs and isinstance(inputs[0], Text) and node.operator in _MOVES:
                codes, words = inputs[0].codes, inputs[0].words
                moved = self._record(record, node, scope, [codes, *inputs[1:]])
                return [Text(x, words) if isinstance(x, Tensor) else x for x in moved]
            if inputs and isinstance(inputs[0], Text) and node.operator == "Cast":
                if node.attributes.get("to") == TensorProto.STRING:
                    return [inputs[0]]
            for x in inputs:
                if isinstance(x, TensorList):
                    raise Unsupported("sequences are not supported here")
                if isinstance(x, Text | Maps):
                    raise Unsupported("WebNN has no text and no maps: they may be given out, and "
                                      "text moved, no more")
                if x is not None and not x.known and x.type in STORAGE_ONLY and not record.storage:
                    raise Unsupported(f"{x.type} is supported in moves and quantisation only")
        made = record.function(
            NodeContext(self, scope, node), *inputs, **record.arguments(node.attributes)
        )
        if not isinstance(made, (list, tuple)):
            made = [made]
        return [self._wrap(node, i, value, inputs) for i, value in enumerate(made)]

    def _wrap(
        self, node: NodeCall, index: int, value: Any, inputs: Sequence[Value | None]
    ) -> Value | None:
        if isinstance(value, MLOperand):
            return self.computed(value, functions.output_type(node, index, value, inputs))
        if isinstance(value, np.ndarray | np.generic):
            return self.tensor(np.asarray(value))
        return value

    # -- functions -------------------------------------------------------------------------------
    def _call(
        self,
        function: onnx.FunctionProto,
        outer: Scope,
        node: NodeCall,
        inputs: Sequence[Value | None],
    ) -> Sequence[Value | None]:
        opsets = {domain_name(o.domain): o.version for o in function.opset_import}
        if self._depth >= MAX_CALL_DEPTH:
            raise InvalidModelError(
                f"function {sanitize(function.name)!r}: calls are nested more than "
                f"{MAX_CALL_DEPTH} deep, or cyclic"
            )
        attributes = functions.schema_defaults(node)
        attributes |= {a.name: a for a in function.attribute_proto}
        attributes |= {a.name: a for a in node.proto.attribute}
        scope = Scope({**outer.opsets, **opsets}, attributes=attributes)
        for i, name in enumerate(function.input):
            given = inputs[i] if i < len(inputs) else None
            # An input left out stays left out in the body: an empty name there.
            scope.values[name] = Missing() if given is None else given
        absent = {n for n, v in scope.values.items() if isinstance(v, Missing)}
        nodes = [_without(n, absent) for n in function.node] if absent else function.node
        wanted = function.output[: len(node.outputs)]
        self._depth += 1
        try:
            before = len(self.problems)
            self.body(nodes, scope, wanted)
        finally:
            self._depth -= 1
        # The problem is the caller's: names inside a body tell its reader nothing.
        self.problems[before:] = [
            Problem(node.title, node.full_name, f"{p.operator}: {p.reason}", p.inputs)
            for p in self.problems[before:]
        ]
        return [scope.values.get(name) for name in wanted]


#: Inputs, and numbers of an attribute, that are shown.
_SHOWN = 8


def _described(error: Exception, node: NodeCall, inputs: Sequence[Value | None]) -> str:
    """The builder's message, which names operator, label and shapes; of any other error more than
    its text, which knows nothing of the model."""
    text = str(error) or type(error).__name__
    if f"[{node.title}]" in text:
        return text
    shown = ", ".join("none" if x is None else str(x).strip("<>") for x in inputs[:_SHOWN])
    plain = {
        name: given[:_SHOWN] if isinstance(given, list) else given
        for name, given in node.attributes.items()
        if isinstance(given, (int, float))
        or (isinstance(given, list) and all(isinstance(g, (int, float)) for g in given))
    }
    return f"its inputs ({shown}) and attributes {plain} do not go together: {text}"


def _without(node: NodeProto, absent: set[str]) -> NodeProto:
    if absent.isdisjoint(node.input):
        return node
    made = NodeProto()
    made.CopyFrom(node)
    made.input[:] = ["" if name in absent else name for name in node.input]
    return made


def _sources(inputs: Sequence[Value | None]) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for value in inputs:
        if isinstance(value, Text):
            value = value.codes
        for x in value.items if isinstance(value, TensorList) else (value,):
            if isinstance(x, Tensor):
                found |= x.sources
    return found

