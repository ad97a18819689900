"""A SPIR-V module as what `execution` needs: types, constants, functions of blocks, and loops."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from webnn_vk.codegen import spirv

# Opcodes of the SPIR-V specification.
EXT_INST, ENTRY_POINT, EXECUTION_MODE = 12, 15, 16
T_BOOL, T_INT, T_FLOAT, T_VECTOR, T_MATRIX = 20, 21, 22, 23, 24
T_IMAGE, T_SAMPLED_IMAGE = 25, 27
T_ARRAY, T_RUNTIME_ARRAY, T_STRUCT, T_POINTER = 28, 29, 30, 32
TRUE, FALSE, CONSTANT, COMPOSITE, NULL = 41, 42, 43, 44, 46
SPEC_TRUE, SPEC_FALSE, SPEC_CONSTANT, SPEC_COMPOSITE, SPEC_OP = 48, 49, 50, 51, 52
FUNCTION, PARAMETER, FUNCTION_END, CALL, VARIABLE, LOAD, STORE = 54, 55, 56, 57, 59, 61, 62
CHAIN, CHAIN_IN_BOUNDS, DECORATE, MEMBER_DECORATE = 65, 66, 71, 72
IMAGE_FETCH, IMAGE_READ = 95, 98
PHI, LOOP_MERGE, SELECTION_MERGE, LABEL = 245, 246, 247, 248
BRANCH, BRANCH_IF, SWITCH, KILL = 249, 250, 251, 252
RETURN, RETURN_VALUE, UNREACHABLE = 253, 254, 255
_NO_RESULT = {STORE, LOOP_MERGE, SELECTION_MERGE, LABEL, 224, 225, 228, 63, 0, 8, 317}
_TERMINATORS = {BRANCH, BRANCH_IF, SWITCH, KILL, RETURN, RETURN_VALUE, UNREACHABLE}
_SPEC_ID, _ARRAY_STRIDE, _OFFSET, _BUILT_IN, _BINDING, _SET = 1, 6, 35, 11, 33, 34
_F_MUL, _VECTOR_TIMES_SCALAR, _MATRIX_TIMES_SCALAR, _VECTOR_TIMES_MATRIX = 133, 142, 143, 144
_MATRIX_TIMES_VECTOR, _MATRIX_TIMES_MATRIX, _DOT, _FMA = 145, 146, 148, 50
#: Storage classes.
UNIFORM, WORKGROUP, PRIVATE, FUNCTION_STORAGE, PUSH_CONSTANT, STORAGE_BUFFER = 2, 4, 6, 7, 9, 12


@dataclass(frozen=True)
class Type:
    """``kind``: one of the opcodes ``T_…``; ``of``: the type's number of elements or of members;
    ``count``: bits, elements, or a constant's id; ``signed``: of integers."""

    kind: int
    of: tuple[int, ...] = ()
    count: int = 0
    signed: bool = False


@dataclass(frozen=True)
class Instruction:
    """``operands`` without the type and the result, which are 0 where there are none."""

    opcode: int
    type: int
    result: int
    operands: tuple[int, ...]


@dataclass
class Block:
    """``merge``, ``continues``: the blocks after and at the end of a loop that begins here, else 0;
    ``unrolled``: whether compilers are asked to unroll it; ``after``: the block where the branches
    of a selection meet, else 0."""

    label: int
    instructions: list[Instruction] = field(default_factory=list)
    end: Instruction = Instruction(UNREACHABLE, 0, 0, ())
    merge: int = 0
    continues: int = 0
    unrolled: bool = False
    after: int = 0


@dataclass
class Function:
    number: int
    parameters: list[int] = field(default_factory=list)
    blocks: dict[int, Block] = field(default_factory=dict)

    @property
    def first(self) -> int:
        return next(iter(self.blocks))


class Module:
    """A parsed module. ``values``: constants by id, of integers, booleans and lists of these (None:
    anything else), with the given specialisation constants."""

    def __init__(self, code: bytes, constants: Sequence[tuple[int, bytes]], entry: str) -> None:
        words = spirv.words_of(code)
        self.types: dict[int, Type] = {}
        self.values: dict[int, Any] = {}
        self.variables: list[Instruction] = []
        self.functions: dict[int, Function] = {}
        self.decorations: dict[int, dict[int, int]] = defaultdict(dict)
        self.offsets: dict[tuple[int, int], int] = {}
        self.type_of: dict[int, int] = {}
        self.spec_operations: list[Instruction] = []
        self.main = 0
        given = {number: int.from_bytes(value, "little") for number, value in constants}
        function, block = None, None
        for opcode, at, end in spirv.instructions(words):
            a = tuple(words[at + 1 : end])
            if function is None:
                function = self._declared(opcode, a, given, entry)
                continue
            if opcode == PARAMETER:
                function.parameters.append(a[1])
                self.type_of[a[1]] = a[0]
            elif opcode == LABEL:
                block = function.blocks[a[0]] = Block(a[0])
            elif opcode == FUNCTION_END:
                function = None
            elif block is not None:
                if opcode == LOOP_MERGE:
                    block.merge, block.continues, block.unrolled = a[0], a[1], bool(a[2] & 1)
                elif opcode == SELECTION_MERGE:
                    block.after = a[0]
                elif opcode in _TERMINATORS:
                    block.end = Instruction(opcode, 0, 0, a)
                elif opcode in _NO_RESULT or len(a) < 2:
                    block.instructions.append(Instruction(opcode, 0, 0, a))
                else:
                    self.type_of[a[1]] = a[0]
                    block.instructions.append(Instruction(opcode, a[0], a[1], a[2:]))

    def _declared(
        self, opcode: int, a: tuple[int, ...], given: Mapping[int, int], entry: str
    ) -> Function | None:
        """Takes an instruction outside of functions; returns the function that begins."""
        if opcode == ENTRY_POINT:
            name = struct.pack(f"<{len(a) - 2}I", *a[2:]).split(b"\0")[0].decode()
            if name == entry or not self.main:
                self.main = a[1]
        elif opcode == DECORATE:
            self.decorations[a[0]][a[1]] = a[2] if len(a) > 2 else 1
        elif opcode == MEMBER_DECORATE and a[2] == _OFFSET:
            self.offsets[a[0], a[1]] = a[3]
        elif opcode == T_BOOL:
            self.types[a[0]] = Type(T_BOOL)
        elif opcode in (T_INT, T_FLOAT):
            self.types[a[0]] = Type(opcode, (), a[1], opcode == T_INT and bool(a[2]))
        elif opcode in (T_VECTOR, T_MATRIX, T_ARRAY):
            self.types[a[0]] = Type(opcode, (a[1],), a[2])
        elif opcode == T_RUNTIME_ARRAY:
            self.types[a[0]] = Type(opcode, (a[1],))
        elif opcode in (T_IMAGE, T_SAMPLED_IMAGE):
            self.types[a[0]] = Type(opcode)
        elif opcode == T_STRUCT:
            self.types[a[0]] = Type(opcode, a[1:])
        elif opcode == T_POINTER:
            self.types[a[0]] = Type(opcode, (a[2],), a[1])
        elif opcode == VARIABLE:
            self.type_of[a[1]] = a[0]
            self.variables.append(Instruction(opcode, a[0], a[1], a[2:]))
        elif opcode == FUNCTION:
            return self.functions.setdefault(a[1], Function(a[1]))
        elif TRUE <= opcode <= SPEC_OP:
            self._constant(opcode, a, given)
        return None

    def _constant(self, opcode: int, a: tuple[int, ...], given: Mapping[int, int]) -> None:
        kind, number = self.types.get(a[0], Type(0)), a[1]
        self.type_of[number] = a[0]
        spec = given.get(self.decorations[number].get(_SPEC_ID, -1))
        if opcode in (TRUE, FALSE, SPEC_TRUE, SPEC_FALSE):
            self.values[number] = opcode in (TRUE, SPEC_TRUE) if spec is None else bool(spec)
        elif opcode in (CONSTANT, SPEC_CONSTANT):
            value = a[2] | (a[3] << 32 if len(a) > 3 else 0) if spec is None else spec
            self.values[number] = wrapped(value, kind) if kind.kind == T_INT else None
        elif opcode in (COMPOSITE, SPEC_COMPOSITE):
            self.values[number] = [self.values.get(i) for i in a[2:]]
        elif opcode == NULL:
            self.values[number] = 0 if kind.kind in (T_INT, T_BOOL) else None
        elif opcode == SPEC_OP:
            self.values[number] = None
            self.spec_operations.append(Instruction(a[2], a[0], number, a[3:]))

    def built_in(self, variable: int) -> int | None:
        return self.decorations[variable].get(_BUILT_IN)

    def place(self, variable: int) -> tuple[int, int]:
        """The set and the binding of a buffer."""
        found = self.decorations[variable]
        return found.get(_SET, 0), found.get(_BINDING, -1)

    def stride(self, array: int) -> int:
        return self.decorations[array].get(_ARRAY_STRIDE, 4)

    def length(self, number: int) -> int:
        """The number of scalars of a type, 1 where it isn't known."""
        kind = self.types[number]
        if kind.kind in (T_VECTOR, T_MATRIX):
            return kind.count * self.length(kind.of[0])
        return 1

    def size(self, number: int) -> int:
        """Bytes of a type in shared memory."""
        kind = self.types[number]
        if kind.kind == T_STRUCT:
            return sum(map(self.size, kind.of))
        if kind.kind in (T_VECTOR, T_MATRIX):
            return kind.count * self.size(kind.of[0])
        if kind.kind == T_ARRAY:
            return int(self.values[kind.count] or 0) * self.size(kind.of[0])
        return max(4, kind.count // 8)

    @property
    def zeroed(self) -> int:
        """Bytes of shared memory that are set to 0 before the module begins."""
        return sum(
            self.size(self.types[i.type].of[0])
            for i in self.variables if i.operands[0] == WORKGROUP and len(i.operands) > 1
        )

    def work(self, block: Block) -> tuple[int, int, int]:
        """The work of a block: floating-point multiplications, elements loaded from and stored in
        shared memory, elements loaded from buffers."""
        shared = loaded = 0
        for i in block.instructions:
            if i.opcode in (LOAD, STORE):
                pointer = self.types[self.type_of.get(i.operands[0], 0)]
                if pointer.count == WORKGROUP:
                    shared += self.length(pointer.of[0])
                elif pointer.count in (UNIFORM, STORAGE_BUFFER) and i.opcode == LOAD:
                    loaded += self.length(pointer.of[0])
            elif i.opcode in (IMAGE_FETCH, IMAGE_READ):
                loaded += self.length(i.type)
        return self._multiplications(block), shared, loaded

    def _multiplications(self, block: Block) -> int:
        found = 0
        for i in block.instructions:
            if i.opcode in (_F_MUL, _VECTOR_TIMES_SCALAR, _MATRIX_TIMES_SCALAR) or (
                i.opcode == EXT_INST and i.operands[1] == _FMA
            ):
                found += self.length(i.type)
            elif i.opcode in (_DOT, _MATRIX_TIMES_VECTOR):
                found += self.length(self.type_of[i.operands[0]])
            elif i.opcode == _VECTOR_TIMES_MATRIX:
                found += self.length(self.type_of[i.operands[1]])
            elif i.opcode == _MATRIX_TIMES_MATRIX:
                columns = self.types[self.type_of[i.operands[1]]].count
                found += self.length(self.type_of[i.operands[0]]) * columns
        return found


def wrapped(value: int, kind: Type) -> int:
    """An integer as its type keeps it."""
    value &= (1 << kind.count) - 1
    return value - (1 << kind.count) if kind.signed and value >> (kind.count - 1) else value
