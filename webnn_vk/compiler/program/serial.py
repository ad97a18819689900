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

from . import shaped_files
from .compiled_from import graph_text
from .constants import Constants, FileRange
from .data_file import DATA, DataReader, DataWriter
from .json_forms import Form, checked, described, form_of, type_hints
from .make_report import with_report
from .program import Originals, Program
from .shaped_files import LoadedGraph
from .verify import verify

FORMAT, VERSION = "webnn_vk program", 7
TEXT = "program.json"

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


def load(folder: Path) -> Loaded | LoadedGraph:
    """The program that ``save`` wrote, or a graph with named dimensions (``shaped_files``).
    ValueError if ``save`` did not write the files, OSError if they
    can't be read."""
    try:
        text = json.loads((folder / TEXT).read_text("utf-8"))
        if isinstance(text, dict) and text.get("format") == shaped_files.FORMAT:
            return shaped_files.load(text, DataReader(folder / DATA))
        return _Reader(folder / DATA).program(text)
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError(f"{folder / TEXT}: {type(error).__name__}: {error}") from error


#: The members of a program that are stored under their names, as `json_forms` has their types.
_MEMBERS = (
    "inputs", "outputs", "slots", "arenas", "host_size", "params", "origins", "setup", "segments",
    "donated",
)


class _Writer(DataWriter):
    def __init__(self, program: Program, file: BinaryIO) -> None:
        super().__init__(file)
        self._program = program
        self.kernels = {spec: number for number, spec in enumerate(program.kernels)}

    def program(self, constants: Constants, fetch: Fetch, modules: Modules) -> dict[str, Any]:
        program = self._program
        stored = []
        for number, descriptor in enumerate(program.constants):
            storage = constants.storage(number)
            data = constants.read(number) if storage is None else fetch(storage)
            if data.nbytes != descriptor.byte_length:
                raise ValueError(f"constant {number}: {data.nbytes} bytes for {descriptor}")
            stored.append([descriptor.data_type, list(descriptor.shape), *self.append(data)])
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
        return {"graph": graph, "originals": _form("originals").write(self, originals)}


class _Reader(DataReader):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.kernels: list[KernelSpec] = []

    def program(self, text: Any) -> Loaded:
        if not isinstance(text, dict) or text.get("format") != FORMAT:
            raise ValueError(f"{self.path.with_name(TEXT)} is no {FORMAT}")
        if text.get("version") != VERSION:
            raise ValueError(
                f"{FORMAT} of version {text.get('version')!r}; {VERSION} is what this reads"
            )
        modules = self.modules(text["kernels"], text["modules"])
        self.kernels = [*modules]
        stored = self.read(tuple[tuple[str, tuple[int, ...], int, int], ...], text["constants"])
        constants = tuple(described(kind, shape) for kind, shape, _, _ in stored)
        for descriptor, (_, _, offset, length) in zip(constants, stored, strict=True):
            self.check_place(offset, length)
            if length != descriptor.byte_length:
                raise ValueError(f"a constant has {length} bytes for {descriptor}")
        compiled, originals = self._compiled(text["compiled"], len(constants))
        program = Program(
            **{name: _form(name).read(self, text[name]) for name in _MEMBERS},
            constants=constants, compiled=compiled, originals=originals,
        )
        verify(program)
        folded = self.read(tuple[str, ...], text["folded"])
        store = Constants(
            FileRange(self.path, offset, length, self.file) for _, _, offset, length in stored
        )
        return Loaded(with_report(program, folded), store, modules)

    def _compiled(self, data: Any, count: int) -> tuple[str | None, Originals]:
        """The text of the graph, which is read when the graph is needed."""
        if data is None:
            return None, ()
        originals: Originals = _form("originals").read(self, data["originals"])
        if any(not 0 <= number < count for held in originals for number, _ in held):
            raise ValueError(f"the graph refers to other constants than {count}")
        return checked(data["graph"], str), originals

    def kernel(self, number: Any) -> KernelSpec:
        """The kernel with this number."""
        if not 0 <= checked(number, int) < len(self.kernels):
            raise ValueError(f"there is no kernel {number}")
        return self.kernels[number]


def _form(name: str) -> Form:
    """The form of a member of `Program`."""
    return form_of(_HINTS[name])


_HINTS = type_hints(Program)
