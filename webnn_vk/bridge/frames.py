"""Frames: what goes over the FIFOs, in both directions.

A frame is a head of 24 bytes, a CBOR header, and raw bytes (elements of a tensor). Little-endian:

    u32  CRC-32 of the other 20 bytes of the head and of the header
    u32  length of the header
    u64  length of the raw bytes
    u32  request number; a reply has its request's, an event has 0
    u8   kind
    3 bytes, 0

The checksum covers what is asked, not the raw bytes: any bytes are elements.
"""

from __future__ import annotations

import os
import struct
import zlib
from enum import IntEnum
from typing import Any, NamedTuple

import cbor2
import numpy as np

from .cbor import CBORError, decode

#: Raised when frames or methods change; client and bridge must have the same.
PROTOCOL = 1
MAX_HEADER = 2**20
MAX_RAW = 2**33
_HEAD = struct.Struct("<IIQIBxxx")
_CHECKED = struct.Struct("<IQIBxxx")


class Kind(IntEnum):
    """Kinds of frames: requests first, then replies."""

    HELLO = 1  # {protocol, version}; the first frame; replied to likewise
    CALL = 2  # [method, arguments]; replied to at once
    START = 3  # [method, arguments]; replied to after a POLL or CALL, when the result is there
    POLL = 4  # null; replied to at once, after the replies and events that wait
    RELEASE = 5  # [object, …]; no reply
    VALUE = 16  # the result
    ERROR = 17  # [name, message]
    EVENT = 18  # [event, object, message]


class Frame(NamedTuple):
    """A frame with its header decoded. The header of one that memory doesn't hold is the
    MemoryError, and there are no raw bytes."""

    kind: int
    request: int
    header: Any
    raw: np.ndarray | None = None


class DamagedFrame(Exception):
    """Bytes that are not a frame. The bytes after them can't be read either."""


class RawMemory:
    """Memory for raw bytes, used again for the next frame: fresh pages would take as long as the
    transfer."""

    _KEPT = 2**28

    def __init__(self) -> None:
        self._array = np.empty(0, np.uint8)
        #: For a header; had from the beginning, so that each frame can be read to its end.
        self.header = memoryview(bytearray(MAX_HEADER))

    def take(self, size: int) -> np.ndarray:
        if size > self._KEPT:
            return np.empty(size, np.uint8)
        if self._array.size < size:
            self._array = np.empty(size, np.uint8)
        return self._array[:size]


def read_frame(fd: int, memory: RawMemory | None = None) -> Frame | None:
    """The next frame; None at the end. The raw bytes of the frame before are overwritten if both
    use a ``memory``. Raises DamagedFrame."""
    memory = memory or RawMemory()
    head = _read(fd, _HEAD.size)
    if head is None:
        return None
    checksum, length, raw_length, request, kind = _HEAD.unpack(head)
    if length > MAX_HEADER or raw_length > MAX_RAW:
        raise DamagedFrame(f"a header of {length} bytes and {raw_length} raw bytes is too large")
    header = memory.header[:length]
    _read_all(fd, header)
    if zlib.crc32(header, zlib.crc32(head[4:])) != checksum:
        raise DamagedFrame("the checksum is wrong")
    try:
        raw = memory.take(raw_length) if raw_length else None
        value = _decoded(bytes(header))
    except MemoryError as error:
        raw, value = None, error.with_traceback(None)
    if raw is not None:
        _read_all(fd, memoryview(raw))
    else:
        while raw_length:
            part = memory.header[:raw_length]
            _read_all(fd, part)
            raw_length -= len(part)
    return Frame(kind, request, value, raw)


def write_frame(fd: int, frame: Frame) -> None:
    """Write a frame; waits for the reader. Raises OSError when there is no reader any more."""
    header = cbor2.dumps(frame.header)
    raw = frame.raw
    size = 0 if raw is None else raw.nbytes
    checked = _CHECKED.pack(len(header), size, frame.request, frame.kind)
    start = zlib.crc32(header, zlib.crc32(checked)).to_bytes(4, "little") + checked + header
    parts = [memoryview(start)]
    if raw is not None and size:
        parts.append(memoryview(np.ascontiguousarray(raw).reshape(-1).view(np.uint8)))
    while parts:
        written = os.writev(fd, parts)
        while parts and written >= len(parts[0]):
            written -= len(parts.pop(0))
        if parts:
            parts[0] = parts[0][written:]


def _decoded(header: bytes) -> Any:
    """The header's value: null, booleans, numbers, text, lists, and maps with text as keys."""
    try:
        return decode(header)
    except CBORError as error:
        raise DamagedFrame(f"the header: {error}") from None


def _read(fd: int, size: int) -> bytes | None:
    """Exactly ``size`` bytes; None at the end before the first of them."""
    data = os.read(fd, size) if size else b""
    if len(data) == size:
        return data
    if not data:
        return None
    rest = bytearray(size - len(data))
    _read_all(fd, memoryview(rest))
    return data + rest


def _read_all(fd: int, view: memoryview) -> None:
    """Fill ``view``."""
    while view:
        count = os.readv(fd, [view])
        if not count:
            raise DamagedFrame("the stream ends inside a frame")
        view = view[count:]
