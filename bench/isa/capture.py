"""Captures: the pipelines and dispatches of another library's run, as a driver recorded them.

A folder with ``log.txt`` and a SPIR-V module ``pipe_<number>.spv`` for each pipeline. The log has a
line for each pipeline, ``pipe <number> entry <name> <id>=<hex> …`` with its specialisation
constants, for each dispatch, ``dispatch <pipeline> <x> <y> <z> push=<hex> <set>.<binding>=<hex> …``
with its workgroups, its push constants, and the content of its uniform buffers, and ``=== run``
where a run begins. ``capture.c`` is such a driver.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from webnn_vk.codegen import spirv

# Numbers of the SPIR-V specification.
_EXECUTION_MODE, _EXECUTION_MODE_ID = 16, 331
_CONSTANT, _CONSTANT_COMPOSITE, _SPEC_CONSTANT, _SPEC_CONSTANT_COMPOSITE = 43, 44, 50, 51
_TYPE_POINTER, _TYPE_STRUCT = 32, 30
_VARIABLE, _DECORATE = 59, 71
_LOCAL_SIZE, _LOCAL_SIZE_ID = 17, 38
_SPEC_ID, _BUFFER_BLOCK, _BUILT_IN, _BINDING, _SET = 1, 3, 11, 33, 34
_WORKGROUP_SIZE = 25
_UNIFORM_CONSTANT, _UNIFORM, _STORAGE_BUFFER = 0, 2, 12
# Of Vulkan: VkDescriptorType.
_UNIFORM_TEXEL_BUFFER, _UNIFORM_BUFFER, _STORAGE = 4, 6, 7

_RUN = "=== run"
_PIPELINE = re.compile(r"pipe (\d+) entry (\S+)((?: \d+=[0-9a-f]*)*)\s*$")
_DISPATCH = re.compile(r"dispatch (\d+) (\d+) (\d+) (\d+)((?: [a-z0-9.]+=[0-9a-f]*)*)\s*$")


class CaptureError(ValueError):
    """A capture can't be read; the message gives the reason."""


@dataclass(frozen=True)
class Captured:
    """A pipeline: the entry point's name, and (id, bytes) of each specialisation constant."""

    entry: str
    constants: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True)
class Dispatched:
    """A dispatch of a pipeline. ``groups``: its workgroups; ``uniforms``: the content of uniform
    buffers by set and binding."""

    pipeline: int
    groups: tuple[int, int, int]
    push: bytes = b""
    uniforms: tuple[tuple[tuple[int, int], bytes], ...] = ()


@dataclass(frozen=True)
class Capture:
    """``pipelines`` by number, and the ``dispatches`` of the last run."""

    pipelines: Mapping[int, Captured]
    dispatches: tuple[Dispatched, ...]


@dataclass(frozen=True)
class Kept:
    """A capture with the SPIR-V of its pipelines by number."""

    capture: Capture
    codes: Mapping[int, bytes]

    @classmethod
    def read(cls, folder: Path) -> Kept:
        """A folder's content. Raises `CaptureError` and OSError."""
        capture = read_log((folder / "log.txt").read_text(encoding="utf-8"))
        if not capture.dispatches:
            raise CaptureError("nothing was dispatched on Vulkan")
        numbers = {dispatch.pipeline for dispatch in capture.dispatches}
        return cls(capture, {n: (folder / f"pipe_{n}.spv").read_bytes() for n in sorted(numbers)})

    def write(self, folder: Path) -> None:
        """Makes a folder that `read` reads."""
        folder.mkdir(parents=True)
        lines = []
        for number, pipeline in self.capture.pipelines.items():
            (folder / f"pipe_{number}.spv").write_bytes(self.codes[number])
            pairs = (f" {i}={value.hex()}" for i, value in pipeline.constants)
            lines.append(f"pipe {number} entry {pipeline.entry}{''.join(pairs)}")
        for d in self.capture.dispatches:
            given = [f" push={d.push.hex()}"] * bool(d.push)
            given += [f" {at}.{binding}={value.hex()}" for (at, binding), value in d.uniforms]
            x, y, z = d.groups
            lines.append(f"dispatch {d.pipeline} {x} {y} {z}{''.join(given)}")
        (folder / "log.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Layout:
    """The bindings of a module (`compile_only.device.Sets`), and its workgroup's size."""

    sets: Mapping[int, Mapping[int, int]]
    local_size: tuple[int, int, int]

    @property
    def invocations(self) -> int:
        return math.prod(self.local_size)


def read_log(text: str) -> Capture:
    """The log's content; CaptureError for a line that is none of its three kinds."""
    pipelines: dict[int, Captured] = {}
    dispatches: list[Dispatched] = []
    for line in text.splitlines():
        if line.strip() == _RUN:
            dispatches = []
        elif found := _PIPELINE.match(line):
            constants = (pair.split("=") for pair in found[3].split())
            pipelines[int(found[1])] = Captured(
                found[2], tuple((int(i), bytes.fromhex(value)) for i, value in constants)
            )
        elif found := _DISPATCH.match(line):
            dispatches.append(_dispatched(found))
        elif line.strip():
            raise CaptureError(f"not a line of a capture's log: {line!r}")
    missing = {dispatch.pipeline for dispatch in dispatches} - pipelines.keys()
    if missing:
        raise CaptureError(f"dispatches of pipelines that are not in the log: {sorted(missing)}")
    return Capture(pipelines, tuple(dispatches))


def _dispatched(line: re.Match[str]) -> Dispatched:
    number, x, y, z = (int(line[i]) for i in range(1, 5))
    given = dict(pair.split("=") for pair in line[5].split())
    push = bytes.fromhex(given.pop("push", ""))
    uniforms = []
    for place, content in given.items():
        of_set, _, binding = place.partition(".")
        uniforms.append(((int(of_set), int(binding)), bytes.fromhex(content)))
    return Dispatched(number, (x, y, z), push, tuple(uniforms))


def read_module(code: bytes, constants: tuple[tuple[int, bytes], ...] = ()) -> Layout:
    """The bindings of a SPIR-V module with one entry point, and the workgroup's size with these
    specialisation constants. CaptureError for anything else."""
    try:
        words = spirv.words_of(code)
        instructions = list(spirv.instructions(words))
    except spirv.SpirvError as error:
        raise CaptureError(f"no SPIR-V module: {error}") from None
    decorations: dict[int, dict[int, int]] = defaultdict(dict)
    pointees: dict[int, int] = {}
    structs: set[int] = set()
    variables: list[tuple[int, int, int]] = []
    values: dict[int, int] = {}
    composites: dict[int, tuple[int, ...]] = {}
    size: tuple[int, ...] = ()
    size_ids: tuple[int, ...] = ()
    for operation, at, end in instructions:
        a = tuple(words[at + 1 : end])
        if operation == _DECORATE:
            decorations[a[0]][a[1]] = a[2] if len(a) > 2 else 1
        elif operation == _TYPE_POINTER:
            pointees[a[0]] = a[2]
        elif operation == _TYPE_STRUCT:
            structs.add(a[0])
        elif operation == _VARIABLE:
            variables.append((a[1], a[0], a[2]))
        elif operation in (_CONSTANT, _SPEC_CONSTANT):
            values[a[1]] = a[2]
        elif operation in (_CONSTANT_COMPOSITE, _SPEC_CONSTANT_COMPOSITE):
            composites[a[1]] = a[2:]
        elif operation == _EXECUTION_MODE and a[1] == _LOCAL_SIZE:
            size = a[2:5]
        elif operation == _EXECUTION_MODE_ID and a[1] == _LOCAL_SIZE_ID:
            size_ids = a[2:5]
    given = {i: int.from_bytes(value, "little") for i, value in constants}
    for number, composite in composites.items():
        if decorations[number].get(_BUILT_IN) == _WORKGROUP_SIZE:
            size_ids = composite
    if size_ids:
        size = tuple(given.get(decorations[i].get(_SPEC_ID, -1), values[i]) for i in size_ids)
    if len(size) != 3:
        raise CaptureError("the module has no workgroup size")
    sets: dict[int, dict[int, int]] = defaultdict(dict)
    for variable, pointer, storage in variables:
        binding = decorations[variable].get(_BINDING)
        if binding is None:
            continue
        pointee = pointees[pointer]
        if storage == _UNIFORM_CONSTANT:
            kind = _UNIFORM_TEXEL_BUFFER
        elif storage == _UNIFORM and _BUFFER_BLOCK not in decorations[pointee]:
            kind = _UNIFORM_BUFFER
        elif storage in (_UNIFORM, _STORAGE_BUFFER) and pointee in structs:
            kind = _STORAGE
        else:
            raise CaptureError(f"binding {binding}: storage class {storage} is not supported")
        sets[decorations[variable].get(_SET, 0)][binding] = kind
    x, y, z = size
    return Layout({n: dict(bindings) for n, bindings in sets.items()}, (x, y, z))
