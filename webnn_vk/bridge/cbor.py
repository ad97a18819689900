"""CBOR (RFC 8949), as much of it as js/lib/cbor.js writes: null, booleans, integers, big integers,
float64, text, arrays, and maps with text as keys, all of known lengths.

A decoder of our own, since a frame comes from outside: cbor2 can't be told to refuse shared
references, with which a few bytes become a value that takes for ever to walk through.
"""

from __future__ import annotations

import struct
from typing import Any

#: What a header may have: levels of arrays and maps, values in all, bytes of an integer.
MAX_DEPTH, MAX_ITEMS, MAX_INTEGER = 32, 100_000, 64
_LENGTHS = {24: struct.Struct(">B"), 25: struct.Struct(">H"), 26: struct.Struct(">I"),
            27: struct.Struct(">Q")}
_FLOAT64 = struct.Struct(">d")
_SIMPLE = {20: False, 21: True, 22: None}


class CBORError(Exception):
    """Bytes that are not one value of these kinds, or exceed the limits."""


def decode(data: bytes) -> Any:
    """The value that ``data`` encodes, in time and memory that grow with its length. CBORError for
    anything else."""
    decoder = _Decoder(data)
    try:
        value = decoder.value(0)
    except (struct.error, UnicodeDecodeError) as error:
        raise CBORError(f"not CBOR: {error}") from None
    if decoder.at != len(data):
        raise CBORError("bytes after the value")
    return value


class _Decoder:
    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.items = data, 0, 0

    def value(self, depth: int) -> Any:
        self.items += 1
        if self.items > MAX_ITEMS or depth > MAX_DEPTH:
            raise CBORError(f"more than {MAX_ITEMS} values or {MAX_DEPTH} levels")
        first = self.take(1)[0]
        major, info = first >> 5, first & 31
        if major == 7:
            if info == 27:
                return _FLOAT64.unpack(self.take(8))[0]
            if info in _SIMPLE:
                return _SIMPLE[info]
            raise CBORError(f"a value of the kind {first:#04x}")
        count = self.count(info)
        match major:
            case 0:
                return count
            case 1:
                return -1 - count
            case 3:
                return self.take(count).decode("utf-8")
            case 4:
                self.expect(count)
                return [self.value(depth + 1) for _ in range(count)]
            case 5:
                self.expect(2 * count)
                return self.map(count, depth)
            case 6 if count in (2, 3):
                number = int.from_bytes(self.big())
                return -1 - number if count == 3 else number
        raise CBORError(f"a value of the kind {first:#04x}")

    def map(self, count: int, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for _ in range(count):
            key = self.value(depth + 1)
            if type(key) is not str or key in made:
                raise CBORError("a key that is no text, or twice in a map")
            made[key] = self.value(depth + 1)
        return made

    def big(self) -> bytes:
        """The bytes of an integer: a byte string, which is a value nowhere else."""
        first = self.take(1)[0]
        count = self.count(first & 31)
        if first >> 5 != 2 or count > MAX_INTEGER:
            raise CBORError(f"an integer of more than {MAX_INTEGER} bytes, or of something else")
        return self.take(count)

    def count(self, info: int) -> int:
        if info < 24:
            return info
        if info not in _LENGTHS:
            raise CBORError("a value of unknown length")
        kind = _LENGTHS[info]
        return int(kind.unpack(self.take(kind.size))[0])

    def expect(self, count: int) -> None:
        """Each value takes a byte at least."""
        if count > len(self.data) - self.at:
            raise CBORError("the value is cut off")

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            raise CBORError("the value is cut off")
        taken, self.at = self.data[self.at : end], end
        return taken
