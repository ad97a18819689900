"""The bytes of a saved program or graph in one file: constants, parameters and SPIR-V.

The file is mapped for reading, so that weights go from it to the device without a copy in between.
It is not trusted: places outside of it are a ValueError.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.support.integers import round_up

from .constants import MappedFile
from .json_forms import checked, form_of

DATA = "program.bin"
#: Large constants begin at a page, so that a device may use the file's own pages.
PAGE, _SMALL = 4096, 16


class DataWriter:
    """Appends to the file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._known: dict[bytes, list[int]] = {}
        #: Numbers of the sizes that are known at dispatch, by their terms.
        self.sizes: dict[Any, int] = {}

    def append(self, data: Any) -> list[int]:
        """The place of the bytes in the file."""
        view = memoryview(data)
        start = self._file.tell()
        alignment = PAGE if view.nbytes >= PAGE else _SMALL
        self._file.write(b"\0" * (round_up(start, alignment) - start))
        start = self._file.tell()
        self._file.write(view)
        return [start, view.nbytes]

    def bytes(self, data: bytes | memoryview) -> list[int]:
        """The place of these bytes in the file. Equal bytes are stored once."""
        key = hashlib.sha256(data).digest()
        if key not in self._known:
            self._known[key] = self.append(data)
        return self._known[key]


class DataReader:
    """Reads a mapped file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = MappedFile(path)
        #: The sizes that are known at dispatch, by their numbers.
        self.sizes: Sequence[Any] = ()

    def read(self, kind: Any, data: Any) -> Any:
        """A value of a type from its JSON form."""
        return form_of(kind).read(self, data)

    def check_place(self, offset: int, length: int) -> None:
        size = len(self.file.data)
        if offset < 0 or length < 0 or offset + length > size:
            raise ValueError(f"{self.path} of {size} bytes has no {offset}+{length}")

    def view(self, place: Any) -> Any:
        """The bytes at a place, in the mapped file."""
        offset, length = self.read(tuple[int, int], place)
        self.check_place(offset, length)
        return self.file.data[offset : offset + length]

    def bytes(self, place: Any) -> bytes:
        """A copy of the bytes at a place."""
        return self.view(place).tobytes()

    def modules(self, kernels: Any, places: Any) -> dict[KernelSpec, bytes]:
        """The SPIR-V of kernels, in order."""
        specs = [KernelSpec.from_json(data) for data in checked(kernels, list)]
        modules = [self.bytes(place) for place in checked(places, list)]
        if len(modules) != len(specs):
            raise ValueError(f"{len(modules)} modules for {len(specs)} kernels")
        if len(set(specs)) != len(modules):
            raise ValueError("a kernel is there twice")
        return dict(zip(specs, modules, strict=True))
