"""Operand data types and descriptors (§7.5 and §7.6 of the draft)."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from itertools import islice
from typing import Any, Literal

import numpy as np

from webnn_vk.support import packages
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import reason, sanitize
from webnn_vk.support.experimental import require_experimental

from .dimensions import MLDynamicDimension
from .sizes import Size

#: The data types' names, for type checkers.
MLOperandDataType = Literal[
    "float32", "float16", "int32", "uint32", "int64", "uint64", "int8", "uint8"
]
#: Accepted forms of a data type.
DataTypeLike = MLOperandDataType | np.dtype[Any] | type[np.generic]


@dataclass(frozen=True)
class DataType:
    """A data type of operands: ``kind`` is "f", "i" or "u", ``size`` bytes."""

    name: str
    kind: str
    size: int
    numpy: np.dtype


ALL_TYPES = ("float32", "float16", "int32", "uint32", "int64", "uint64", "int8", "uint8")
FLOAT_TYPES = ("float32", "float16")
#: The data types that ``quantize_linear`` returns.
QUANTIZED_TYPES = ("uint8", "int8", "uint32", "int32")
#: The draft's eight types, and bits16, which holds elements of other 16-bit types inside the
#: compiler.
DATA_TYPES: dict[str, DataType] = {
    name: DataType(name, np.dtype(name).kind, np.dtype(name).itemsize, np.dtype(name))
    for name in ALL_TYPES
} | {"bits16": DataType("bits16", "u", 2, np.dtype("uint16"))}


@dataclass(frozen=True)
class LowPrecisionType:
    """A data type of the experimental "low-precision" (webnn#956): ``bits`` of an element,
    the ``carrier``, which holds elements inside the compiler, and the name in ml_dtypes."""

    name: str
    kind: str
    bits: int
    carrier: str
    ml_dtype: str

    @property
    def numpy(self) -> np.dtype:
        """NumPy's type, an element in a byte for types of 4 bits. TypeError without ml_dtypes."""
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError(
                packages.problem(f"arrays of {self.name} need", "low-precision")
            ) from None
        return np.dtype(getattr(ml_dtypes, self.ml_dtype))


LOW_PRECISION = {
    t.name: t
    for t in (
        LowPrecisionType("bfloat16", "f", 16, "bits16", "bfloat16"),
        LowPrecisionType("float8e4m3", "f", 8, "uint8", "float8_e4m3fn"),
        LowPrecisionType("float8e5m2", "f", 8, "uint8", "float8_e5m2"),
        LowPrecisionType("int4", "i", 4, "int8", "int4"),
        LowPrecisionType("uint4", "u", 4, "uint8", "uint4"),
    )
}
#: All data types, experimental ones too.
KNOWN_TYPES: dict[str, Any] = {**DATA_TYPES, **LOW_PRECISION}
_OF_ML_DTYPES = {t.ml_dtype: t.name for t in LOW_PRECISION.values()}
MAX_RANK = 8
MAX_DIMENSION = 2**31 - 1
#: The most items of a sequence for an argument; infinite sequences are refused.
MAX_ITEMS = 2**16


def low_precision_types(types: Sequence[str]) -> tuple[str, ...]:
    """The low-precision types that join a row of a tensor-limit table (webnn#956): bfloat16 where
    it has float16; for quantisation 8-bit floats and 4-bit integers; all where it has all types."""
    if types == ALL_TYPES:
        return tuple(LOW_PRECISION)
    if types == QUANTIZED_TYPES:
        return tuple(name for name, t in LOW_PRECISION.items() if t.bits < 16)
    return ("bfloat16",) if "float16" in types else ()


def bits_of(data_type: str) -> int:
    """The bits of an element."""
    low = LOW_PRECISION.get(data_type)
    return DATA_TYPES[data_type].size * 8 if low is None else low.bits


def require_data_type(data_type: str, experimental: Collection[str], what: str) -> None:
    """TypeError unless operands of a context with these drafts may have the data type."""
    if data_type in LOW_PRECISION:
        require_experimental(experimental, "low-precision", f"{what}: {data_type}")
    elif data_type not in ALL_TYPES:
        raise TypeError(f"{what}: {data_type!r} is not a data type; one of {', '.join(ALL_TYPES)}")


def to_u32(value: Any, what: str) -> int:
    """WebIDL ``[EnforceRange] unsigned long``: TypeError unless an integer in 0 … 2³²−1. Sizes
    that are known at dispatch stay sizes, and are in this range too."""
    if isinstance(value, MLDynamicDimension):
        return value  # type: ignore[return-value]
    return _to_integer(value, what, 0, 2**32 - 1)


def to_i32(value: Any, what: str) -> int:
    """WebIDL ``[EnforceRange] long``: TypeError unless an integer in −2³¹ … 2³¹−1. Sizes as for
    ``to_u32``."""
    return _to_integer(value, what, -(2**31), 2**31 - 1)


def _to_integer(value: Any, what: str, low: int, high: int) -> int:
    if isinstance(value, Size):
        if not low <= value <= high:
            raise TypeError(f"{what}: {value} = {value.value} is outside {low} … {high}")
        return value  # type: ignore[return-value]
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{what}: an integer is expected, not a bool ({value})")
    if isinstance(value, (float, np.floating)):
        if not math.isfinite(value) or value != int(value):
            raise TypeError(f"{what}: an integer is expected, not {shown(value)}")
        value = int(value)
    try:
        number = operator.index(value)
    except Exception as error:  # of the caller's own __index__ too
        cause = None if isinstance(error, TypeError) else error
        raise TypeError(f"{what}: an integer is expected, not {_describe(value)}") from cause
    if not low <= number <= high:
        raise TypeError(f"{what}: {shown(number)} is outside {low} … {high}")
    return number


def to_data_type(value: Any, what: str) -> str:
    """WebIDL ``MLOperandDataType``: TypeError unless one of the eight names, or NumPy's form of
    one: ``np.float32``, ``np.dtype("f4")``, ``"f4"`` (extension)."""
    name = value if isinstance(value, str) and value in KNOWN_TYPES else _numpy_name(value)
    if name not in KNOWN_TYPES:
        known = ", ".join(ALL_TYPES)
        raise TypeError(f"{what}: {_describe(value)} is not a data type; one of {known}")
    return KNOWN_TYPES[name].name


def _numpy_name(value: Any) -> str | None:
    """The name of a NumPy data type in native byte order. Codes need a size, since "l" and "int"
    are different types on different systems."""
    if isinstance(value, str):
        given = re.fullmatch("[<=>|]?(f[248]|[iu][1248])", value) is not None
    else:
        given = isinstance(value, np.dtype) or (
            isinstance(value, type) and issubclass(value, np.generic)
        )
    if not given:
        return None
    try:
        dtype = np.dtype(value)
    except TypeError:  # an abstract type, such as np.generic
        return None
    return _OF_ML_DTYPES.get(dtype.name, dtype.name) if dtype.isnative else None


def to_shape(
    value: Any, what: str, to_item: Callable[[Any, str], int] = to_u32
) -> tuple[int, ...]:
    """A sequence of ``[EnforceRange] unsigned long`` as a tuple."""
    if isinstance(value, (str, bytes, Mapping)) or not is_sequence(value):
        raise TypeError(f"{what}: a sequence of integers is expected, not {_describe(value)}")
    return tuple(to_item(d, f"{what}[{i}]") for i, d in enumerate(items(value, what)))


def items(value: Any, what: str) -> list[Any]:
    """The items of any sequence; TypeError if iterating fails or does not end."""
    try:
        found = list(islice(value, MAX_ITEMS + 1))
    except Exception as error:
        raise TypeError(f"{what}: {_describe(value)} gives no items: {reason(error)}") from error
    if len(found) > MAX_ITEMS:
        raise TypeError(f"{what}: {type(value).__name__} of more than {MAX_ITEMS} items")
    return found


def entries(value: Any, expected: str) -> dict[Any, Any]:
    """The names and values of any mapping; a dictionary is returned as it is. TypeError, with the
    text ``expected``, for other values and if iterating fails."""
    if type(value) is dict:
        return value  # isinstance with an abstract class costs more than the rest of a dispatch
    if not isinstance(value, Mapping):
        raise TypeError(f"{expected}, not {_describe(value)}")
    try:
        return dict(value.items())
    except Exception as error:
        raise TypeError(
            f"{expected}; {type(value).__name__} gives no names and values: {reason(error)}"
        ) from error


def is_sequence(value: Any) -> bool:
    """Whether ``value`` has items to iterate over; an array without axes has none."""
    return isinstance(value, Sequence) or (isinstance(value, np.ndarray) and value.ndim > 0)


def shown(value: Any) -> str:
    """A value for a message, in one line of limited length. Does not raise: Python refuses to print
    integers of thousands of digits, and the ``repr`` of callers' objects may raise."""
    if isinstance(value, int) and value.bit_length() > 4096:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = sanitize(repr(value))
    except Exception:
        return f"an object of {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_SHOWN = 480


def _describe(value: Any) -> str:
    return f"{type(value).__name__} {shown(value)}"


def to_bool(value: Any, what: str) -> bool:
    """WebIDL ``boolean``: the truth value of ``value``; TypeError if it has none (an array)."""
    try:
        return bool(value)
    except Exception as error:
        raise TypeError(
            f"{what}: a bool is expected, not {type(value).__name__}: {reason(error)}"
        ) from error


def _names(keys: Iterable[Any]) -> str:
    return ", ".join(sorted(map(str, keys)))


@dataclass(frozen=True)
class MLOperandDescriptor:
    """Data type and shape of an operand (§7.6): ``data_type`` is one of the IDL's strings,
    ``shape`` a tuple of up to 8 dimensions in elements (``()`` is a scalar)."""

    data_type: MLOperandDataType
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_type", to_data_type(self.data_type, "data_type"))
        object.__setattr__(self, "shape", to_shape(self.shape, "shape"))

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def byte_length(self) -> int:
        """Packed length in bytes (§7.6, "byte length")."""
        low = LOW_PRECISION.get(self.data_type)
        if low is not None:
            return (self.size * low.bits + 7) // 8
        return self.size * DATA_TYPES[self.data_type].size

    @property
    def numpy_dtype(self) -> np.dtype:
        """The data type as NumPy's dtype."""
        return KNOWN_TYPES[self.data_type].numpy

    def keys(self) -> list[str]:
        """The members' names, for ``{**descriptor, "readable": True}`` and
        ``MLTensorDescriptor(**descriptor, readable=True)`` (extension). At once; raises nothing."""
        return list(self.__dataclass_fields__)

    def __getitem__(self, member: str) -> Any:
        if member not in self.__dataclass_fields__:
            raise KeyError(member)
        return getattr(self, member)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __str__(self) -> str:
        return f"{self.data_type}[{', '.join(map(str, self.shape))}]"


def elements(data: np.ndarray, descriptor: MLOperandDescriptor) -> np.ndarray:
    """The elements in the bytes of a tensor (``data``, flat): a view, or for types of 4 bits a new
    array."""
    data = data.view(np.uint8)[: descriptor.byte_length]
    if bits_of(descriptor.data_type) == 4:
        data = np.stack([data & 15, data >> 4], -1).reshape(-1)[: descriptor.size]
        data = (data.view(np.int8) ^ 8) - 8 if descriptor.data_type == "int4" else data
        return data.astype(descriptor.numpy_dtype).reshape(descriptor.shape)
    return data.view(descriptor.numpy_dtype).reshape(descriptor.shape)


@dataclass(frozen=True)
class MLTensorDescriptor(MLOperandDescriptor):
    """Descriptor of a tensor (§7.7): ``readable`` allows ``read_tensor``; ``writable`` allows
    ``write_tensor``; ``importable_to_web_gpu`` (from the explainer) allows ``export_to_gpu`` on a
    context that was created on a GPUDevice."""

    readable: bool = field(default=False, kw_only=True)
    writable: bool = field(default=False, kw_only=True)
    importable_to_web_gpu: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for flag in _FLAGS:
            object.__setattr__(self, flag, to_bool(getattr(self, flag), flag))


_FLAGS = ("readable", "writable", "importable_to_web_gpu")


def to_descriptor(
    value: Any, kind: type[MLOperandDescriptor] = MLOperandDescriptor, what: str = ""
) -> Any:
    """The descriptor dataclass ``kind`` from an instance or from any mapping with its keys.
    ``what`` names the call in messages. TypeError for other values, and if reading the mapping
    fails."""
    if type(value) is kind:
        return value
    try:
        if not isinstance(value, MLOperandDescriptor):
            _check_members(value, kind)
        return kind(**{key: value[key] for key in kind.__dataclass_fields__ if key in value})
    except TypeError as error:
        if not what:
            raise
        raise TypeError(f"{what}: {error}") from error.__cause__
    except MemoryError:
        raise
    except Exception as error:  # of a mapping of the caller's
        where = f"{what}: " if what else ""
        raise TypeError(f"{where}the descriptor can't be read: {reason(error)}") from error


def _check_members(value: Any, kind: type[MLOperandDescriptor]) -> None:
    """TypeError unless it is a mapping with a descriptor's members."""
    if not isinstance(value, Mapping):
        raise TypeError(
            f"a descriptor is expected ({kind.__name__} or a mapping with data_type and shape), "
            f"not {_describe(value)}"
        )
    missing = [key for key in ("data_type", "shape") if key not in value]
    if missing:
        raise TypeError(f"the descriptor lacks {', '.join(missing)}; it has {_names(value)}")
    # A dictionary's unknown members are ignored in WebIDL; a mistyped one should not be.
    unknown = set(value) - set(kind.__dataclass_fields__) - set(_FLAGS)
    if unknown:
        raise TypeError(f"the descriptor has unknown members {_names(unknown)}")


#: The smallest valid dimension: 0 where ``empty_dimensions`` allows it.
_smallest: ContextVar[int] = ContextVar("smallest dimension", default=1)


@contextmanager
def empty_dimensions(allowed: bool = True) -> Iterator[None]:
    """Dimensions of size 0 are valid within (webnn#391), if ``allowed``."""
    token = _smallest.set(0 if allowed else _smallest.get())
    try:
        yield
    finally:
        _smallest.reset(token)


def smallest_dimension() -> int:
    """The smallest valid dimension, 1 unless ``empty_dimensions`` allows 0."""
    return _smallest.get()


def check_dimensions(
    descriptor: MLOperandDescriptor, max_byte_length: int | None = None
) -> str | None:
    """The reason why no operand may have the descriptor, or None (§7.6, "check dimensions").
    ``max_byte_length``: the device's limit (``max_tensor_byte_length``)."""
    if descriptor.rank > MAX_RANK:
        return f"rank {descriptor.rank} exceeds {MAX_RANK}"
    for i, d in enumerate(descriptor.shape):
        if not _smallest.get() <= d <= MAX_DIMENSION:
            return f"dimension {i} is {d}; a dimension is {_smallest.get()} … {MAX_DIMENSION}"
    if descriptor.size > MAX_DIMENSION:
        return f"{list(descriptor.shape)} has {descriptor.size} elements; {MAX_DIMENSION} at most"
    if max_byte_length is not None and descriptor.byte_length > max_byte_length:
        return (
            f"{descriptor.byte_length} bytes exceed max_tensor_byte_length {max_byte_length}"
        )
    return None


def require_dimensions(
    descriptor: MLOperandDescriptor, max_byte_length: int | None, what: str
) -> None:
    """TypeError, with the reason of ``check_dimensions``, if no operand may have the descriptor.
    ``what`` names the call."""
    error = check_dimensions(descriptor, max_byte_length)
    if error is not None:
        raise TypeError(f"{what}: {descriptor}: {error}")


def cast_number(value: int | float, data_type: str) -> int | float:
    """An MLNumber cast to a data type (§9.2, "cast" of a number): the value it will have.

    Integers are clamped to the type's range. A fraction is truncated, as in the specification's
    tests (its text rounds to even); NaN becomes 0.
    """
    dtype = KNOWN_TYPES[data_type]
    if dtype.kind == "f":
        number = _to_float(value)
        # Without np.errstate: a signal handler may end this anywhere, and would leave it set.
        if abs(number) >= _OVERFLOWS[data_type]:
            largest = _LARGEST.get(data_type, math.inf)
            return math.copysign(largest, number)
        return float(dtype.numpy.type(number))
    low, high = integer_range(data_type)
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        if math.isinf(value):
            return high if value > 0 else low
    return min(max(int(value), low), high)


#: The least magnitude that rounds to infinity.
_OVERFLOWS = {
    "float32": 2.0**128 - 2.0**103, "float16": 65520.0, "bfloat16": 2.0**128 - 2.0**119,
    "float8e4m3": 448.0, "float8e5m2": 57344.0,
}
#: Numbers of types that saturate.
_LARGEST = {"float8e4m3": 448.0, "float8e5m2": 57344.0}


def integer_range(data_type: str) -> tuple[int, int]:
    """The least and the largest number of an integer type."""
    bits = bits_of(data_type)
    kind = KNOWN_TYPES[data_type].kind
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind == "i" else (0, (1 << bits) - 1)


def cast_loss(value: int | float, data_type: str) -> str | None:
    """A description of the loss when a number is cast, or None: a fraction or magnitude that an
    integer type can't hold, or a finite number that becomes infinite. Rounding of floats is no
    loss."""
    cast = cast_number(value, data_type)
    if KNOWN_TYPES[data_type].kind == "f":
        finite = isinstance(value, int) or math.isfinite(value)
        return f"overflows to {cast}" if finite and math.isinf(cast) else None
    if value == cast:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return f"becomes {cast}"
    return f"is {'truncated' if int(value) == cast else 'clamped'} to {cast}"


def _to_float(value: int | float) -> float:
    """The nearest double. Of the two neighbours of an integer of more than 53 bits the odd one, so
    that rounding it to a smaller type is as rounding the integer."""
    if isinstance(value, int) and (beyond := value.bit_length() - 53) > 0:
        rest = value & ((1 << beyond) - 1)
        value = (value >> beyond | (rest != 0)) << beyond
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
