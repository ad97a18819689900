"""MLGraphBuilder: describing a model (§8.9).

The operator methods are generated from the operator records and differ only in the record's
signature and docstring.
"""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from webnn_vk.compiler.ir import Graph, Node, Value
from webnn_vk.compiler.ir.emit import bind_call, make_node
from webnn_vk.compiler.ops import ALL_OPERATORS, OPERATORS, Operator
from webnn_vk.compiler.ops.help import method_help
from webnn_vk.compiler.passes import remove_dead_code, require_result
from webnn_vk.compiler.program.shaped_program import ShapedGraph, shaped_graph
from webnn_vk.compiler.types.data_types import (
    MLOperandDescriptor,
    empty_dimensions,
    entries,
    require_data_type,
    require_dimensions,
    to_descriptor,
)
from webnn_vk.compiler.types.dimensions import (
    described_in,
    has_named_dimensions,
    sized_in,
)
from webnn_vk.compiler.types.expressions import Expressions
from webnn_vk.compiler.types.sizes import Trace
from webnn_vk.runtime.cpu import CpuDevice
from webnn_vk.support.errors import InvalidStateError, sanitize, shortage_error
from webnn_vk.support.experimental import require_experimental
from webnn_vk.support.mixins import OneOfAKind, PublicDir
from webnn_vk.support.promise import MLPromise, kind_of

from .build import build_graph
from .constants import Constants, TensorValue
from .context import MLContext
from .donation import checked_pairs
from .ml_graph import MLGraph
from .operand import MLOperand as MLOperand
from .operand import to_operands
from .subgraph import Subgraphs


class MLGraphBuilder(PublicDir, OneOfAKind, Constants, Subgraphs):
    """Describes one graph for ``context`` and builds it once.

    Methods raise InvalidStateError after ``build()`` and when the context is lost, and TypeError
    with operator and ``[label]`` for invalid operands and arguments.
    """

    # Whether the shapes of operands have sizes that compute (``SizedBuilder``).
    _computes_sizes = False

    def __init__(self, context: MLContext) -> None:
        if not isinstance(context, MLContext):
            raise TypeError(f"an MLContext is expected, not {kind_of(context)}")
        if lost := context._state.loss():
            raise lost
        self._context = context
        device = context._state.device
        self._experimental = context._state.experimental
        self._begin(device.max_tensor_byte_length, isinstance(device, CpuDevice))

    def _begin(self, max_byte_length: int | None, on_host: bool) -> None:
        self._max_byte_length, self._on_host = max_byte_length, on_host
        # Whether dimensions may be 0.
        self._has_empty = "dynamic-shapes" in self._experimental
        self._inputs: list[Value] = []
        # Inputs of definitions, which needn't be inputs of the graph.
        self._defined: set[Value] = set()
        self._nodes: list[Node] = []
        # The values of the operands, by operand number.
        self._values: dict[int, Value] = {}
        self._numbers = itertools.count()
        # Constants by type, shape and a checksum of their bytes: equal ones are stored once.
        self._constants: dict[Any, list[Value]] = {}
        # Sizes that are known at dispatch.
        self._trace: Trace | None = None
        # The claim of the first call of ``build``. (No locks: a signal handler may run between any
        # two steps and call the builder.)
        self._built: dict[str, object] = {}

    if TYPE_CHECKING:
        # Not defined at run time; type checkers read builder.pyi. Jedi, which completes in
        # notebooks, reads this file, and finds methods made at import only if the source declares
        # something for their names.
        def __getattr__(self, name: str) -> Any:
            return self.input

    # -- inputs -------------------------------------------------------------------------------
    def input(self, name: str, descriptor: Any) -> MLOperand:
        """A graph input (§8.9.2). ``name`` must not be empty and must be unique among the inputs
        that a graph uses; ``descriptor`` is an MLOperandDescriptor or a mapping with data_type and
        shape. With "dynamic-shapes" (experimental) a dimension may be an MLDynamicDimension or a
        mapping with name and max_size (and min_size, 1 otherwise). Returns at once. Raises
        TypeError for an empty name or an invalid descriptor, InvalidStateError after ``build()``
        and when the context is lost."""
        if not isinstance(name, str):
            raise TypeError(f"input: the name has to be a str, not {type(name).__name__}")
        if has_named_dimensions(descriptor):
            require_experimental(self._experimental, "dynamic-shapes", "input: named dimensions")
            if self._trace is None:
                self._trace = Trace(Expressions(), {}, folds=False)
            descriptor = described_in(self._trace, descriptor)
        described = to_descriptor(descriptor, what="input")
        self._check_can_build("input")
        if not name:
            raise TypeError("input: the name is empty")
        require_data_type(described.data_type, self._experimental, "input")
        with empty_dimensions(self._has_empty):
            require_dimensions(described, self._max_byte_length, f"input {sanitize(name)!r}")
        value = Value(described, name=name)
        self._inputs.append(value)
        return self._operand(value, f"input {sanitize(name)!r}")

    def _check_own(self, operand: Any, what: str) -> MLOperand:
        """The operand, if it is one of this builder's; TypeError otherwise."""
        if to_operands(operand, False, what)._builder is not self:
            raise TypeError(f"{what} {operand!r} belongs to another builder")
        return operand

    def _operand(self, value: Value, title: str) -> MLOperand:
        number = next(self._numbers)
        self._values[number] = value
        return MLOperand(self, value.descriptor, number, title)

    # -- operators -----------------------------------------------------------------------------
    def _apply(self, record: Operator, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if self._trace is not None:
            try:
                args = tuple(sized_in(self._trace, value) for value in args)
                options = {name: sized_in(self._trace, value) for name, value in options.items()}
            except TypeError as error:
                label = options.get("label")
                title = record.title(label if isinstance(label, str) else "")
                raise TypeError(f"{title}: {error}") from None
        # As in WebIDL, arguments are converted before the method's own steps begin.
        call = bind_call(record, args, options, to_operands)
        where = call.where(record)
        self._check_can_build(where)
        values: dict[str, Any] = {}
        for name, given in call.operands.items():
            for operand in given if isinstance(given, list) else [given] * (given is not None):
                self._check_own(operand, f"{where}: {name}")
            values[name] = (
                [o._value for o in given]
                if isinstance(given, list)
                else None if given is None else given._value
            )
        with empty_dimensions(self._has_empty):
            node = make_node(record, values, call.arguments, call.label, self._max_byte_length)
        if self._has_empty:
            require_result(node)
        for value in node.outputs:
            require_data_type(value.data_type, self._experimental, where)
        self._nodes.append(node)
        titles = [where] if len(node.outputs) == 1 else [
            f"{where} output {i}" for i in range(len(node.outputs))
        ]
        results = [self._operand(v, t) for v, t in zip(node.outputs, titles, strict=True)]
        return results if record.many else results[0]

    # -- build ---------------------------------------------------------------------------------
    def build(
        self, outputs: Mapping[str, MLOperand], *, donate: Mapping[str, str] | None = None,
        in_place: bool = False,
    ) -> MLPromise[MLGraph]:
        """Compile the graph that computes ``outputs``, name → operand (§8.9.4).

        ``donate`` maps inputs to outputs of the same data type and shape (extension): ``dispatch``
        then accepts one tensor for both, which is updated in place. A scatter of a few elements
        into such an input writes only these. ``graph.report().donated`` says where a copy of an
        input is kept, because its elements are read after they were overwritten; with ``in_place``
        such a graph is refused.

        Rejects with
        TypeError for no output, an empty name, an input or a constant as output (use ``identity``),
        an operand of another builder or a destroyed constant tensor; InvalidStateError when the
        builder has built its graph or the context is lost; OperationError when the device lacks
        the memory, or the graph can't be compiled, and with ``in_place`` where a copy would be
        kept, as always on the CPU device. TypeError if ``donate`` names no input or
        output, or names one twice, or if data types or shapes differ."""
        # Holds the graph until the build begins and takes it, or until this call fails.
        claim: list[Graph] = []

        def take() -> Graph | ShapedGraph:
            shaped = shaped_graph(claim.pop())
            for collected in (self._nodes, self._values, self._inputs, self._constants):
                collected.clear()
            return shaped

        def give_up() -> None:
            with suppress(IndexError):  # the build has begun
                claim.pop()
                if self._built.get("by") is claim:
                    self._built.clear()

        try:
            claim.append(self._graph(outputs, donate))
            ShapedGraph(claim[0]).check_names("build")
            unused = claim[0].unused
            if self._built.setdefault("by", claim) is not claim:
                self._check_can_build("build")
            promise = build_graph(self._context._state, take, give_up, in_place)
        except (TypeError, InvalidStateError) as error:
            return MLPromise.rejected(error)
        except BaseException as error:
            # After an interrupt, or out of memory, the builder can build again unless this build
            # has begun.
            give_up()
            if isinstance(error, MemoryError):
                return MLPromise.rejected(shortage_error(error, "build"))
            raise
        if unused:
            names = ", ".join(sorted(repr(sanitize(name)) for name in unused))
            warnings.warn(
                f"build: no output depends on the inputs {names}; the graph is without them",
                RuntimeWarning,
                stacklevel=2,
            )
        return promise

    def _graph(
        self, outputs: Mapping[str, MLOperand], donate: Mapping[str, str] | None = None,
        what: str = "build",
    ) -> Graph:
        outputs = dict(entries(outputs, f"{what}: a mapping of outputs is expected"))
        for name, operand in outputs.items():
            if not isinstance(name, str) or not isinstance(operand, MLOperand):
                raise TypeError(
                    f"{what}: outputs map names to operands, not {type(name).__name__} to "
                    f"{type(operand).__name__}"
                )
        self._check_can_build(what)
        if not outputs:
            raise TypeError(f"{what}: at least one output is needed")
        for name, operand in outputs.items():
            if not name:
                raise TypeError(f"{what}: an output's name is empty")
            if operand._builder is not self:
                raise TypeError(f"{what}: output {sanitize(name)!r} belongs to another builder")
            if not is_computed(operand):
                raise TypeError(
                    f"{what}: output {sanitize(name)!r} is an input or a constant; pass it through "
                    "identity()"
                )
        values = {name: operand._value for name, operand in outputs.items()}
        nodes = remove_dead_code(Graph({}, values, tuple(self._nodes))).nodes
        live = {*values.values(), *(value for node in nodes for value in node.inputs)}
        for value in live:
            if isinstance(value, TensorValue):
                value.tensor.use(f"{what}: a constant tensor")
        # spec: build, steps 9 and 14: only inputs that the outputs depend on belong to the graph.
        # spec: input, step 3 is checked here: the web-platform-tests give one name to many inputs
        # of a builder and use one of them.
        inputs: dict[str, Value] = {}
        for value in self._inputs:
            if value in live and inputs.setdefault(value.name, value) is not value:
                raise TypeError(f"{what}: two inputs are called {sanitize(value.name)!r}")
        unused = frozenset(
            value.name for value in self._inputs
            if value.name not in inputs and value not in self._defined
        )
        return Graph(inputs, values, nodes, unused, checked_pairs(donate, inputs, values))

    def __repr__(self) -> str:
        state = "built" if self._built else f"{len(self._nodes)} operators"
        return f"<MLGraphBuilder on {self._context._state.device.name}: {state}>"

    # -- checks --------------------------------------------------------------------------------
    def _check_can_build(self, what: str) -> None:
        if self._built:
            raise InvalidStateError(f"{what}: this builder has built its graph; make a new one")
        if lost := self._context._state.loss():
            raise lost


class SizedBuilder(MLGraphBuilder):
    """A builder for code that computes with shapes, as importers do. Dimensions of its operands
    that are known at dispatch behave as the numbers that ``examples`` has for them
    (``compiler.types.sizes``). What is decided by these numbers becomes a condition of the graph,
    which accepts only sizes for which the same is decided."""

    _computes_sizes = True

    def __init__(self, context: MLContext, examples: Mapping[str, int] | None = None) -> None:
        super().__init__(context)
        self._trace = Trace(Expressions(), examples or {})

    def condition(self) -> Callable[[Mapping[str, int]], bool]:
        """Whether what was decided so far is the same for some sizes of the named dimensions."""
        trace = self._trace
        assert trace is not None
        names = tuple(trace.expressions.bounds)
        values = trace.expressions.values
        return lambda sizes: trace.at(values([sizes[name] for name in names])) is not None


class ShapeBuilder(MLGraphBuilder):
    """A builder without a context: it checks operators and infers shapes, but can't build."""

    def __init__(self) -> None:
        self._experimental = frozenset()
        self._begin(None, False)

    def _check_can_build(self, what: str) -> None:
        pass

    def build(
        self, outputs: Mapping[str, MLOperand], *, donate: Mapping[str, str] | None = None,
        in_place: bool = False,
    ) -> MLPromise[MLGraph]:
        return MLPromise.rejected(InvalidStateError("build: this builder has no context"))

    def __repr__(self) -> str:
        return f"<ShapeBuilder: {len(self._nodes)} operators>"


def constant_of(
    builder: MLGraphBuilder, array: np.ndarray, key: str | None = None
) -> MLOperand:
    """A constant that reads the array's memory, which must not change. No copy is made, unless the
    array is not contiguous or NumPy would copy it in every run (unaligned data on the CPU device).
    Graphs of a context share prepacked data between constants of equal ``key``, whose elements must
    be equal. Raises TypeError as ``constant`` does."""
    descriptor = MLOperandDescriptor(array.dtype, array.shape)
    return builder._stored_constant(descriptor, array, key)


def apply_operator(builder: MLGraphBuilder, name: str, *args: Any, **options: Any) -> Any:
    """Call an operator as its method would be called; ``name`` may be one of the compiler's own,
    which have no method. Raises TypeError as methods do."""
    return builder._apply(ALL_OPERATORS[name], args, options)


def experimental_of(builder: MLGraphBuilder) -> frozenset[str]:
    """The drafts that the builder's context implements."""
    return builder._experimental


def graph_of(outputs: Mapping[str, MLOperand]) -> Graph:
    """The graph that computes some operands of a builder, as ``build`` would compile it. The
    builder is unchanged. Raises the errors that ``build`` rejects with."""
    operands = list(outputs.values()) if isinstance(outputs, Mapping) else []
    if not operands or not isinstance(operands[0], MLOperand):
        raise TypeError("a mapping of names to operands is expected, of one at least")
    builder = operands[0]._builder
    shaped = shaped_graph(builder._graph(outputs))
    if isinstance(shaped, ShapedGraph):
        shaped.check_names("export")
        return shaped.described()
    return shaped


def is_computed(operand: MLOperand) -> bool:
    """Whether an operator computes the operand; inputs and constants can't be outputs."""
    return operand._value.name is None and not operand._value.is_constant


def _method(record: Operator) -> Any:
    def method(self: MLGraphBuilder, /, *args: Any, **options: Any) -> Any:
        return self._apply(record, args, options)

    method.__name__ = record.name
    method.__qualname__ = f"MLGraphBuilder.{record.name}"
    method.__doc__ = method_help(record)
    signature = record.signature()
    this = signature.replace(
        parameters=[_SELF, *signature.parameters.values()],
        return_annotation="list[MLOperand]" if record.many else "MLOperand",
    )
    method.__signature__ = this  # type: ignore[attr-defined]
    return method


_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
for _record in OPERATORS.values():
    setattr(MLGraphBuilder, _record.name, _method(_record))
