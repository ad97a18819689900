"""JSON forms of the dataclasses of a program, derived from their type hints.

A dataclass is a list of its fields that count in comparisons, in their order; a tuple is a list; a
mapping is an object. A step or a segment begins with its tag. Bytes are stored elsewhere: a writer
has ``bytes(data)``, which returns a place for them, and numbers for its ``kernels`` and ``sizes``;
a reader has ``bytes(place)``, ``view(place)``, ``kernel(number)`` and ``sizes``. Readers check what
they read: ValueError for another form.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from webnn_vk.codegen.spec import KernelSpec

from ..ir import Graph
from ..types.data_types import KNOWN_TYPES, MLOperandDescriptor, check_dimensions
from ..types.sizes import Size
from .program import (
    BarrierStep,
    CopyStep,
    CpuStep,
    CpuTensor,
    DeviceSegment,
    DispatchStep,
    HostSegment,
    RepeatStep,
    SpecConstants,
)

_TAGS: dict[Any, str] = {
    DispatchStep: "dispatch", CopyStep: "copy", CpuStep: "operator", BarrierStep: "barrier",
    RepeatStep: "repeat",
    DeviceSegment: "device", HostSegment: "cpu",
}


class Form(NamedTuple):
    """``write(writer, value)`` returns the JSON form of a value, ``read(reader, data)`` the value
    of a form."""

    write: Callable[[Any, Any], Any]
    read: Callable[[Any, Any], Any]


def checked(data: Any, kind: type) -> Any:
    """``data``, which has to be exactly of this type."""
    if type(data) is not kind:
        raise ValueError(f"{data!r} in the file is no {kind.__name__}")
    return data


@cache
def form_of(kind: Any) -> Form:
    """The form of the values of a type."""
    if kind in _FORMS:
        return _FORMS[kind]
    origin, items = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return _tagged({_TAGS[item]: item for item in items})
    if origin is Mapping:
        member = form_of(items[1])
        return Form(
            lambda writer, value: {k: member.write(writer, v) for k, v in value.items()},
            lambda reader, data: {
                k: member.read(reader, v) for k, v in checked(data, dict).items()
            },
        )
    if origin is not tuple:
        hints = type_hints(kind)
        names = [field.name for field in fields(kind) if field.compare]
        return _row(
            [hints[name] for name in names], kind,
            lambda value: [getattr(value, name) for name in names],
        )
    if items[-1] is not Ellipsis:
        return _row(items)
    item = form_of(items[0])
    return Form(
        lambda writer, value: [item.write(writer, v) for v in value],
        lambda reader, data: tuple([item.read(reader, v) for v in checked(data, list)]),
    )


def type_hints(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields. The names in them are its module's, also where a
    field has the name of a type."""
    names = {**vars(sys.modules[kind.__module__]), "Graph": Graph}
    return get_type_hints(kind, names, names)


def _row(
    kinds: Iterable[Any], make: Callable[..., Any] = lambda *items: items,
    items_of: Callable[[Any], Iterable[Any]] = lambda items: items,
) -> Form:
    """A list of items of these types, from which ``make`` makes the value."""
    forms = [form_of(kind) for kind in kinds]
    types = [*kinds] if {*kinds} <= {int, str} else None

    def write(writer: Any, value: Any) -> list[Any]:
        return [form.write(writer, item)
                for form, item in zip(forms, items_of(value), strict=True)]

    def read(reader: Any, data: Any) -> Any:
        if type(data) is list and [*map(type, data)] == types:  # most rows, at once
            return make(*data)
        if len(checked(data, list)) != len(forms):
            raise ValueError(f"{data!r} has not {len(forms)} items")
        return make(*[form.read(reader, item) for form, item in zip(forms, data, strict=True)])

    return Form(write, read)


def _tagged(kinds: dict[str, Any]) -> Form:
    """A list that begins with the tag of one of these types, whose forms are found when they are
    needed: repeated steps may be among their own steps."""

    def write(writer: Any, value: Any) -> list[Any]:
        tag = _TAGS[type(value)]
        return [tag, *form_of(kinds[tag]).write(writer, value)]

    def read(reader: Any, data: Any) -> Any:
        match checked(data, list):
            case [str(tag), *items] if tag in kinds:
                return form_of(kinds[tag]).read(reader, items)
        raise ValueError(f"{data!r} is none of {', '.join(kinds)}")

    return Form(write, read)


def described(data_type: str, shape: tuple[int, ...]) -> MLOperandDescriptor:
    """The descriptor that is stored in this form."""
    if data_type not in KNOWN_TYPES:
        raise ValueError(f"{data_type!r} is not a data type")
    descriptor = MLOperandDescriptor(data_type, shape)
    error = check_dimensions(descriptor)
    if error is not None:
        raise ValueError(f"{descriptor}: {error}")
    return descriptor


def _plain(writer: Any, value: Any) -> Any:
    """An operator's argument: numbers that JSON lacks as {"float": text}, a size that is known at
    dispatch as {"size": number}."""
    if isinstance(value, tuple):
        return [_plain(writer, item) for item in value]
    if type(value) is float and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, Size):
        return {"size": writer.sizes.setdefault(value.terms, len(writer.sizes))}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(f"an argument of type {type(value).__name__} can't be written: {value!r}")


def _argument(reader: Any, data: Any) -> Any:
    match data:
        case list():
            return tuple(_argument(reader, item) for item in data)
        case {"float": "inf" | "-inf" | "nan" as text, **others} if not others:
            return float(text)
        case {"size": number, **others} if not others:
            if checked(number, int) not in range(len(reader.sizes)):
                raise ValueError(f"there is no size {number}")
            return reader.sizes[number]
        case dict():
            raise ValueError(f"{data!r} is not an argument")
    return data


def _dimension(reader: Any, data: Any) -> Any:
    return _argument(reader, data) if isinstance(data, dict) else checked(data, int)


def _words(reader: Any, data: Any) -> SpecConstants:
    """Values of 4 bytes, numbered from 0."""
    packed = bytes.fromhex(checked(data, str))
    return tuple((i // 4, packed[i : i + 4]) for i in range(0, len(packed), 4))


_FORMS: dict[Any, Form] = {
    int: Form(lambda writer, value: value, lambda reader, data: checked(data, int)),
    str: Form(lambda writer, value: value, lambda reader, data: checked(data, str)),
    bytes: Form(
        lambda writer, value: writer.bytes(value), lambda reader, data: reader.bytes(data)
    ),
    memoryview: Form(
        lambda writer, value: writer.bytes(value), lambda reader, data: reader.view(data)
    ),
    Size: Form(_plain, _dimension),
    KernelSpec: Form(
        lambda writer, value: writer.kernels[value], lambda reader, data: reader.kernel(data)
    ),
    Any: Form(_plain, _argument),
    SpecConstants: Form(
        lambda writer, value: b"".join(data for _, data in value).hex(), _words
    ),
}
_FORMS[MLOperandDescriptor] = _row(
    (str, tuple[Size, ...]), described, lambda value: (value.data_type, value.shape)
)
# A tensor of a CPU step has its descriptor's items in its own list.
_FORMS[CpuTensor] = _row(
    (int, str, tuple[int, ...]),
    lambda slot, data_type, shape: CpuTensor(slot, described(data_type, shape)),
    lambda value: (value.slot, value.descriptor.data_type, value.descriptor.shape),
)
