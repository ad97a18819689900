"""``load`` and ``build_operands``: a ``.webnn`` file onto a builder."""

from __future__ import annotations

import difflib
import math
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk.api.builder import (
    MLGraphBuilder,
    MLOperand,
    constant_of,
    experimental_of,
    is_computed,
)
from webnn_vk.api.context import MLContext
from webnn_vk.api.ml_graph import MLGraph
from webnn_vk.compiler.ops import Operator
from webnn_vk.compiler.ops.arguments import Double, Number, Operands
from webnn_vk.compiler.types.data_types import MLOperandDescriptor, cast_number, check_dimensions
from webnn_vk.compiler.types.dimensions import MLDynamicDimension
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize
from webnn_vk.support.promise import MLPromise, follow_in_background

from . import weights as files
from .errors import GraphFileError
from .names import OPERATOR_NAMES, camel, listed, option_name, parameters
from .text import MAX_TEXT_BYTES, Declared, Document, Dynamic, Reference, Statement, parse

#: Bytes that all the ``@scalar`` constants of a file together may become.
MAX_FILLED_BYTES = 256 << 20
#: Numbers that the format has no digits for.
_NUMBERS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
#: The format's own example has this option, which says nothing of the operator.
_REMARKS = ("metadata",)


def load(
    path: str | os.PathLike[str],
    context: MLContext,
    *,
    weights: str | os.PathLike[str] | None = None,
    dimensions: Mapping[str, int] | None = None,
) -> MLPromise[MLGraph]:
    """A graph from a ``.webnn`` file and the tensors beside it (see docs/webnn-file.md).

    ``weights`` is the file with the tensors, relative to the graph's folder; without it
    ``NAME.safetensors`` or ``model.safetensors`` there. They are mapped, not copied: they have to
    stay as they are until the graph is built, and on the CPU device for as long as it lives.
    ``dimensions`` gives the sizes of dynamic dimensions by name. In contexts with "dynamic-shapes"
    (experimental) the others stay named dimensions.

    Rejects with GraphFileError (a ValueError), which has the line, for what is no valid file or
    describes no valid graph, OSError where the file can't be read, and as
    ``MLGraphBuilder.build`` does.
    """

    def make() -> MLPromise[MLGraph]:
        builder = MLGraphBuilder(context)
        outputs = build_operands(path, builder, weights=weights, dimensions=dimensions)
        return builder.build(outputs)

    return follow_in_background(make, "import")


def build_operands(
    path: str | os.PathLike[str],
    builder: MLGraphBuilder,
    inputs: Mapping[str, MLOperand] | None = None,
    *,
    weights: str | os.PathLike[str] | None = None,
    dimensions: Mapping[str, int] | None = None,
) -> dict[str, MLOperand]:
    """The file's outputs, name → operand, on an existing builder.

    ``inputs`` has operands of the builder that stand for inputs of the file; the other arguments
    as for ``load``. Raises what ``load`` rejects with.
    """
    place = Path(path)
    document = parse(_read(place))

    def archive() -> files.Archive:
        found = files.find(place, weights)
        if found is None:
            raise GraphFileError(
                f"there is neither {sanitize(place.stem)}.safetensors nor model.safetensors "
                "beside the graph"
            )
        return files.Archive(found)

    return _Building(document, builder, archive, dict(dimensions or {})).outputs(inputs or {})


def _read(path: Path) -> str:
    # A pipe would be waited for.
    if not stat.S_ISREG(path.stat().st_mode):
        raise GraphFileError(f"{sanitize(path.name)} is no plain file")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(min(size, MAX_TEXT_BYTES) + 1)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise GraphFileError("the text is not valid UTF-8", line) from None


@dataclass
class _Building:
    """A document's values as operands of a builder."""

    document: Document
    builder: MLGraphBuilder
    open_archive: Callable[[], files.Archive]
    dimensions: dict[str, int]
    archive: files.Archive | None = None
    values: dict[str, MLOperand] = field(default_factory=dict)
    #: The bytes of the constants of @scalar.
    filled: int = 0

    def outputs(self, given: Mapping[str, MLOperand]) -> dict[str, MLOperand]:
        document = self.document
        names = {self._title("input", d.name) for d in document.inputs}
        unknown = [sanitize(str(name)) for name in given if name not in names]
        if unknown:
            has = listed(repr(sanitize(n)) for n in sorted(names)) or "none"
            raise ValueError(f"the graph has no input {listed(map(repr, unknown))}; it has {has}")
        self._check_dimensions()
        for declared in document.inputs:
            self._define(declared.line, declared.name, self._input(declared, given))
        for declared in document.constants:
            self._define(declared.line, declared.name, self._constant(declared))
        for statement in document.nodes:
            self._node(statement)
        return self._results()

    def _results(self) -> dict[str, MLOperand]:
        made: dict[str, MLOperand] = {}
        if not self.document.outputs:
            raise GraphFileError("the graph has no output")
        for line, name in self.document.outputs:
            operand = self._value(line, name)
            title = self._title("output", name)
            if title in made:
                raise GraphFileError(f"output {sanitize(title)!r} is there already", line)
            # The builder has no inputs and constants as outputs.
            made[title] = operand if is_computed(operand) else self.builder.identity(operand)
        return made

    # -- names -----------------------------------------------------------------------------------
    def _title(self, kind: str, name: str) -> str:
        return self.document.titles.get((kind, name), name)

    def _define(self, line: int, name: str, operand: MLOperand) -> None:
        if name in self.values:
            raise GraphFileError(f"{sanitize(name)} is there already", line)
        self.values[name] = operand

    def _value(self, line: int, name: Any) -> MLOperand:
        if not isinstance(name, str):
            raise GraphFileError(f"the name of an operand is expected, not {_shown(name)}", line)
        if name not in self.values:
            raise GraphFileError(f"{sanitize(name)[:80]} is not defined before", line)
        return self.values[name]

    # -- inputs and constants --------------------------------------------------------------------
    def _check_dimensions(self) -> None:
        largest: dict[str, int] = {}
        for declared in self.document.inputs:
            for d in declared.shape:
                if isinstance(d, Dynamic):
                    if largest.setdefault(d.name, d.largest) != d.largest:
                        raise GraphFileError(
                            f"dimension {sanitize(d.name)!r} has two largest sizes", declared.line
                        )
        unknown = [n for n in self.dimensions if n not in largest]
        if unknown:
            has = listed(repr(sanitize(n)) for n in largest) or "none"
            raise ValueError(
                f"the graph has no dimension {sanitize(str(unknown[0]))!r}; it has {has}"
            )

    def _shape(self, declared: Declared) -> tuple[Any, ...]:
        return tuple(
            d if isinstance(d, int) else self._size(declared.line, d) for d in declared.shape
        )

    def _size(self, line: int, dimension: Dynamic) -> Any:
        name = sanitize(dimension.name)
        if dimension.name not in self.dimensions:
            if "dynamic-shapes" in experimental_of(self.builder):
                named = partial(MLDynamicDimension, dimension.name, dimension.largest)
                return self._call(line, named)
            raise GraphFileError(
                f"dimension {name!r} is dynamic, up to {dimension.largest}; give its size: "
                f"dimensions={{{name!r}: …}}", line
            )
        size = self.dimensions[dimension.name]
        if isinstance(size, bool) or not isinstance(size, int | np.integer):
            raise TypeError(f"dimension {name!r}: an integer is expected")
        if not 1 <= size <= dimension.largest:
            raise ValueError(f"dimension {name!r}: {size} is outside 1 … {dimension.largest}")
        return int(size)

    def _descriptor(self, declared: Declared) -> MLOperandDescriptor:
        try:
            descriptor = MLOperandDescriptor(declared.data_type, self._shape(declared))
        except TypeError as error:
            raise GraphFileError(f"{sanitize(declared.name)}: {error}", declared.line) from None
        error = check_dimensions(descriptor)
        if error is not None:
            raise GraphFileError(f"{sanitize(declared.name)}: {error}", declared.line)
        return descriptor

    def _input(self, declared: Declared, given: Mapping[str, MLOperand]) -> MLOperand:
        title = self._title("input", declared.name)
        if title not in given:
            if "dynamic-shapes" in experimental_of(self.builder):
                described = {"data_type": declared.data_type, "shape": self._shape(declared)}
                return self._call(declared.line, lambda: self.builder.input(title, described))
            descriptor = self._descriptor(declared)
            return self._call(declared.line, lambda: self.builder.input(title, descriptor))
        operand = given[title]
        what = f"input {sanitize(title)!r}"
        if not isinstance(operand, MLOperand):
            raise TypeError(f"{what}: an MLOperand is expected, not {type(operand).__name__}")
        fits = len(operand.shape) == len(declared.shape) and all(
            n == d if isinstance(d, int) else getattr(n, "max_size", n) <= d.largest
            for n, d in zip(operand.shape, declared.shape, strict=True)
        )
        if operand.data_type != declared.data_type or not fits:
            shape = listed(
                f"≤ {d.largest}" if isinstance(d, Dynamic) else str(d) for d in declared.shape
            )
            raise TypeError(
                f"{what}: {operand!r} is given; the graph has {declared.data_type}[{shape}]"
            )
        return operand

    def _constant(self, declared: Declared) -> MLOperand:
        descriptor = self._descriptor(declared)
        what = f"constant {sanitize(declared.name)}"
        if declared.how == "bytes":
            size, needed = len(declared.value), descriptor.byte_length
            if size != needed:
                raise GraphFileError(
                    f"{what}: {size} bytes are given, {descriptor} has {needed}", declared.line
                )
            array = np.frombuffer(declared.value, descriptor.numpy_dtype).reshape(descriptor.shape)
        elif declared.how == "scalar":
            array = self._full(declared, descriptor)
        else:
            try:
                if self.archive is None:
                    self.archive = self.open_archive()
                array = self.archive.view(declared.value, descriptor)
            except GraphFileError as error:
                raise GraphFileError(f"{what}: {error}", declared.line) from None
        return self._call(declared.line, lambda: constant_of(self.builder, array))

    def _full(self, declared: Declared, descriptor: MLOperandDescriptor) -> np.ndarray:
        self.filled += descriptor.byte_length
        if self.filled > MAX_FILLED_BYTES:
            raise GraphFileError(
                f"constants of @scalar with more than {MAX_FILLED_BYTES >> 20} MiB together",
                declared.line,
            )
        number = cast_number(declared.value, descriptor.data_type)
        array = np.full(descriptor.shape, number, descriptor.numpy_dtype)
        array.setflags(write=False)
        return array

    def _call(self, line: int, method: Callable[[], Any]) -> Any:
        try:
            return method()
        except TypeError as error:
            raise GraphFileError(str(error), line) from None

    # -- nodes -----------------------------------------------------------------------------------
    def _node(self, statement: Statement) -> None:
        line, results = statement.line, statement.results
        if not statement.operator:
            if len(results) != 1:
                raise GraphFileError(f"one operand for {len(results)} names", line)
            self._define(line, results[0], self._value(line, statement.positional[0][1]))
            return
        operator = OPERATOR_NAMES.get(statement.operator)
        if operator is None:
            word = statement.operator[:80]
            near = difflib.get_close_matches(word, OPERATOR_NAMES)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise GraphFileError(f"no operator is called {sanitize(word)}{hint}", line)
        lines: dict[str, int] = {}
        given = self._arguments(statement, operator, lines)
        splits = given.get("splits")
        if operator.name == "split" and isinstance(splits, int) and splits != len(results):
            # Checked before the operands are made.
            raise GraphFileError(f"split has {splits} results, not {len(results)}", lines["splits"])
        try:
            made = getattr(self.builder, operator.name)(**given)
        except TypeError as error:
            # An argument that is wrong comes first in the message.
            message = str(error).removeprefix(f"{operator.title(given.get('label', ''))}: ")
            name = re.match(r"\w*", message)[0]  # type: ignore[index]
            raise GraphFileError(str(error), lines.get(name, line)) from None
        made = made if isinstance(made, list) else [made]
        if len(made) != len(results):
            raise GraphFileError(
                f"{statement.operator} has {len(made)} results, not {len(results)}", line
            )
        for name, operand in zip(results, made, strict=True):
            self._define(line, name, operand)

    def _arguments(
        self, statement: Statement, operator: Operator, lines: dict[str, int]
    ) -> dict[str, Any]:
        """The arguments of the builder's method. The line of each is entered in ``lines``."""
        given: dict[str, Any] = {}
        known = parameters(operator)
        for name, (line, value) in statement.options.items():
            if name in _REMARKS and name not in known:
                continue
            if name == "label":
                if value is not None and not isinstance(value, str):
                    raise GraphFileError(f"label: a string is expected, not {_shown(value)}", line)
                given["label"] = value or ""
                continue
            parameter = known.get(name)
            if parameter is None:
                names = listed([*(option_name(operator, p) for p in operator.parameters), "label"])
                raise GraphFileError(
                    f"{statement.operator} has no {sanitize(name)[:80]}; it takes {names}", line
                )
            if value is None:  # as if it were not there
                continue
            if parameter.name in given:
                raise GraphFileError(f"{name} is given twice", line)
            given[parameter.name] = self._argument(line, parameter, value)
            lines[parameter.name] = line
        self._positional(statement, operator, given, lines)
        for p in operator.parameters:
            if p.name not in given and not p.optional:
                raise GraphFileError(
                    f"{statement.operator} needs {option_name(operator, p)}", statement.line
                )
        return given

    def _positional(
        self, statement: Statement, operator: Operator, given: dict[str, Any],
        lines: dict[str, int],
    ) -> None:
        """Add what stands without a name: the operands, then arguments that are needed."""
        named = {id(v) for v in given.values() if isinstance(v, MLOperand)}
        operands = [p for p in operator.operands if p.name not in given]
        arguments = [p for p in operator.arguments if p.name not in given and not p.optional]
        optional = any(p.optional and p.name in given for p in operator.operands)
        for line, value in statement.positional:
            is_operand = (
                isinstance(value, Reference)
                or (isinstance(value, str) and bool(operands))
                or (isinstance(value, list) and any(isinstance(v, Reference) for v in value))
            )
            if is_operand and operands and operands[0].argument is Operands:
                values = value if isinstance(value, list) else [value]
                many = given.setdefault(operands[0].name, [])
                many += [self._value(line, v) for v in values]
            elif is_operand and not (operands and optional and operands[0].optional):
                if not operands:
                    if id(self._value(line, value)) in named:
                        continue
                    raise GraphFileError(f"{statement.operator} has no more operands", line)
                given[operands.pop(0).name] = self._value(line, value)
            elif is_operand:
                # Optional operands by name and once more by place: rustnn writes them so.
                if id(self._value(line, value)) not in named:
                    raise GraphFileError(
                        f"{statement.operator}: operand {_shown(value)} is neither needed nor "
                        "named", line
                    )
            elif arguments:
                parameter = arguments.pop(0)
                given[parameter.name] = self._argument(line, parameter, value)
                lines[parameter.name] = line
            else:
                raise GraphFileError(
                    f"{statement.operator}: {_shown(value)} stands for no argument; options have "
                    "a name with '='", line
                )

    def _argument(self, line: int, parameter: Any, value: Any) -> Any:
        if parameter.argument is Operands:
            values = value if isinstance(value, list) else [value]
            return [self._value(line, v) for v in values]
        if parameter.is_operand:
            return self._value(line, value)
        if isinstance(value, dict):
            raise GraphFileError(f"{camel(parameter.name)}: an object is no value here", line)
        if parameter.argument in (Number, Double) and isinstance(value, str):
            return _NUMBERS.get(value, value)
        return value


def _shown(value: Any) -> str:
    return sanitize(repr(value))[:80]

