"""Constants of the graph that a builder describes (§8.9.3)."""

from __future__ import annotations

import warnings
import zlib
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from webnn_vk.compiler.ir import Value
from webnn_vk.compiler.ops.arguments import Number
from webnn_vk.compiler.types.buffers import as_bytes, check_byte_order
from webnn_vk.compiler.types.data_types import (
    ALL_TYPES,
    MLOperandDescriptor,
    cast_loss,
    cast_number,
    elements,
    empty_dimensions,
    require_data_type,
    require_dimensions,
    shown,
    to_data_type,
    to_descriptor,
)
from webnn_vk.runtime.tensor_state import TensorState, owned
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.mmap_array import file_range, own_copy
from webnn_vk.support.promise import kind_of

from .operand import MLOperand
from .tensor import MLTensor


@dataclass(frozen=True, eq=False)
class TensorValue(Value):
    """A constant that comes from a constant tensor, kept to see whether it was destroyed."""

    tensor: TensorState = field(kw_only=True)


class Constants:
    """The builder's methods for constants."""

    __slots__ = ()

    if TYPE_CHECKING:
        # The builder's attributes.
        def __getattr__(self, name: str) -> Any: ...

    def constant(self, *args: Any, **named: Any) -> MLOperand:
        """A constant (§8.9.3), in one of four forms:

        ``constant(descriptor, buffer)``: the buffer's bytes, copied;
        ``constant(data_type, value)``: a scalar. The number is cast as the specification says:
        integer types clamp it to their range and truncate, NaN becomes 0, floats round; a
        RuntimeWarning reports any loss beyond rounding;
        ``constant(tensor)``: a constant tensor of this context;
        ``constant(array)``: data type and shape from a NumPy array, copied (extension). A read-only
        ``np.memmap`` is a range of a file instead: it is read when the graph is set up, the file
        must not change before, and graphs of a context share what they make of a range.

        Returns at once. Raises TypeError for data that does not match, a tensor of another context
        or one that is not constant; InvalidStateError for a destroyed tensor, after ``build()`` and
        when the context is lost.
        """
        match (*args, *_by_name(named, len(args))):
            case (MLTensor() as tensor,):
                return self._constant_tensor(tensor)
            case (np.ndarray() | np.generic() as array,):
                if array.dtype == np.bool_:
                    array = np.asarray(array).view(np.uint8)
                check_byte_order(array, "constant")
                try:
                    described = MLOperandDescriptor(array.dtype, array.shape)
                except TypeError:
                    raise TypeError(
                        f"constant: no operand has elements of {array.dtype}; array.astype("
                        f"np.float32), or another of {', '.join(ALL_TYPES)}, converts it"
                    ) from None
                if (place := file_range(array)) is not None:
                    return self._stored_constant(described, array, f"{place} {described}")
                return self._constant_buffer(described, array)
            case (str() | type() | np.dtype() as data_type, value):
                return self._constant_number(to_data_type(data_type, "constant"), value)
            case (descriptor, buffer):
                return self._constant_buffer(to_descriptor(descriptor, what="constant"), buffer)
        raise TypeError(
            "constant: (descriptor, buffer), (data_type, value), (tensor) or (array) is expected, "
            f"not ({', '.join(map(kind_of, args))})"
        )

    def _constant_buffer(self, descriptor: MLOperandDescriptor, buffer: Any) -> MLOperand:
        self._check_can_build("constant")
        require_data_type(descriptor.data_type, self._experimental, "constant")
        with empty_dimensions(self._has_empty):
            require_dimensions(descriptor, self._max_byte_length, "constant")
        return self._constant_value(descriptor, as_bytes(buffer, descriptor, "constant"))

    def _stored_constant(
        self, descriptor: MLOperandDescriptor, array: np.ndarray, key: str | None
    ) -> MLOperand:
        """A constant that reads the array's memory, which must not change."""
        self._check_can_build("constant")
        require_data_type(descriptor.data_type, self._experimental, "constant")
        with empty_dimensions(self._has_empty):
            require_dimensions(descriptor, self._max_byte_length, "constant")
        if not array.flags.aligned and self._on_host:
            array = array.copy()
        data = np.asarray(array, order="C").view()
        data.setflags(write=False)
        return self._operand(Value(descriptor, data=data, key=key), "constant")

    def _constant_number(self, data_type: str, value: Any) -> MLOperand:
        """A scalar. The caller is called by the user's code, for the place of a warning."""
        number = Number.convert(value, "constant")
        self._check_can_build("constant")
        require_data_type(data_type, self._experimental, "constant")
        loss = cast_loss(number, data_type)
        if loss is not None:
            warnings.warn(
                f"constant: {shown(number)} {loss} as {data_type}", RuntimeWarning, stacklevel=3
            )
        descriptor = MLOperandDescriptor(data_type, ())
        data = np.array(cast_number(number, data_type), descriptor.numpy_dtype)
        return self._constant_value(descriptor, data.reshape(-1).view(np.uint8))

    def _constant_value(self, descriptor: MLOperandDescriptor, given: np.ndarray) -> MLOperand:
        """A constant with a copy of these bytes, or an equal one that exists already."""
        key = descriptor, zlib.crc32(given)
        # Two threads at once may store a constant twice.
        equal = self._constants.setdefault(key, [])
        for value in equal:
            if _equal_bytes(value.data.reshape(-1).view(np.uint8), given):
                break
        else:
            data = elements(own_copy(given), descriptor)
            data.setflags(write=False)
            value = Value(descriptor, data=data)
            equal.append(value)
        return self._operand(value, "constant")

    def _constant_tensor(self, tensor: MLTensor) -> MLOperand:
        state = owned(tensor, self._context._state, "constant")
        storage = state.use("constant")
        if not tensor.constant:
            raise TypeError(f"constant: {tensor!r} is not a constant tensor")
        self._check_can_build("constant")
        value = TensorValue(to_descriptor(state.descriptor), source=storage, tensor=state)
        return self._operand(value, "constant")


def elements_of(value: Value) -> np.ndarray | None:
    """The elements of a constant of a builder. A constant tensor is read from its device."""
    if isinstance(value, TensorValue):
        return value.tensor.read("export").result()
    return value.data


_CONSTANT_FORMS = (
    ("descriptor", "buffer"), ("data_type", "value"), ("tensor",), ("array",)
)


def _equal_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    """Compares two flat arrays of equal length in parts, because weights are large."""
    part = 2**20
    return all(
        np.array_equal(a[start : start + part], b[start : start + part])
        for start in range(0, a.size, part)
    )


def _by_name(named: dict[str, Any], first: int) -> list[Any]:
    """The arguments of ``constant`` given by name, after ``first`` positional ones."""
    for form in _CONSTANT_FORMS:
        if named.keys() == set(form[first:]):
            return [named[name] for name in form[first:]]
    if named:
        raise TypeError(f"constant: no form has {first} arguments before {', '.join(named)}")
    return []
