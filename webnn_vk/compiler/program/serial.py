"""A program in files: ``program.json`` for its structure, ``program.bin`` for bytes.

``program.bin`` holds parameters, push constants, constants and, if given, the kernels' SPIR-V. It
is mapped for reading, so that weights go from the file to the device without a copy in between.
The files are not trusted: anything that could not have been written here is a ValueError with the
reason. No host code is stored, only names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.support.integers import round_up

from ..types.data_types import DATA_TYPES, MLOperandDescriptor, check_dimensions
from .compiled import graph_text
from .constants import Constants, FileRange, MappedFile
from .program import (
    BarrierStep,
    CompiledText,
    CopyStep,
    CpuStep,
    CpuTensor,
    DeviceSegment,
    DispatchStep,
    HostSegment,
    Origin,
    Originals,
    Program,
    Range,
    SetupPart,
    Slot,
)
from .reporting import with_report
from .verify import verify

FORMAT, VERSION = "webnn_vk program", 3
TEXT, DATA = "program.json", "program.bin"
#: Large constants begin at a page, so that a device may use the file's own pages.
_PAGE, _SMALL = 4096, 16

#: The bytes of a constant tensor's storage.
Fetch = Callable[[Any], np.ndarray]
#: The SPIR-V of kernels.
Modules = Mapping[KernelSpec, bytes]


def save(
    program: Program,
    constants: Constants,
    folder: Path,
    fetch: Fetch | None = None,
    modules: Modules | None = None,
) -> None:
    """Write a program and its constants to an existing folder. ``fetch`` reads constants that are
    tensors (TypeError without it); LookupError for constants that were released. ``modules``: the
    SPIR-V of all its kernels, to store with it."""
    with open(folder / DATA, "wb") as file:
        writer = _Writer(program, file)
        text = writer.program(constants, fetch, modules)
    (folder / TEXT).write_text(json.dumps(text, allow_nan=False, ensure_ascii=True), "utf-8")


@dataclass(frozen=True)
class Loaded:
    """A program read from files. ``modules`` is None if it was saved without them."""

    program: Program
    constants: Constants
    modules: Modules | None


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


class _Writer:
    def __init__(self, program: Program, file: BinaryIO) -> None:
        self._program, self._file = program, file
        self._kernels = {spec: number for number, spec in enumerate(program.kernels)}
        self._known: dict[bytes, list[int]] = {}

    def program(
        self, constants: Constants, fetch: Fetch | None, modules: Modules | None
    ) -> dict[str, Any]:
        program = self._program
        stored = []
        for number, descriptor in enumerate(program.constants):
            storage = constants.storage(number)
            if storage is not None and fetch is None:
                raise TypeError(f"constant {number} is a tensor; nothing was given to read it")
            data = constants.read(number) if storage is None else fetch(storage)
            if data.nbytes != descriptor.byte_length:
                raise ValueError(f"constant {number}: {data.nbytes} bytes for {descriptor}")
            place = self._append(data, _PAGE if data.nbytes >= _PAGE else _SMALL)
            stored.append([*_descriptor(descriptor), *place])
        return {
            "format": FORMAT,
            "version": VERSION,
            "inputs": {name: _descriptor(d) for name, d in program.inputs.items()},
            "outputs": {name: _descriptor(d) for name, d in program.outputs.items()},
            "constants": stored,
            "slots": [[s.kind, s.size, s.name, s.index, s.offset] for s in program.slots],
            "arenas": list(program.arenas),
            "host_size": program.host_size,
            "params": self._bytes(program.params),
            "origins": [[list(o.operators), o.device, o.reason] for o in program.origins],
            "folded": list(program.report.folded),
            "kernels": [spec.to_json() for spec in self._kernels],
            "modules": None if modules is None else [
                self._bytes(modules[spec]) for spec in self._kernels
            ],
            "setup": [
                [p.target, p.constant, p.packing, p.scratch, list(map(self._step, p.steps))]
                for p in program.setup
            ],
            "compiled": self._compiled(),
            "segments": [
                [
                    "device" if isinstance(segment, DeviceSegment) else "cpu",
                    list(map(self._step, segment.steps)),
                ]
                for segment in program.segments
            ],
        }

    def _compiled(self) -> dict[str, Any] | None:
        known = graph_text(self._program)
        if known is None:
            return None
        arrays = {
            key: [str(array.dtype), list(array.shape), self._bytes(array.tobytes())]
            for key, array in known.graph.arrays.items()
        }
        return {
            "graph": known.graph.text,
            "arrays": arrays,
            "originals": [[list(held) for held in held_by] for held_by in known.originals],
        }

    def _append(self, data: Any, alignment: int) -> list[int]:
        start = self._file.tell()
        self._file.write(b"\0" * (round_up(start, alignment) - start))
        start = self._file.tell()
        self._file.write(memoryview(data))
        return [start, len(data)]

    def _bytes(self, data: bytes) -> list[int]:
        if data not in self._known:
            self._known[data] = self._append(data, _SMALL)
        return self._known[data]

    def _step(self, step: object) -> list[Any]:
        match step:
            case DispatchStep():
                return [
                    "dispatch",
                    self._kernels[step.spec],
                    b"".join(data for _, data in step.constants).hex(),
                    self._bytes(step.push),
                    [list(astuple(place)) for place in step.bindings],
                    list(step.groups),
                    step.origin, step.kernel, step.variant, step.flops, step.bytes,
                ]
            case CopyStep(source, target):
                return ["copy", list(astuple(source)), list(astuple(target))]
            case CpuStep():
                return [
                    "operator",
                    step.operator,
                    {name: _plain(value) for name, value in step.arguments.items()},
                    {name: _tensor(t) for name, t in step.operands.items()},
                    [_tensor(t) for t in step.results],
                    step.origin,
                    list(step.dead),
                ]
        return ["barrier"]


def _descriptor(descriptor: MLOperandDescriptor) -> list[Any]:
    return [descriptor.data_type, list(descriptor.shape)]


def _tensor(tensor: CpuTensor) -> list[Any]:
    return [tensor.slot, *_descriptor(tensor.descriptor)]


def _plain(value: Any) -> Any:
    """An operator's argument as JSON: numbers that JSON lacks as {"float": text}."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if type(value) is float and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(f"an argument of type {type(value).__name__} can't be written: {value!r}")


def _argument(value: Any) -> Any:
    match value:
        case list():
            return tuple(map(_argument, value))
        case {"float": "inf" | "-inf" | "nan" as text, **others} if not others:
            return float(text)
        case dict():
            raise ValueError(f"{value!r} is no argument")
    return value


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = MappedFile(path)
        self._data = self._file.data
        self._size = len(self._data)
        self._kernels: list[KernelSpec] = []

    def program(self, text: Any) -> tuple[Program, Constants]:
        if not isinstance(text, dict) or text.get("format") != FORMAT:
            raise ValueError(f"{self._path.with_name(TEXT)} is no {FORMAT}")
        if text.get("version") != VERSION:
            raise ValueError(
                f"{FORMAT} of version {text.get('version')!r}; {VERSION} is what this reads"
            )
        self._kernels = [KernelSpec.from_json(data) for data in _list(text["kernels"])]
        stored = [_row(row, str, list, int, int) for row in _list(text["constants"])]
        constants = tuple(_described(kind, shape) for kind, shape, _, _ in stored)
        for descriptor, (_, _, offset, length) in zip(constants, stored, strict=True):
            self._check_place(offset, length)
            if length != descriptor.byte_length:
                raise ValueError(f"a constant has {length} bytes for {descriptor}")
        compiled, originals = self._compiled(text["compiled"], len(constants))
        program = Program(
            _named(text["inputs"]),
            _named(text["outputs"]),
            tuple(Slot(*_row(row, str, int, str, int, int)) for row in _list(text["slots"])),
            tuple(map(self._segment, _list(text["segments"]))),
            tuple(map(self._part, _list(text["setup"]))),
            constants,
            tuple(_row(text["arenas"], *[int] * len(_list(text["arenas"])))),
            _row([text["host_size"]], int)[0],
            self._bytes(text["params"]),
            tuple(map(_origin, _list(text["origins"]))),
            compiled=compiled,
            originals=originals,
        )
        verify(program)
        folded = _row(text["folded"], *[str] * len(_list(text["folded"])))
        store = Constants(
            FileRange(self._path, offset, length, self._file) for _, _, offset, length in stored
        )
        return with_report(program, tuple(folded)), store

    def _compiled(self, data: Any, count: int) -> tuple[CompiledText | None, Originals]:
        """The graph's text and arrays. The text is parsed when the graph is needed."""
        if data is None:
            return None, ()
        (text,) = _row([data["graph"]], str)
        if type(data["arrays"]) is not dict:
            raise ValueError("the graph's arrays are no object")
        arrays = {}
        for key, row in data["arrays"].items():
            data_type, shape, place = _row(row, str, list, list)
            described = _described(data_type, shape)
            elements = self._bytes(place)
            if len(elements) != described.byte_length:
                raise ValueError(f"{key}: {len(elements)} bytes for {described}")
            array = np.frombuffer(elements, described.numpy_dtype)
            arrays[key] = array.reshape(described.shape)
        originals = tuple(
            tuple((number, packing) for number, packing in (_row(h, int, str) for h in _list(held)))
            for held in _list(data["originals"])
        )
        if any(not 0 <= number < count for held in originals for number, _ in held):
            raise ValueError(f"the graph refers to other constants than {count}")
        return CompiledText(text, arrays), originals

    def modules(self, places: Any) -> Modules | None:
        if places is None:
            return None
        if len(_list(places)) != len(self._kernels):
            raise ValueError(f"{len(places)} modules for {len(self._kernels)} kernels")
        modules = [self._bytes(place) for place in places]
        if len(set(self._kernels)) != len(modules):
            raise ValueError("a kernel is there twice")
        return dict(zip(self._kernels, modules, strict=True))

    def _check_place(self, offset: int, length: int) -> None:
        if offset < 0 or length < 0 or offset + length > self._size:
            raise ValueError(f"{self._path} of {self._size} bytes has no {offset}+{length}")

    def _bytes(self, place: Any) -> bytes:
        offset, length = _row(place, int, int)
        self._check_place(offset, length)
        return self._data[offset : offset + length].tobytes()

    def _segment(self, data: Any) -> DeviceSegment | HostSegment:
        kind, steps = _row(data, str, list)
        if kind not in ("device", "cpu"):
            raise ValueError(f"a segment is of kind {kind!r}")
        made = tuple(map(self._step, steps))
        return DeviceSegment(made) if kind == "device" else HostSegment(made)

    def _part(self, data: Any) -> SetupPart:
        target, constant, packing, scratch, steps = _row(data, int, int, str, int, list)
        return SetupPart(target, constant, tuple(map(self._step, steps)), packing, scratch)

    def _step(self, data: Any) -> Any:
        match data:
            case ["dispatch", *rest]:
                kernel, constants, push, bindings, groups, *others = _row(
                    rest, int, str, list, list, list, int, str, str, int, int
                )
                if not 0 <= kernel < len(self._kernels):
                    raise ValueError(f"there is no kernel {kernel}")
                packed = bytes.fromhex(constants)
                return DispatchStep(
                    self._kernels[kernel],
                    tuple((i // 4, packed[i : i + 4]) for i in range(0, len(packed), 4)),
                    self._bytes(push),
                    tuple(map(_range, bindings)),
                    tuple(_row(groups, int, int, int)),
                    *others,
                )
            case ["copy", source, target]:
                return CopyStep(_range(source), _range(target))
            case ["operator", *rest]:
                name, arguments, operands, results, origin, dead = _row(
                    rest, str, dict, dict, list, int, list
                )
                return CpuStep(
                    name,
                    {key: _argument(value) for key, value in arguments.items()},
                    {key: _cpu_tensor(value) for key, value in operands.items()},
                    tuple(map(_cpu_tensor, results)),
                    origin,
                    tuple(_row(dead, *[int] * len(dead))),
                )
            case ["barrier"]:
                return BarrierStep()
        raise ValueError(f"{data!r} is no step")


def _list(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise ValueError(f"{data!r} is no list")
    return data


def _row(data: Any, *kinds: type) -> list[Any]:
    """A list of exactly these kinds of JSON values."""
    if len(_list(data)) != len(kinds):
        raise ValueError(f"{data!r} has not {len(kinds)} items")
    for item, kind in zip(data, kinds, strict=True):
        if type(item) is not kind:
            raise ValueError(f"{item!r} in {data!r} is no {kind.__name__}")
    return data


def _described(data_type: str, shape: list[Any]) -> MLOperandDescriptor:
    if data_type not in DATA_TYPES:
        raise ValueError(f"{data_type!r} is no data type")
    descriptor = MLOperandDescriptor(data_type, tuple(_row(shape, *[int] * len(shape))))
    error = check_dimensions(descriptor)
    if error is not None:
        raise ValueError(f"{descriptor}: {error}")
    return descriptor


def _named(data: Any) -> Mapping[str, MLOperandDescriptor]:
    if not isinstance(data, dict):
        raise ValueError(f"{data!r} is no object")
    return {name: _described(*_row(row, str, list)) for name, row in data.items()}


def _origin(data: Any) -> Origin:
    operators, device, reason = _row(data, list, str, str)
    return Origin(tuple(_row(operators, *[str] * len(operators))), device, reason)


def _range(data: Any) -> Range:
    return Range(*_row(data, int, int, int))


def _cpu_tensor(data: Any) -> CpuTensor:
    slot, data_type, shape = _row(data, int, str, list)
    return CpuTensor(slot, _described(data_type, shape))
