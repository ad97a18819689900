"""The header of a GGUF file: metadata, and where each tensor is.

The reader of the package ``gguf`` makes arrays of every string: 6 seconds and 500 MB for a
vocabulary of 150,000 tokens. It also counts as far as the file says, beyond the file's end. The
tests compare this reader with it.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from webnn_vk.generate.errors import InvalidModelError, UnsupportedModelError
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
#: Headers are smaller than this: their largest part is the tokenizer.
MAX_HEADER_BYTES = 64 << 20
#: GGUF's numbers for types of values; scalars with struct's letter for them.
_UINT32, _TEXT, _ARRAY, _UINT64 = 4, 8, 9, 10
_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", _UINT32: "I", 5: "i", 6: "f", 7: "?", _UINT64: "Q", 11: "q",
    12: "d",
}
_MAX_DIMENSIONS = 4


@dataclass(frozen=True)
class TensorEntry:
    """``kind``: ggml's number for the type. ``offset``: of the first byte, behind the header."""

    kind: int
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Header:
    """Arrays of the metadata are lists of texts, or NumPy arrays. ``end``: where the first tensor
    begins."""

    metadata: dict[str, Any]
    tensors: dict[str, TensorEntry]
    end: int


def read_header(data: np.ndarray) -> Header:
    """The header of a file's bytes. InvalidModelError, without the file's name, if it is damaged.
    """
    if data[:4].tobytes() != _MAGIC:
        raise InvalidModelError("no GGUF file")
    reader = _Reader(data, 4)
    version = reader.scalar(_UINT32)
    if version not in _VERSIONS:
        kind = "a big-endian file" if version & 0xFFFF == 0 else f"version {version}"
        raise UnsupportedModelError(f"{kind} is not supported; GGUF version 2 or 3 is expected")
    tensor_count, count = reader.scalar(_UINT64), reader.scalar(_UINT64)
    metadata: dict[str, Any] = {}
    for _ in range(count):
        name = reader.text()
        if name in metadata:
            raise InvalidModelError(f"the metadata have {sanitize(name)[:80]!r} twice")
        metadata[name] = reader.value(reader.scalar(_UINT32))
    tensors: dict[str, TensorEntry] = {}
    for _ in range(tensor_count):
        name, dimensions = reader.text(), reader.scalar(_UINT32)
        if name in tensors:
            raise InvalidModelError(f"tensor {sanitize(name)[:80]!r} is stored twice")
        if dimensions > _MAX_DIMENSIONS:
            raise InvalidModelError(f"tensor {sanitize(name)[:80]!r} has {dimensions} dimensions")
        # The file has the dimension that changes fastest first.
        shape = tuple(reader.scalar(_UINT64) for _ in range(dimensions))[::-1]
        tensors[name] = TensorEntry(reader.scalar(_UINT32), shape, reader.scalar(_UINT64))
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 1 << 20:
        raise InvalidModelError("general.alignment is not an integer from 1 to 2^20")
    return Header(metadata, tensors, math.ceil(reader.at / alignment) * alignment)


class _Reader:
    """Values one after the other. None is read beyond the end, so no count in the file makes it
    take more time or memory than the file's length would."""

    def __init__(self, data: np.ndarray, at: int) -> None:
        self._whole = data.size <= MAX_HEADER_BYTES
        self._data = memoryview(data[:MAX_HEADER_BYTES])
        self.at = at

    def bytes(self, count: int) -> memoryview:
        start, self.at = self.at, self.at + count
        if self.at > len(self._data):
            raise InvalidModelError(
                "the header is truncated" if self._whole else
                f"the header has more than {MAX_HEADER_BYTES} bytes"
            )
        return self._data[start : self.at]

    def scalar(self, kind: int) -> Any:
        form = f"<{_SCALARS[kind]}"
        return struct.unpack(form, self.bytes(struct.calcsize(form)))[0]

    def text(self) -> str:
        try:
            return str(self.bytes(self.scalar(_UINT64)), "utf-8")
        except UnicodeDecodeError:
            raise InvalidModelError("the header has a text that is not UTF-8") from None

    def value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self.scalar(kind)
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY:
            raise InvalidModelError(f"the header has a value of the unknown type {kind}")
        item, count = self.scalar(_UINT32), self.scalar(_UINT64)
        if item in _SCALARS:
            dtype = np.dtype(f"<{_SCALARS[item]}")
            return np.frombuffer(self.bytes(count * dtype.itemsize), dtype)
        if item != _TEXT:
            raise InvalidModelError(f"the header has an array of the type {item}")
        return [self.text() for _ in range(count)]
