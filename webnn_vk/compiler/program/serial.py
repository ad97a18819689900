"""A program in files: ``program.json`` for its structure, ``program.bin`` for bytes.

``program.bin`` holds parameters, push constants, constants and the kernels' SPIR-V. It is mapped
for reading, so that weights go from the file to the device without a copy in between. The files are
not trusted: anything that could not have been written here is a ValueError with the reason. No host
code is stored, only names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import round_up

from .compiled import graph_text
from .constants import Constants, FileRange, MappedFile
from .program import CompiledText, Originals, Program
from .reporting import with_report
from .rows import Form, checked, described, form_of, type_hints
from .verify import verify

FORMAT, VERSION = "webnn_vk program", 5
TEXT, DATA = "program.json", "program.bin"
#: Large constants begin at a page, so that a device may use the file's own pages.
_PAGE, _SMALL = 4096, 16

#: The bytes of a constant tensor's storage.
Fetch = Callable[[Any], np.ndarray]
#: The SPIR-V of kernels.
Modules = Mapping[KernelSpec, bytes]


def save(
    program: Program, constants: Constants, folder: Path, fetch: Fetch, modules: Modules
) -> None:
    """Write a program and its constants to an existing folder. ``fetch`` reads constants that are
    tensors; LookupError for constants that were released. ``modules``: the SPIR-V of all its
    kernels."""
    with open(folder / DATA, "wb") as file:
        text = _Writer(program, file).program(constants, fetch, modules)
    (folder / TEXT).write_text(json.dumps(text, allow_nan=False, ensure_ascii=True), "utf-8")


@dataclass(frozen=True)
class Loaded:
    """A program read from files."""

    program: Program
    constants: Constants
    modules: Modules


def load(folder: Path) -> Loaded:
    """The program that ``save`` wrote. ValueError if ``save`` did not write the files, OSError if
    they can't be read."""
    try:
        text = json.loads((folder / TEXT).read_text("utf-8"))
        reader = _Reader(folder / DATA)
        program, constants = reader.program(text)
        return Loaded(program, constants, reader.modules(text["modules"]))
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError(f"{folder / TEXT}: {type(error).__name__}: {error}") from error


#: The members of a program that are stored under their names, in the form of their types (`rows`).
_MEMBERS = (
    "inputs", "outputs", "slots", "arenas", "host_size", "params", "origins", "setup", "segments",
    "donated",
)


class _Writer:
    def __init__(self, program: Program, file: BinaryIO) -> None:
        self._program, self._file = program, file
        self.kernels = {spec: number for number, spec in enumerate(program.kernels)}
        self._known: dict[bytes, list[int]] = {}

    def program(self, constants: Constants, fetch: Fetch, modules: Modules) -> dict[str, Any]:
        program = self._program
        stored = []
        for number, descriptor in enumerate(program.constants):
            storage = constants.storage(number)
            data = constants.read(number) if storage is None else fetch(storage)
            if data.nbytes != descriptor.byte_length:
                raise ValueError(f"constant {number}: {data.nbytes} bytes for {descriptor}")
            place = self._append(data, _PAGE if data.nbytes >= _PAGE else _SMALL)
            stored.append([descriptor.data_type, list(descriptor.shape), *place])
        return {
            "format": FORMAT,
            "version": VERSION,
            "constants": stored,
            "folded": list(program.report.folded),
            "kernels": [spec.to_json() for spec in self.kernels],
            "modules": [self.bytes(modules[spec]) for spec in self.kernels],
            "compiled": self._compiled(),
            **{name: _form(name).write(self, getattr(program, name)) for name in _MEMBERS},
        }

    def _compiled(self) -> dict[str, Any] | None:
        known = graph_text(self._program)
        if known is None:
            return None
        graph, originals = known
        arrays = {
            key: [str(array.dtype), list(array.shape), self.bytes(array.tobytes())]
            for key, array in graph.arrays.items()
        }
        stored = _form("originals").write(self, originals)
        return {"graph": graph.text, "arrays": arrays, "originals": stored}

    def _append(self, data: Any, alignment: int) -> list[int]:
        start = self._file.tell()
        self._file.write(b"\0" * (round_up(start, alignment) - start))
        start = self._file.tell()
        self._file.write(memoryview(data))
        return [start, len(data)]

    def bytes(self, data: bytes) -> list[int]:
        """The place of these bytes in the file. Equal bytes are stored once."""
        if data not in self._known:
            self._known[data] = self._append(data, _SMALL)
        return self._known[data]


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = MappedFile(path)
        self._data = self._file.data
        self._size = len(self._data)
        self.kernels: list[KernelSpec] = []

    def program(self, text: Any) -> tuple[Program, Constants]:
        if not isinstance(text, dict) or text.get("format") != FORMAT:
            raise ValueError(f"{self._path.with_name(TEXT)} is no {FORMAT}")
        if text.get("version") != VERSION:
            raise ValueError(
                f"{FORMAT} of version {text.get('version')!r}; {VERSION} is what this reads"
            )
        self.kernels = [KernelSpec.from_json(data) for data in checked(text["kernels"], list)]
        stored = self._read(tuple[tuple[str, tuple[int, ...], int, int], ...], text["constants"])
        constants = tuple(described(kind, shape) for kind, shape, _, _ in stored)
        for descriptor, (_, _, offset, length) in zip(constants, stored, strict=True):
            self._check_place(offset, length)
            if length != descriptor.byte_length:
                raise ValueError(f"a constant has {length} bytes for {descriptor}")
        compiled, originals = self._compiled(text["compiled"], len(constants))
        program = Program(
            **{name: _form(name).read(self, text[name]) for name in _MEMBERS},
            constants=constants, compiled=compiled, originals=originals,
        )
        verify(program)
        folded = self._read(tuple[str, ...], text["folded"])
        store = Constants(
            FileRange(self._path, offset, length, self._file) for _, _, offset, length in stored
        )
        return with_report(program, folded), store

    def _read(self, kind: Any, data: Any) -> Any:
        return form_of(kind).read(self, data)

    def _compiled(self, data: Any, count: int) -> tuple[CompiledText | None, Originals]:
        """The graph's text and arrays. The text is parsed when the graph is needed."""
        if data is None:
            return None, ()
        text = checked(data["graph"], str)
        arrays = {}
        stored = self._read(Mapping[str, tuple[str, tuple[int, ...], bytes]], data["arrays"])
        for key, (data_type, shape, elements) in stored.items():
            descriptor = described(data_type, shape)
            if len(elements) != descriptor.byte_length:
                raise ValueError(f"{key}: {len(elements)} bytes for {descriptor}")
            array = np.frombuffer(elements, descriptor.numpy_dtype)
            arrays[key] = array.reshape(descriptor.shape)
        originals: Originals = _form("originals").read(self, data["originals"])
        if any(not 0 <= number < count for held in originals for number, _ in held):
            raise ValueError(f"the graph refers to other constants than {count}")
        return CompiledText(text, arrays), originals

    def modules(self, places: Any) -> Modules:
        modules = self._read(tuple[bytes, ...], places)
        if len(modules) != len(self.kernels):
            raise ValueError(f"{len(modules)} modules for {len(self.kernels)} kernels")
        if len(set(self.kernels)) != len(modules):
            raise ValueError("a kernel is there twice")
        return dict(zip(self.kernels, modules, strict=True))

    def _check_place(self, offset: int, length: int) -> None:
        if offset < 0 or length < 0 or offset + length > self._size:
            raise ValueError(f"{self._path} of {self._size} bytes has no {offset}+{length}")

    def bytes(self, place: Any) -> bytes:
        """The bytes at a place of the file."""
        offset, length = self._read(tuple[int, int], place)
        self._check_place(offset, length)
        return self._data[offset : offset + length].tobytes()

    def kernel(self, number: Any) -> KernelSpec:
        """The kernel with this number."""
        if not 0 <= checked(number, int) < len(self.kernels):
            raise ValueError(f"there is no kernel {number}")
        return self.kernels[number]


def _form(name: str) -> Form:
    """The form of a member of `Program`."""
    return form_of(_HINTS[name])


_HINTS = type_hints(Program)
