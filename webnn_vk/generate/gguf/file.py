"""A GGUF file, mapped into memory: metadata, and tensors as floats or as they are quantised."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from webnn_vk.generate.blocks import Blocks
from webnn_vk.generate.errors import InvalidModelError, UnsupportedModelError
from webnn_vk.support.errors import sanitize
from webnn_vk.support.mmap_array import drop_pages, mapped_file, own_pages

from .blocks import BLOCK_TYPES, blocks_of
from .header import TensorEntry, read_header

#: The types of tensors that are read. Most files that llama.cpp's quantisation writes have these.
TENSOR_TYPES = (
    "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K",
)
#: Elements that become floats at a time: the package needs twice the memory of what it converts.
_PART = 1 << 20


class GgufFile:
    """InvalidModelError if the file is damaged. Its bytes have to stay as they are for as long as
    anything made of them lives."""

    def __init__(self, path: Path) -> None:
        self._name = sanitize(path.name)
        try:
            self._data = mapped_file(path)
        except OSError as error:
            raise InvalidModelError(f"{self._name} can't be read: {error.strerror}") from None
        try:
            header = read_header(self._data)
        except (InvalidModelError, UnsupportedModelError) as error:
            raise type(error)(f"{self._name}: {error}") from None
        self.metadata = header.metadata
        self._tensors, self._start = header.tensors, header.end

    def names(self) -> list[str]:
        """The names of all tensors."""
        return list(self._tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def release(self) -> None:
        """Take what was read out of the resident memory. It is read again when needed."""
        drop_pages(self._data)

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, rows first. InvalidModelError if there is no such tensor."""
        return self._entry(name).shape

    def floats(self, name: str) -> np.ndarray:
        """A tensor, read-only: where it lies in the file if it is F32 or F16, else dequantised to
        float32. InvalidModelError if it is missing or not whole; UnsupportedModelError for other
        types."""
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        kind, stored = self._stored(name)
        shape = self.shape(name)
        count = math.prod(shape)
        if kind in ("F32", "F16"):
            array = stored.reshape(-1).view("<f4" if kind == "F32" else "<f2")
        else:
            array = own_pages((count,), np.dtype(np.float32))
            elements = count // max(1, len(stored))
            step = max(1, _PART // max(1, elements))
            with np.errstate(all="ignore"):
                for first in range(0, len(stored), step):
                    part = dequantize(stored[first : first + step], GGMLQuantizationType[kind])
                    array[first * elements : (first + step) * elements] = part.reshape(-1)
        array = array.reshape(shape)
        array.setflags(write=False)
        return array

    def blocks(self, name: str) -> Blocks | None:
        """A matrix as it is quantised; None for one of floats. Errors as for ``floats``."""
        kind, stored = self._stored(name)
        shape = self.shape(name)
        if kind not in BLOCK_TYPES or len(shape) != 2 or not stored.size:
            return None
        return blocks_of(stored, kind, *shape)

    def _stored(self, name: str) -> tuple[str, np.ndarray]:
        """A tensor's type and its bytes [blocks, bytes of a block]."""
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        entry = self._entry(name)
        kinds = {GGMLQuantizationType[kind].value: kind for kind in TENSOR_TYPES}
        if entry.kind not in kinds:
            known = {kind.value: kind.name for kind in GGMLQuantizationType}
            raise UnsupportedModelError(
                f"{self._name}: tensor {sanitize(name)[:80]!r} is "
                f"{known.get(entry.kind, entry.kind)}; one of {', '.join(TENSOR_TYPES)} is expected"
            )
        elements, size = GGML_QUANT_SIZES[GGMLQuantizationType(entry.kind)]
        columns = entry.shape[-1] if entry.shape else 1
        start = self._start + entry.offset
        end = start + math.prod(entry.shape) // elements * size
        if columns % elements or end > self._data.size:
            raise InvalidModelError(
                f"{self._name}: tensor {sanitize(name)[:80]!r} {list(entry.shape)} has incomplete "
                f"blocks of {elements}" if columns % elements else
                f"{self._name} is truncated: tensor {sanitize(name)[:80]!r} ends at byte {end} of "
                f"{self._data.size}"
            )
        return kinds[entry.kind], self._data[start:end].reshape(-1, size)

    def _entry(self, name: str) -> TensorEntry:
        if name not in self._tensors:
            raise InvalidModelError(f"{self._name} lacks the tensor {name!r}")
        return self._tensors[name]
