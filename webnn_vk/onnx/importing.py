"""``load``, ``build_operands`` and ``requirements``: a model onto a builder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from webnn_vk.api.builder import MLGraphBuilder, MLOperand, ShapeBuilder, constant_of, is_computed
from webnn_vk.api.context import MLContext
from webnn_vk.api.ml_graph import MLGraph
from webnn_vk.compiler.types.data_types import (
    MAX_DIMENSION,
    MLOperandDescriptor,
    check_dimensions,
    to_shape,
)
from webnn_vk.compiler.types.dimensions import MLDynamicDimension, has_named_dimensions
from webnn_vk.support import warnings
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize
from webnn_vk.support.promise import MLPromise, follow_in_background

from . import ops  # noqa: F401  (fills the table of records)
from .convert import Conversion
from .ends import why_no_tensor
from .errors import Problem, Unsupported, UnsupportedModelError
from .reading import Model, Port, read_model, shown
from .values import Maps, Missing, Tensor, Text, Value

#: Types that are not tensors of numbers.
NO_TENSORS = ("sequence", "optional", "map", "sparse_tensor", "string")


@dataclass(frozen=True)
class Requirement:
    """An input of a model: ``shape`` with numbers, names or None, ``type`` by NumPy's name, and
    whether its dimensions or its value still have to be given."""

    name: str
    type: str
    shape: tuple[int | str | None, ...] | None
    needs_shape: bool
    needs_value: bool


def load(
    path_or_model: Any,
    context: MLContext,
    inputs: Mapping[str, Any] | None = None,
    *,
    outputs: Sequence[str] | None = None,
    narrow_double: bool = False,
    donate: Mapping[str, str] | None = None,
) -> MLPromise[MLGraph]:
    """A graph from an ONNX model: a path, bytes or ``onnx.ModelProto``.

    ``inputs`` gives, by input name, the shape of an input with unknown dimensions, or an array: its
    value, where it decides shapes, axes, bounds or a branch; it is no input of the graph then.
    Input and output names stay ONNX's. bool is carried as uint8, bfloat16 as float32;
    ``narrow_double`` does the same for double. ``outputs`` picks some of the model's outputs, or
    other values that its nodes make: what they don't depend on need not be such as WebNN can take.
    ``donate``, from inputs to outputs: as for ``MLGraphBuilder.build``. A donated cache of
    GroupQueryAttention is one of a fixed capacity (past_present_share_buffer).

    Rejects with InvalidModelError (a ValueError) for what is no valid model, with
    UnsupportedModelError (a NotSupportedError), which lists every reason, for what WebNN can't
    express, and as ``MLGraphBuilder.build`` does.
    """

    def make() -> MLPromise[MLGraph]:
        builder = MLGraphBuilder(context)
        operands = build_operands(
            path_or_model, builder, inputs, outputs=outputs, narrow_double=narrow_double,
            donate=donate,
        )
        return builder.build(operands, donate=donate)

    return follow_in_background(make, "import")


def build_operands(
    model: Any,
    builder: MLGraphBuilder,
    inputs: Mapping[str, Any] | None = None,
    *,
    outputs: Sequence[str] | None = None,
    narrow_double: bool = False,
    donate: Mapping[str, str] | None = None,
) -> dict[str, MLOperand]:
    """The model's outputs, name → operand, on an existing builder.

    ``inputs`` as for ``load``; an MLOperand of the builder stands for an input, in the data type
    that carries the input's. ``donate``: what ``builder.build`` will be given. Raises what ``load``
    rejects with.
    """
    donated = frozenset(donate) if isinstance(donate, Mapping) else frozenset()
    conversion = Conversion(read_model(model), builder, constant_of, narrow_double, donated)
    values = convert(conversion, inputs or {}, outputs)
    return output_operands(builder, values)


def requirements(
    model: Any, inputs: Mapping[str, Any] | None = None, *, narrow_double: bool = False
) -> list[Requirement]:
    """The model's inputs and what they still need before ``load`` can take it.

    ``inputs`` as for ``load``: the inputs that are given already. A trial import without a device
    finds the needed values. Unless they are given, it takes 1 for a first dimension that is unknown
    and 224 for others.
    """
    read = read_model(model)
    given = dict(inputs or {})
    trial = dict(given)
    lengths = _symbols(read, given)
    for port in read.inputs.values():
        if port.name not in trial and port.shape is not None:
            trial[port.name] = [
                d if isinstance(d, int) else lengths.get(d, 224 if i else 1)
                for i, d in enumerate(port.shape)
            ]
    conversion = Conversion(read, ShapeBuilder(), constant_of, narrow_double)
    try:
        convert(conversion, trial, None, guessed=True)
        values: frozenset[str] = frozenset()
    except UnsupportedModelError as error:
        values = error.values_needed
    return [
        Requirement(
            port.name,
            port.type,
            port.shape,
            port.name not in given and not _complete(_filled(port, lengths)),
            port.name in values,
        )
        for port in read.inputs.values()
    ]


def convert(
    conversion: Conversion, inputs: Mapping[str, Any], outputs: Iterable[str] | None,
    *, guessed: bool = False, ends: bool = False,
) -> dict[str, Any]:
    """The model's outputs as values on the conversion's builder, or UnsupportedModelError.
    ``guessed``: shapes of inputs are assumed, so outputs of other shapes than declared are not
    worth a warning. ``ends``: outputs may be text or maps."""
    model = conversion.model
    unknown = inputs.keys() - model.inputs.keys() - {t.name for t in model.graph.initializer}
    if unknown:
        names = ", ".join(repr(sanitize(str(n))) for n in sorted(map(str, unknown)))
        raise ValueError(f"the model has no input {names}; it has {_listed(model.inputs)}")
    wanted = list(picked(model, outputs))
    lengths = _symbols(model, inputs)
    given: dict[str, Value] = {}
    problems: list[Problem] = []
    for name in {**model.inputs, **inputs}:
        port = model.inputs.get(name) or Port(name, "unknown", None)
        try:
            given[name] = _input(conversion, port, inputs.get(name), lengths)
        except Unsupported as error:
            problems.append(Problem(name, "input", str(error), frozenset({name}), shape=True))
    if problems:
        raise UnsupportedModelError(problems)
    made = conversion.run(given, wanted)
    for name in wanted:
        reason = why_no_tensor(made[name])
        if reason and not isinstance(made[name], (Missing, Text, Maps) if ends else Missing):
            conversion.problems.append(Problem(name, "output", reason))
    if conversion.problems:
        raise UnsupportedModelError(conversion.problems)
    for name in () if guessed else wanted:
        declared, value = model.outputs.get(name), made[name]
        if declared is not None and isinstance(value, Tensor) and not declared.fits(value.shape):
            # No error, as for ONNX Runtime: exporters leave such behind.
            warnings.say_once(
                f"the model declares output {sanitize(name)!r} with shape "
                f"{shown(declared.shape)}; it is {list(value.shape)}"
            )
    return {name: made[name] for name in wanted}


def picked(model: Model, outputs: Iterable[str] | None) -> dict[str, Port]:
    """The outputs with these names (by default the model's), or other values that nodes make."""
    if outputs is None:
        return model.outputs
    made = {name for node in model.graph.node for name in node.output if name}
    wanted = list(outputs)
    missing = [name for name in wanted if name not in model.outputs and name not in made]
    if missing:
        raise ValueError(
            f"the model has no output {_listed(sorted(map(str, missing)))}, and no node makes it; "
            f"it has {_listed(model.outputs)}"
        )
    return {name: model.outputs.get(name) or Port(name, "unknown", None) for name in wanted}


def _input(
    conversion: Conversion, port: Port, given: Any, lengths: Mapping[str, int]
) -> Tensor:
    if isinstance(given, np.ndarray | np.generic):
        array = np.array(given)
        if port.type in NO_TENSORS:
            raise Unsupported(f"its type is {port.type}; WebNN has tensors of numbers")
        if port.type != "unknown" and array.dtype.name != port.type:
            raise Unsupported(f"its value is {array.dtype}, the model has {port.type}")
        array.setflags(write=False)
        return conversion.tensor(array)
    if port.type in (*NO_TENSORS, "unknown"):
        raise Unsupported(f"its type is {port.type}; WebNN has tensors of numbers")
    data_type = conversion.carrier(port.type)
    if isinstance(given, MLOperand):
        if given.data_type != data_type:
            raise Unsupported(f"its operand is {given.data_type}, {data_type} is needed")
        operand = given
    else:
        shape = tuple(given) if given is not None else _filled(port, lengths)
        if not _complete(shape):
            raise Unsupported(
                f"its shape {shown(shape)} is not known; give inputs={{{port.name!r}: [...]}}"
            )
        try:
            shape = to_shape(shape, f"input {sanitize(port.name)!r}")
        except TypeError as wrong:
            largest = max((d for d in port.shape or () if isinstance(d, int)), default=0)
            if given is not None and largest <= MAX_DIMENSION:
                raise
            # The shape is the model's own.
            raise Unsupported(str(wrong)) from None
        if not port.fits(shape):
            raise Unsupported(f"its shape is {list(shape)}, the model has {shown(port.shape)}")
        descriptor = MLOperandDescriptor(data_type, shape)
        if not has_named_dimensions({"shape": shape}):
            error = check_dimensions(descriptor)
            if error:
                raise Unsupported(f"{descriptor}: {error}")
        operand = conversion.builder.input(port.name, descriptor)
    return Tensor(port.type, operand.shape, made=operand, sources=frozenset({port.name}))


def output_operands(
    builder: MLGraphBuilder, values: Mapping[str, Tensor]
) -> dict[str, MLOperand]:
    """Operands that may be outputs: each made by a node, and none twice."""
    made: dict[str, MLOperand] = {}
    taken: set[int] = set()
    problems = []
    for name, value in values.items():
        try:
            operand = value.operand
        except Unsupported as error:
            problems.append(Problem(name, "output", str(error)))
            continue
        if not is_computed(operand) or id(operand) in taken:
            operand = builder.identity(operand)
        taken.add(id(operand))
        made[name] = operand
    if problems:
        raise UnsupportedModelError(problems)
    return made


# -- shapes ----------------------------------------------------------------------------------------
def _symbols(model: Model, inputs: Mapping[str, Any]) -> dict[str, int]:
    """Lengths of named dimensions, from the inputs that are given."""
    lengths: dict[str, int] = {}
    for name, given in inputs.items():
        port = model.inputs.get(name)
        shape = getattr(given, "shape", given)
        if port is None or port.shape is None or len(port.shape) != len(shape):
            continue
        for dimension, length in zip(port.shape, shape, strict=True):
            if isinstance(dimension, str) and not isinstance(length, MLDynamicDimension):
                lengths.setdefault(dimension, int(length))
    return lengths


def _filled(port: Port, lengths: Mapping[str, int]) -> tuple[int | str | None, ...] | None:
    if port.shape is None:
        return None
    return tuple(lengths.get(d, d) if isinstance(d, str) else d for d in port.shape)


def _complete(shape: Sequence[Any] | None) -> bool:
    known = (int, np.integer, MLDynamicDimension)
    return shape is not None and all(isinstance(d, known) for d in shape)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(sanitize(n)) for n in names) or "none"
