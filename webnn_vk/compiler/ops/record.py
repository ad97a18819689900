"""The operator record and the decorator that makes one.

    @operator("§7.9.30", input=Limits(FLOAT_TYPES), output=Like("input"))
    def softsign(check: Check, input: Operand):
        '''Softsign of each element: x / (1 + |x|).'''
        return check.same_as(input)

    softsign.lowers_to(Elementwise("{input} / (1.0 + abs({input}))"))

    @softsign.reference
    def _(out, input):
        return input / (1 + np.abs(input))

The function's signature is the builder method's. Its body performs the specification's validation
and shape steps on descriptors and returns the output descriptor(s). Everything else (builder
method, limits, CPU fallback, tables, random tests) is derived from the record.

There are two sets of operators. ``@operator`` makes an operator of the specification, with a
builder method, limits and a row in the tables. ``@compiler_operator`` makes one that only passes
introduce (an attention, a product with integer weights): it has a text form, verification, a
reference and kernels, but is not part of the public interface.
"""

from __future__ import annotations

import inspect
import math
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any

import numpy as np

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize

from ..types.broadcasting import broadcast_shapes, broadcastable_to
from ..types.data_types import (
    ALL_TYPES,
    DATA_TYPES,
    MAX_DIMENSION,
    MAX_RANK,
    MLOperandDescriptor,
    check_dimensions,
    low_precision_types,
    smallest_dimension,
)
from ..types.dimensions import known_number
from ..types.sizes import sizes_in, symbolic
from .arguments import Argument, Operand, Operands
from .lowering import Lowering

#: The most elements of a tensor that is no operand but that an implementation may materialise (a
#: padded input).
MAX_MATERIALISED = 2**32

#: The names of arguments that are axes.
AXES = ("axis", "axes", "permutation")

# The specification's operators, and the compiler's own, by name.
OPERATORS: dict[str, Operator] = {}
COMPILER_OPERATORS: dict[str, Operator] = {}
# Both together: names are unique.
ALL_OPERATORS: Mapping[str, Operator] = MappingProxyType(ChainMap(OPERATORS, COMPILER_OPERATORS))


@dataclass(frozen=True)
class Limits:
    """A row of an operator's tensor-limit table: allowed data types and ranks of one operand."""

    types: tuple[str, ...]
    rank: tuple[int, int] = (0, MAX_RANK)


@dataclass(frozen=True)
class Like:
    """"Same as ``operand``" in a tensor-limit table; ``rank`` if the table gives another rank."""

    operand: str
    rank: tuple[int, int] | None = None


@dataclass(frozen=True)
class Parameter:
    """One parameter of the builder method."""

    name: str
    argument: Argument
    default: Any = inspect.Parameter.empty
    keyword: bool = False

    @property
    def is_operand(self) -> bool:
        return self.argument is Operand or self.argument is Operands

    @property
    def optional(self) -> bool:
        return self.default is not inspect.Parameter.empty

    @property
    def sized(self) -> bool:
        """Whether the argument may be computed from named dimensions. It is then converted again
        for the sizes of each dispatch. The form of a graph depends on axes, which may not."""
        return self.argument.sized and self.name not in AXES

    def convert(self, value: Any, what: str) -> Any:
        """The converted value of an argument; None means that an optional one is absent."""
        if value is None and self.default is None:
            return None
        if not self.sized and next(sizes_in(value), None) is not None:
            value = symbolic(value, lambda size: known_number(size, what))
        return self.argument.convert(value, what)


@dataclass
class Check:
    """Checks of a validation function; each error has the operator and ``[label]``."""

    operator: str
    label: str = ""

    def fail(self, message: str) -> None:
        raise TypeError(f"{prefix(self.operator, self.label)}: {message}")

    def that(self, condition: bool, message: str) -> None:
        if not condition:
            self.fail(message)

    def same_type(self, **operands: MLOperandDescriptor | None) -> None:
        """All the given operands (absent ones skipped) have one data type."""
        given = {name: d for name, d in operands.items() if d is not None}
        if len({d.data_type for d in given.values()}) > 1:
            types = ", ".join(f"{name} is {d.data_type}" for name, d in given.items())
            self.fail(f"{types}; the same data type is required")

    def shape(
        self, name: str, operand: MLOperandDescriptor | None, expected: Sequence[int]
    ) -> None:
        """``operand`` (if present) has exactly the ``expected`` shape."""
        if operand is not None and operand.shape != tuple(expected):
            self.fail(f"{name} is {operand}; shape {list(expected)} is expected")

    def broadcasts_to(
        self, name: str, operand: MLOperandDescriptor | None, shape: Sequence[int]
    ) -> None:
        """``operand`` (if present) broadcasts to the ``shape``."""
        if operand is not None and not broadcastable_to(operand.shape, shape):
            self.fail(
                f"{name} is {operand}; a shape that broadcasts to {list(shape)} is expected"
            )

    def items(
        self, name: str, given: tuple[Any, ...] | None, default: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """``given``, which has as many items as ``default``; the default if it is absent."""
        if given is None:
            return default
        self.that(
            len(given) == len(default),
            f"{name} {list(given)} has {len(given)} items; {len(default)} are expected",
        )
        return given

    def positive(self, name: str, given: tuple[int, ...] | None) -> tuple[int, int]:
        """The same for two numbers, 1 if absent, neither of which may be 0."""
        first, second = self.items(name, given, (1, 1))
        self.that(bool(first and second), f"{name} {[first, second]}: 0 is not allowed")
        return first, second

    def broadcast(self, **operands: MLOperandDescriptor) -> tuple[int, ...]:
        """The shape that all the operands broadcast to in both directions."""
        shape: tuple[int, ...] | None = ()
        for descriptor in operands.values():
            shape = broadcast_shapes(shape, descriptor.shape)
            if shape is None:
                shapes = ", ".join(f"{name} is {d}" for name, d in operands.items())
                self.fail(f"{shapes}; dimensions from the last on have to be equal or 1")
        return shape

    def axis(self, axis: int, input: MLOperandDescriptor) -> None:
        """The axis is one of the input's."""
        self.that(
            axis < input.rank,
            f"axis {axis} is not below the rank; input is {input}, "
            + (f"axis is 0 … {input.rank - 1}" if input.rank else "a scalar has no axis"),
        )

    def axes(self, axes: Sequence[int], rank: int, name: str = "axes") -> None:
        """Axes are in range and without duplicates."""
        outside = next((axis for axis in axes if axis >= rank), None)
        if outside is not None:
            accepted = f"an axis is 0 … {rank - 1}" if rank else "a scalar has no axis"
            self.fail(
                f"{name} {list(axes)}: {outside} is not below the rank {rank}; {accepted}"
            )
        self.that(len(set(axes)) == len(axes), f"{name} {list(axes)} has duplicates")

    def dimensions(self, sizes: Sequence[int], what: str) -> None:
        """Sizes computed from arguments are valid dimensions (§8.5): sizes of an output, and sizes
        that no tensor has (of a window), which implementations may bound."""
        low = smallest_dimension()
        wrong = next((size for size in sizes if not low <= size <= MAX_DIMENSION), None)
        if wrong is not None:
            self.fail(
                f"{what} {list(sizes)}: {wrong} is no valid dimension, which is {low} … "
                f"{MAX_DIMENSION}"
            )

    def materialised(self, sizes: Sequence[int], others: int, what: str) -> None:
        """A height and a width, in ``others`` planes, are valid dimensions and have few enough
        elements for an implementation to materialise them."""
        self.dimensions(sizes, what)
        count = math.prod(sizes) * others
        if count > MAX_MATERIALISED:
            self.fail(
                f"{what} {list(sizes)}, {others} times: {count} elements; "
                f"{MAX_MATERIALISED} at most"
            )

    def output(self, descriptor: MLOperandDescriptor, max_byte_length: int | None) -> None:
        """An operand may have this descriptor (§8.5, "check dimensions"), and it has at most
        ``max_byte_length`` bytes, the most that the device can hold."""
        error = check_dimensions(descriptor, max_byte_length)
        if error is not None:
            self.fail(f"the output: {descriptor}: {error}")

    @staticmethod
    def same_as(operand: MLOperandDescriptor) -> MLOperandDescriptor:
        return MLOperandDescriptor(operand.data_type, operand.shape)


@dataclass(frozen=True)
class Inferred:
    """Output descriptors together with arguments in normal form (defaults filled in)."""

    outputs: tuple[MLOperandDescriptor, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def like(
        cls, operand: MLOperandDescriptor, *shapes: Sequence[int], **arguments: Any
    ) -> Inferred:
        """An output of the operand's data type for each of the ``shapes``, by default its own."""
        return cls(
            tuple(MLOperandDescriptor(operand.data_type, tuple(shape))
                  for shape in shapes or (operand.shape,)),
            arguments,
        )


@dataclass(eq=False)
class Operator:
    """An operator; the module's docstring shows how to write one. ``section`` of the draft; empty
    for compiler operators."""

    name: str
    section: str
    infer: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    limits: dict[str, Limits | Like]
    lowering: Lowering | None = None
    compute: Callable[..., Any] | None = None
    promotes: bool = True

    # -- authoring ---------------------------------------------------------------------------
    def lowers_to(self, lowering: Lowering) -> Operator:
        self.lowering = lowering
        return self

    def reference(
        self, function: Callable[..., Any] | None = None, *, promotes: bool = True
    ) -> Callable[..., Any]:
        """Set the NumPy reference: ``function(out, **operands, **arguments)``.

        ``out`` is the output descriptor (a tuple of them for several outputs), absent operands are
        None. float16 operands arrive as float32 and the result is rounded once, unless
        ``promotes`` is False (for operators that only move elements).
        """

        def record(function: Callable[..., Any]) -> Callable[..., Any]:
            self.compute, self.promotes = function, promotes
            return function

        return record if function is None else record(function)

    # -- derived -----------------------------------------------------------------------------
    @property
    def operands(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.is_operand)

    @property
    def arguments(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if not p.is_operand)

    def grouped(self, items: Mapping[str, Any]) -> dict[str, Any]:
        """Items by the names of the operands, as ``validate`` and ``evaluate`` take them: a list
        of the items ``inputs[0]``, ``inputs[1]`` … for a sequence, None for an absent operand."""
        numbers = range(len(items))
        return {
            p.name: [items[key] for i in numbers if (key := f"{p.name}[{i}]") in items]
            if p.argument is Operands else items.get(p.name)
            for p in self.operands
        }

    @property
    def many(self) -> bool:
        """Whether the builder method returns a list of operands."""
        return "outputs" in self.limits or "output1" in self.limits

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.infer) or ""

    def title(self, label: str = "") -> str:
        """``conv2d [stem]``: the name of a use of the operator in reports and messages."""
        return prefix(self.name, label)

    def limit(self, name: str) -> Limits:
        """The tensor-limit row of an operand or output, "same as" resolved."""
        row = self.limits[name]
        if isinstance(row, Limits):
            return row
        other = self.limit(row.operand)
        return Limits(other.types, row.rank or other.rank)

    def signature(self) -> inspect.Signature:
        """The builder method's signature, without ``self``."""
        kind = inspect.Parameter
        shown = [
            kind(
                p.name,
                kind.KEYWORD_ONLY if p.keyword else kind.POSITIONAL_OR_KEYWORD,
                default=p.default,
                annotation=p.argument.python + (" | None" if p.default is None else ""),
            )
            for p in self.parameters
        ]
        shown.append(kind("label", kind.KEYWORD_ONLY, default="", annotation="str"))
        return inspect.Signature(shown)

    def validate(
        self,
        operands: Mapping[str, Any],
        arguments: Mapping[str, Any],
        label: str = "",
        max_byte_length: int | None = None,
    ) -> Inferred:
        """Output descriptors for operands' descriptors (a tuple for a sequence, None if absent)
        and converted arguments. TypeError with the ``[label]`` as the draft requires, and for an
        output that is not a valid operand or has more than ``max_byte_length`` bytes."""
        check, title = Check(self.name, label), self.title(label)
        # The builder converted them for the examples of named dimensions.
        arguments = {**arguments} | {
            p.name: p.convert(arguments[p.name], f"{title}: {p.name}")
            for p in self.parameters if p.sized and p.name in arguments
        }
        for p in self.operands:
            given = operands.get(p.name)
            if given is None:
                continue
            limit = self.limit(p.name)
            for operand in given if p.argument is Operands else (given,):
                if not _accepts(limit.types, operand.data_type):
                    check.fail(
                        f"{p.name} is {operand}; its data type has to be one of "
                        f"{', '.join(limit.types)}"
                    )
                low, high = limit.rank
                if not low <= operand.rank <= high:
                    check.fail(
                        f"{p.name} is {operand}; its rank has to be "
                        + (f"{low}" if low == high else f"{low} … {high}")
                    )
        result = self.infer(check, **operands, **arguments)
        if not isinstance(result, Inferred):
            outputs = (result,) if isinstance(result, MLOperandDescriptor) else tuple(result)
            result = Inferred(outputs)
        for output in result.outputs:
            check.output(output, max_byte_length)
        return Inferred(result.outputs, {**arguments, **result.arguments})

    def evaluate(
        self,
        outputs: Sequence[MLOperandDescriptor],
        operands: Mapping[str, Any],
        arguments: Mapping[str, Any],
    ) -> list[np.ndarray]:
        """The NumPy reference on arrays: a list of arrays of exactly the outputs' descriptors."""
        assert self.compute is not None, f"{self.name} has no reference"
        if self.promotes:
            operands = {name: _promote(a) for name, a in operands.items()}
        out = outputs[0] if len(outputs) == 1 else tuple(outputs)
        with np.errstate(all="ignore"):
            result = self.compute(out, **operands, **arguments)
            if len(outputs) == 1 and not isinstance(result, list):
                result = [result]
            arrays = [
                np.asarray(r).astype(d.numpy_dtype, order="C", copy=False).reshape(d.shape)
                for r, d in zip(result, outputs, strict=True)
            ]
        return arrays


def _accepts(types: tuple[str, ...], data_type: str) -> bool:
    """Whether a row of a tensor-limit table admits a data type. Whether a context has low-precision
    types is checked before."""
    return (
        data_type in types or data_type in low_precision_types(types)
        or (data_type == "bits16" and types == ALL_TYPES)
    )


def _promote(array: Any) -> Any:
    if isinstance(array, (list, tuple)):
        return [_promote(a) for a in array]
    if array is not None and array.dtype == np.float16:
        return array.astype(np.float32)
    return array


def prefix(operator: str, label: str = "") -> str:
    """The beginning of every message about an operator: ``conv2d [stem]``."""
    return f"{operator} [{sanitize(label)}]" if label else operator


def operator(section: str, **limits: Limits | Like) -> Callable[[Callable[..., Any]], Operator]:
    """Decorator: make a record of an operator of the specification from a validation function (see
    the module's docstring)."""
    return _registering(OPERATORS, section, limits)


def compiler_operator(**limits: Limits | Like) -> Callable[[Callable[..., Any]], Operator]:
    """Decorator: make a record of a compiler operator from a validation function: no builder
    method, no limits, no row in the documentation."""
    return _registering(COMPILER_OPERATORS, "", limits)


def _registering(
    registry: dict[str, Operator], section: str, limits: Mapping[str, Limits | Like]
) -> Callable[[Callable[..., Any]], Operator]:
    def make(function: Callable[..., Any]) -> Operator:
        parameters = []
        for p in list(inspect.signature(function, eval_str=True).parameters.values())[1:]:
            parameters.append(
                Parameter(p.name, p.annotation, p.default, p.kind is p.KEYWORD_ONLY)
            )
        name = function.__name__.rstrip("_")
        record = Operator(name, section, function, tuple(parameters), dict(limits))
        unknown = {r.operand for r in limits.values() if isinstance(r, Like)} - set(limits)
        missing = {p.name for p in record.operands} - set(limits)
        if unknown or missing or name in ALL_OPERATORS:
            raise ValueError(f"{name}: limits lack {unknown | missing}, or the name is taken")
        for row in limits.values():
            assert isinstance(row, Like) or set(row.types) <= set(DATA_TYPES)
        registry[name] = record
        return record

    return make
