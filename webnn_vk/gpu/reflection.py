"""The interface of a SPIR-V module: entry points, buffers, constants, sizes.

The module comes from the user. Modules that crash the driver or that can't be bound are refused
here, but this does not replace ``spirv-val``.
"""

from __future__ import annotations

import struct
from array import array
from collections import defaultdict
from collections.abc import Mapping

from webnn_vk.codegen import spirv
from webnn_vk.support.dataclass import dataclass

_ENTRY_POINT, _EXECUTION_MODE, _EXECUTION_MODE_ID = 15, 16, 331
_TYPE_BOOL, _TYPE_INT, _TYPE_FLOAT, _TYPE_VECTOR, _TYPE_MATRIX = 20, 21, 22, 23, 24
_TYPE_ARRAY, _TYPE_RUNTIME_ARRAY, _TYPE_STRUCT, _TYPE_POINTER = 28, 29, 30, 32
_CONSTANT, _SPEC_TRUE, _SPEC_FALSE, _SPEC_CONSTANT, _SPEC_COMPOSITE = 43, 48, 49, 50, 51
_CONSTANT_COMPOSITE, _VARIABLE, _DECORATE, _MEMBER_DECORATE = 44, 59, 71, 72
_TYPES = frozenset(range(_TYPE_BOOL, _TYPE_POINTER + 1))
_GL_COMPUTE = 5
_LOCAL_SIZE, _LOCAL_SIZE_ID = 17, 38
_UNIFORM_CONSTANT, _UNIFORM, _PUSH_CONSTANT, _STORAGE_BUFFER = 0, 2, 9, 12
_SPEC_ID, _BUFFER_BLOCK, _ARRAY_STRIDE, _MATRIX_STRIDE, _BUILT_IN = 1, 3, 6, 7, 11
_NON_WRITABLE, _NON_READABLE, _BINDING, _SET, _OFFSET = 24, 25, 33, 34, 35
_WORKGROUP_SIZE = 25


@dataclass(frozen=True)
class Reflection:
    """``bindings``: binding → access ("r", "w", "rw") of the storage buffers of set 0.
    ``constants``: specialisation constant id → "float", "int", "uint" or "bool".
    ``local_size``: the workgroup's dimensions, numbers or (id, default)."""

    entry_points: tuple[str, ...]
    bindings: dict[int, str]
    push_size: int
    constants: dict[int, str]
    local_size: tuple[int | tuple[int, int], ...]

    @property
    def binding_count(self) -> int:
        return max(self.bindings, default=-1) + 1

    def workgroup_size(self, given: Mapping[int, int]) -> tuple[int, ...]:
        """The dimensions with specialisation constants ``given`` by id."""
        return tuple(
            size if isinstance(size, int) else int(given.get(size[0], size[1]))
            for size in self.local_size
        )


def reflect(code: bytes) -> Reflection:
    """Read a module; ValueError for one that isn't SPIR-V or can't be bound."""
    spirv.info(code)  # raises SpirvError, a ValueError
    try:
        module = _Module(array("I", code))
        return Reflection(
            tuple(module.entry_points),
            module.bindings(),
            module.push_size(),
            module.constants(),
            module.local_size(),
        )
    except (KeyError, IndexError, RecursionError) as error:
        raise ValueError(f"the SPIR-V is malformed ({error!r})") from None


class _Module:
    """A module's declarations by id."""

    def __init__(self, words: array) -> None:
        if words[0] != spirv.MAGIC:
            raise ValueError("the SPIR-V has the other byte order")
        self.entry_points: list[str] = []
        self.types: dict[int, tuple[int, list[int]]] = {}
        self.values: dict[int, tuple[int, int, list[int]]] = {}
        self.variables: dict[int, tuple[int, int]] = {}
        self.decorations: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self.members: defaultdict[int, dict[int, dict[int, int]]] = defaultdict(dict)
        self.mode: tuple[int, list[int]] | None = None
        for op, p, end in spirv.instructions(words):
            operands = list(words[p + 1 : end])
            if op == _ENTRY_POINT and operands[0] == _GL_COMPUTE:
                raw = struct.pack(f"<{len(operands) - 2}I", *operands[2:])
                self.entry_points.append(raw.split(b"\0", 1)[0].decode("utf-8", "replace"))
            elif op in (_EXECUTION_MODE, _EXECUTION_MODE_ID):
                if operands[1] in (_LOCAL_SIZE, _LOCAL_SIZE_ID):
                    self.mode = operands[1], operands[2:5]
            elif op in _TYPES:
                self.types[operands[0]] = op, operands[1:]
            elif op in (_CONSTANT, _SPEC_TRUE, _SPEC_FALSE, _SPEC_CONSTANT, _SPEC_COMPOSITE,
                        _CONSTANT_COMPOSITE):
                self.values[operands[1]] = op, operands[0], operands[2:]
            elif op == _VARIABLE:
                self.variables[operands[1]] = operands[0], operands[2]
            elif op == _DECORATE:
                self.decorations[operands[0]][operands[1]] = (operands + [0])[2]
            elif op == _MEMBER_DECORATE:
                of = self.members[operands[0]].setdefault(operands[1], {})
                of[operands[2]] = (operands + [0])[3]
        if not self.entry_points:
            raise ValueError("the module has no compute entry point")

    def bindings(self) -> dict[int, str]:
        by_binding: dict[int, str] = {}
        for variable, (pointer, storage) in self.variables.items():
            if storage not in (_UNIFORM_CONSTANT, _UNIFORM, _STORAGE_BUFFER):
                continue
            about = self.decorations[variable]
            where = f"binding {about.get(_BINDING, '?')} of set {about.get(_SET, 0)}"
            block = self.types[pointer][1][1]
            kind, members = self.types.get(block, (0, []))
            is_buffer = storage == _STORAGE_BUFFER or (
                storage == _UNIFORM and _BUFFER_BLOCK in self.decorations[block]
            )
            if not is_buffer or kind != _TYPE_STRUCT:
                raise ValueError(f"{where} is not a single storage buffer; only those can be bound")
            if about.get(_SET, 0):
                raise ValueError(f"{where}: only set 0 can be bound")
            fields = [self.members[block].get(i, {}) for i in range(len(members))]

            def has(decoration: int, about=about, fields=fields) -> bool:
                return decoration in about or all(decoration in field for field in fields)

            access = "r" * (not has(_NON_READABLE)) + "w" * (not has(_NON_WRITABLE)) or "r"
            binding = about.get(_BINDING, 0)
            # Two variables may name one binding, each with its access.
            by_binding[binding] = access if by_binding.get(binding, access) == access else "rw"
        return dict(sorted(by_binding.items()))

    def push_size(self) -> int:
        sizes = [
            self._size(self.types[pointer][1][1])
            for pointer, storage in self.variables.values()
            if storage == _PUSH_CONSTANT
        ]
        return -(-max(sizes, default=0) // 4) * 4

    def _size(self, of: int) -> int:
        """Bytes of a type with explicit layout."""
        kind, operands = self.types[of]
        match kind:
            case 21 | 22:
                return operands[0] // 8
            case 23:
                return operands[1] * self._size(operands[0])
            case 28:
                return self._number(operands[1]) * self.decorations[of].get(_ARRAY_STRIDE, 0)
            case 30:
                ends = [self._member_end(of, i, member) for i, member in enumerate(operands)]
                return max(ends, default=0)
        return 0

    def _member_end(self, of: int, index: int, member: int) -> int:
        about = self.members[of].get(index, {})
        kind, operands = self.types[member]
        size = (
            operands[1] * about.get(_MATRIX_STRIDE, 0)
            if kind == _TYPE_MATRIX
            else self._size(member)
        )
        return about.get(_OFFSET, 0) + size

    def _number(self, value: int) -> int:
        """The (default) value of an integer constant."""
        kind, _, operands = self.values[value]
        return operands[0] if kind in (_CONSTANT, _SPEC_CONSTANT) else 0

    def constants(self) -> dict[int, str]:
        kinds = {}
        for value, (op, type_id, _) in self.values.items():
            identifier = self.decorations[value].get(_SPEC_ID)
            if identifier is None or op not in (_SPEC_TRUE, _SPEC_FALSE, _SPEC_CONSTANT):
                continue
            kind, operands = self.types[type_id]
            if kind != _TYPE_BOOL and operands[0] != 32:
                kinds[identifier] = f"{operands[0]}-bit"
            elif kind == _TYPE_INT:
                kinds[identifier] = "int" if operands[1] else "uint"
            else:
                kinds[identifier] = "float" if kind == _TYPE_FLOAT else "bool"
        return kinds

    def local_size(self) -> tuple[int | tuple[int, int], ...]:
        for value, about in self.decorations.items():
            if about.get(_BUILT_IN) == _WORKGROUP_SIZE and value in self.values:
                return tuple(map(self._dimension, self.values[value][2]))
        if self.mode is None:
            return (1, 1, 1)
        kind, operands = self.mode
        return tuple(operands) if kind == _LOCAL_SIZE else tuple(map(self._dimension, operands))

    def _dimension(self, value: int) -> int | tuple[int, int]:
        identifier = self.decorations[value].get(_SPEC_ID)
        number = self._number(value)
        return number if identifier is None else (identifier, number)
