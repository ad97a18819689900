"""Weights inside of a model file, read where they lie.

Protobuf would copy them twice: into the message, and out of it. Here the file stays mapped; its
wire format is walked down to the large tensors of the graph, and a small model is put together in
which they are external data of the file itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onnx import TensorProto

#: The location that stands for the model's own file.
OWN_FILE = "\0own"
#: Smaller tensors stay in the message.
_MIN_BYTES = 1 << 12
# Field numbers of onnx.proto, which never change.
_GRAPH, _INITIALIZER, _DATA_TYPE, _RAW_DATA, _DATA_LOCATION = 7, 5, 2, 9, 14
#: Fields whose elements lie as NumPy wants them, and the data type that they then have.
_PACKED = {4: TensorProto.FLOAT, 10: TensorProto.DOUBLE}
_LENGTH_DELIMITED = 2


class _Damaged(Exception):
    pass


def without_weights(data: memoryview) -> bytes | None:
    """The model's bytes with its large initializers as external data at ``OWN_FILE``; None where
    there are none, or where the file is odd: protobuf then has the say."""
    try:
        return _rewritten(data, 0, len(data), _GRAPH, _graph)
    except _Damaged:
        return None


def _graph(data: memoryview, start: int, end: int) -> bytes | None:
    return _rewritten(data, start, end, _INITIALIZER, _tensor)


def _rewritten(
    data: memoryview, start: int, end: int, field: int,
    rewrite: Callable[[memoryview, int, int], bytes | None],
) -> bytes | None:
    """A message with its ``field`` rewritten where ``rewrite`` returns something; None where it
    never does."""
    parts: list[bytes] = []
    found = False
    for number, wire, first, value, last in _fields(data, start, end):
        small = None
        if number == field and wire == _LENGTH_DELIMITED:
            small = rewrite(data, value, last)
        found |= small is not None
        parts.append(bytes(data[first:last]) if small is None else _field(field, small))
    return b"".join(parts) if found else None


def _tensor(data: memoryview, start: int, end: int) -> bytes | None:
    """A tensor without its elements' bytes, which it names as external data instead; None for a
    small tensor."""
    if end - start < _MIN_BYTES:
        return None
    parts: list[bytes] = []
    found: dict[int, tuple[int, int]] = {}
    data_type = 0
    for number, wire, first, value, last in _fields(data, start, end):
        if number == _DATA_LOCATION:
            return None
        if number == _DATA_TYPE and wire == 0:
            data_type = _varint(data, value, last)[0]
        if number in (_RAW_DATA, *_PACKED) and wire == _LENGTH_DELIMITED and last - value:
            if found:
                return None
            found[number] = value, last - value
        else:
            parts.append(bytes(data[first:last]))
    ((number, raw),) = found.items() or [(0, (0, 0))]
    if raw[1] < _MIN_BYTES or _PACKED.get(number, data_type) != data_type:
        return None
    place = TensorProto(data_location=TensorProto.EXTERNAL)
    place.external_data.add(key="location", value=OWN_FILE)
    place.external_data.add(key="offset", value=str(raw[0]))
    place.external_data.add(key="length", value=str(raw[1]))
    # Messages one after the other are merged.
    return b"".join(parts) + place.SerializeToString()


def _fields(data: memoryview, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """(number, wire type, start, start of the value, end) of a message's fields."""
    at = start
    while at < end:
        first = at
        key, at = _varint(data, at, end)
        number, wire = key >> 3, key & 7
        value = at
        if wire == 0:
            _, at = _varint(data, at, end)
        elif wire == 1:
            at += 8
        elif wire == _LENGTH_DELIMITED:
            length, value = _varint(data, at, end)
            at = value + length
        elif wire == 5:
            at += 4
        else:
            raise _Damaged
        if at > end:
            raise _Damaged
        yield number, wire, first, value, at


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise _Damaged
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
    raise _Damaged


def _field(number: int, content: bytes) -> bytes:
    length, head = len(content), bytearray([number << 3 | _LENGTH_DELIMITED])
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + content
