"""The arguments of an operator's function: the node, the builder, and what is known at import."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from onnx import GraphProto

from webnn_vk.api.builder import MLGraphBuilder, MLOperand
from webnn_vk.compiler.types.sizes import Size, alike

from .errors import Problem, Unsupported, refuse_if
from .nodes import NodeCall
from .scope import Scope
from .types import numpy_type
from .values import Tensor, Value

#: Operators whose second operand may be given as a number, of the first's type.
_WITH_NUMBERS = {
    "add", "sub", "mul", "div", "max", "min", "pow", "equal", "not_equal", "greater", "lesser",
    "greater_or_equal", "lesser_or_equal", "where",
}


#: Elements of a constant that an operator's function makes, at most.
MAX_MADE = 1 << 26


def check_made(*lengths: int) -> None:
    """Unsupported for the shape of a constant too large to make at import, or no shape."""
    refuse_if(any(n < 0 for n in lengths), f"it would need a table of {list(lengths)} elements")
    if math.prod(int(n) for n in lengths) > MAX_MADE:
        raise Unsupported(f"it would need a table of {list(lengths)} elements")


def view_along(axis: int, rank: int) -> list[int]:
    """A shape in which all elements are along one axis."""
    return [-1 if i == axis else 1 for i in range(rank)]


class Importing(Protocol):
    """The questions that operators may ask of their import (``convert.Conversion``)."""

    builder: MLGraphBuilder
    narrow_double: bool
    low_precision: bool
    problems: list[Problem]
    donated: frozenset[str]

    def carrier(self, name: str) -> str: ...

    def count_call(self) -> None: ...

    def tensor(self, array: np.ndarray) -> Tensor: ...

    def computed(self, operand: MLOperand, type: str) -> Tensor: ...

    def of_sizes(self, type: str, values: Any) -> Tensor: ...

    def from_table(self, type: str, start: Any, length: Any) -> MLOperand: ...

    def scalar(self, data_type: str, number: Any) -> MLOperand: ...

    def graph(
        self, graph: GraphProto, scope: Scope, inputs: Mapping[str, Value]
    ) -> dict[str, Value]: ...


class Emit:
    """The builder's methods, taking Tensors, arrays and (for the binary ones) numbers, labelled
    with the node's name."""

    def __init__(self, conversion: Importing, label: str) -> None:
        self._conversion = conversion
        self._label = label

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._conversion.builder, name)

        def call(*args: Any, **options: Any) -> Any:
            self._conversion.count_call()
            given: list[Any] = [self._operand(a) for a in args]
            options = {k: self._operand(v) for k, v in options.items()}
            if name in _WITH_NUMBERS:
                # where(condition, a, b): the numbers are a's and b's.
                first = next(
                    g for g in (given[1:] if name == "where" else given) if isinstance(g, MLOperand)
                )
                given = [
                    g
                    if isinstance(g, MLOperand)
                    else self._conversion.scalar(first.data_type, g)
                    for g in given
                ]
            return method(*given, label=self._label, **options)

        return call

    def _operand(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.operand
        if isinstance(value, np.ndarray) and value.ndim + value.size > 1:
            return self._conversion.tensor(value).operand
        if isinstance(value, (list, tuple)) and any(
            isinstance(v, (Tensor, np.ndarray)) for v in value
        ):
            return [self._operand(v) for v in value]
        return value


class NodeContext:
    """Given to the function of an operator's record as its first argument."""

    def __init__(self, conversion: Importing, scope: Scope, node: NodeCall) -> None:
        self.conversion = conversion
        self.scope = scope
        self.node = node
        #: The opset version of the node's domain, and the ONNX operator's name.
        self.version, self.operator = node.version, node.operator
        self.b = Emit(conversion, node.title)

    def wants(self, index: int) -> bool:
        """Whether the node's output of that index is used by anything."""
        outputs = self.node.outputs
        return index < len(outputs) and outputs[index] in self.scope.live

    # -- known values ----------------------------------------------------------------------------
    def ints(self, tensor: Tensor, what: str) -> list[int]:
        """The elements of a known integer tensor; sizes that are known at dispatch as they are."""
        return [v if isinstance(v, Size) else int(v) for v in tensor.elements(what)]

    def optional_ints(self, tensor: Tensor | None, what: str) -> list[int] | None:
        """The elements of a known integer tensor; None if it is left out."""
        return None if tensor is None else self.ints(tensor, what)

    def int(self, tensor: Tensor, what: str) -> int:
        """The only element of a known integer tensor."""
        values = self.ints(tensor, what)
        refuse_if(len(values) != 1, f"{what} has {len(values)} elements, one is expected")
        return values[0]

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front."""
        refuse_if(not -rank <= axis < max(rank, 1), f"axis {axis} of a tensor of rank {rank}")
        return axis % max(rank, 1)

    def axes(self, axes: Sequence[int], rank: int) -> list[int]:
        """Axes counted from the front, in order."""
        return sorted({self.axis(int(a), rank) for a in axes})

    def chosen_axes(
        self, axes: Sequence[int] | None, x: Tensor, count: int | None = None
    ) -> list[int]:
        """Axes counted from the front, as they are ordered; if None, the first ``count`` (all)."""
        if axes is None:
            return list(range(x.rank if count is None else count))
        return [self.axis(a, x.rank) for a in axes]

    # -- operands --------------------------------------------------------------------------------
    def operand(self, value: Tensor | MLOperand | np.ndarray) -> MLOperand:
        """The operand of a tensor, of an array as a constant, or itself."""
        if isinstance(value, Tensor):
            return value.operand
        if isinstance(value, np.ndarray):
            return self.conversion.tensor(value).operand
        return value

    def carrier(self, name: str) -> str:
        """The WebNN data type for an ONNX one."""
        return self.conversion.carrier(name)

    def typed(self, operand: MLOperand, name: str) -> Tensor:
        """A computed tensor whose ONNX type is said rather than inferred."""
        return self.conversion.computed(operand, name)

    def cast(self, value: Any, data_type: str) -> MLOperand:
        """The operand in another WebNN data type, itself when it has it."""
        operand = self.operand(value)
        return operand if operand.data_type == data_type else self.b.cast(operand, data_type)

    def reshape(self, value: Any, shape: Sequence[int]) -> MLOperand:
        """The operand in another shape, itself when it has it; a known one without a node."""
        if isinstance(value, Tensor) and value.array is not None:
            return self.conversion.tensor(value.array.reshape(shape)).operand
        operand = self.operand(value)
        shape = [d if isinstance(d, Size) else int(d) for d in shape]
        return operand if alike(operand.shape, shape) else self.b.reshape(operand, shape)

    def transpose(self, value: Any, permutation: Sequence[int]) -> MLOperand:
        """The operand with its axes in another order, itself when that is their order."""
        operand = self.operand(value)
        if list(permutation) == list(range(len(permutation))):
            return operand
        return self.b.transpose(operand, permutation=list(permutation))

    def slice(self, value: Any, axis: int, start: int, size: int, stride: int = 1) -> MLOperand:
        """``size`` elements of the input along one axis, counted before striding."""
        operand = self.operand(value)
        if stride != 1 and stride >= size:  # one element, which WebNN's strides may not pass
            size = stride = 1
        if stride == 1 and start == 0 and alike([size], [operand.shape[axis]]):
            return operand
        starts = [0] * len(operand.shape)
        sizes = list(operand.shape)
        strides = [1] * len(sizes)
        starts[axis], sizes[axis], strides[axis] = start, size, stride
        return self.b.slice(operand, starts, sizes, strides=strides)

    def pad(self, value: Any, padding: Sequence[tuple[int, int]], number: float = 0) -> MLOperand:
        """The operand with constant padding (before, after) per axis."""
        operand = self.operand(value)
        if not any(map(any, padding)):
            return operand
        before, after = ([p[i] for p in padding] for i in (0, 1))
        return self.b.pad(operand, before, after, value=number)

    def widened(
        self, value: Any, function: Callable[[MLOperand], MLOperand], *numbers: float
    ) -> MLOperand:
        """``function`` of the operand in float32: what is made of several operators loses digits
        of float16 with each, and more of its range. With ``numbers`` only where float16 would round
        one of them: ONNX's attributes are float32, WebNN's numbers of the operand's type."""
        operand = self.operand(value)
        if numbers and not any(np.float16(n) != np.float32(n) for n in numbers):
            return function(operand)
        return self.cast(function(self.cast(operand, "float32")), operand.data_type)

    def repeated(self, x: MLOperand, count: int) -> MLOperand:
        """Each part along the second axis ``count`` times, one after the other."""
        if count == 1:
            return x
        first, n, *rest = x.shape
        wide = self.b.expand(self.reshape(x, [first, n, 1, *rest]), [first, n, count, *rest])
        return self.reshape(wide, [first, n * count, *rest])

    def constant(self, array: Any, data_type: str) -> MLOperand:
        """A constant of a WebNN data type."""
        return self.conversion.tensor(np.asarray(array).astype(numpy_type(data_type))).operand
