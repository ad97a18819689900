"""How often the loops of a SPIR-V module turn in a dispatch: invocations are run without data.

Integers that decide which way control goes come from constants, push constants, uniform buffers and
the invocation's place. What is loaded from storage buffers and shared memory, and what is computed
with floating-point numbers, is unknown. A loop whose end depends on such a value is `Undetermined`;
of a selection that does, no branch is run, and it must not contain a loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import prod
from typing import Any

from . import module as m
from .module import Block, Function, Instruction, Module

#: Invocations of a wave, as AMD's drivers run compute shaders.
SUBGROUP = 64
#: Bytes of shared memory that an invocation sets to 0 at once, where the driver has to do that.
_ZEROED = 16
#: Steps that a dispatch's invocation may take.
_STEPS = 20_000_000
_LEAVES = "a loop ends by what is loaded or computed in floating point"
_GLSL = {
    5: abs, 38: min, 39: min, 41: max, 42: max,
    44: lambda x, low, high: min(max(x, low), high),
    45: lambda x, low, high: min(max(x, low), high),
}


class Undetermined(ValueError):
    """The number of turns of a loop isn't known; the message says why."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of a dispatch's invocations: workgroups, the push constants, and the content of
    uniform buffers by set and binding."""

    groups: tuple[int, int, int]
    local_size: tuple[int, int, int]
    push: bytes = b""
    uniforms: Mapping[tuple[int, int], bytes] = field(default_factory=dict)


@dataclass
class Loop:
    """A loop, and the rest of the module as the outermost one. ``turns``, ``entered``: of an
    invocation; ``work``: what it did without inner loops, as `Module.work`; ``unrolled``: whether
    compilers are asked to unroll it."""

    number: int
    inner: list[Loop] = field(default_factory=list)
    turns: int = 0
    entered: int = 0
    work: tuple[int, int, int] = (0, 0, 0)
    unrolled: bool = False

    @property
    def all_work(self) -> tuple[int, int, int]:
        """With inner loops."""
        return sum_of([self.work, *(loop.all_work for loop in self.inner)])


def sum_of(works: Iterable[tuple[float, ...]]) -> Any:
    return tuple(map(sum, zip(*works, strict=True)))


def executed(
    code: bytes, constants: Sequence[tuple[int, bytes]], entry: str, inputs: Inputs
) -> Loop:
    """The module's loops with their turns in the workgroup in the middle of the dispatch: the most
    of its first and its middle invocation, since a wave goes on while any of its lanes does.
    `Undetermined` where these depend on data."""
    first, middle = (
        _Run(Module(code, constants, entry), inputs, local).done()
        for local in ((0, 0, 0), tuple(n // 2 for n in inputs.local_size))
    )
    return _most(first, middle)


def _most(a: Loop, b: Loop) -> Loop:
    return Loop(
        a.number, [_most(*each) for each in zip(a.inner, b.inner, strict=True)],
        max(a.turns, b.turns), max(a.entered, b.entered),
        max(a.work, b.work), a.unrolled,
    )


class _Run:
    def __init__(self, module: Module, inputs: Inputs, local: Sequence[int]) -> None:
        self.module, self.inputs, self.local, self.steps = module, inputs, local, 0
        self.values: dict[int, Any] = module.values
        for instruction in module.spec_operations:
            self.values[instruction.result] = self._computed(instruction)
        for variable in module.variables:
            self.values[variable.result] = self._variable(variable)
        self.work = {
            block.label: module.work(block)
            for function in module.functions.values() for block in function.blocks.values()
        }
        self.needed = _needed(module)
        self.relevant = {
            block.label: [*filter(self._matters, block.instructions)]
            for function in module.functions.values() for block in function.blocks.values()
        }
        self.loops: dict[tuple[tuple[int, ...], int], Loop] = {}
        self.root = Loop(0, entered=1, turns=1)
        if module.zeroed:
            turns = -(-module.zeroed // (_ZEROED * prod(inputs.local_size)))
            elements = turns * _ZEROED // 4
            self.root.inner.append(Loop(0, turns=turns, entered=1, work=(0, elements, 0)))
        self._find(module.functions[module.main], (), self.root)

    def done(self) -> Loop:
        self._call(self.module.functions[self.module.main], [], (), self.root)
        return self.root

    def _matters(self, i: Instruction) -> bool:
        """Whether control may depend on what an instruction does."""
        if i.opcode == m.STORE:
            return i.operands[0] in self.needed
        return i.opcode == m.CALL or i.result in self.needed

    # -- structure --------------------------------------------------------------------------------
    def _find(self, function: Function, path: tuple[int, ...], outer: Loop) -> None:
        """All loops in order; a function's loops come where it is called."""
        inside = [(0, outer)]
        for block in function.blocks.values():
            while inside[-1][0] == block.label:
                inside.pop()
            if block.merge:
                loop = Loop(block.label, unrolled=block.unrolled)
                inside[-1][1].inner.append(loop)
                self.loops[path, block.label] = loop
                inside.append((block.merge, loop))
            for i in block.instructions:
                if i.opcode == m.CALL:
                    called = self.module.functions[i.operands[0]]
                    self._find(called, (*path, i.result), inside[-1][1])

    def _reached(self, function: Function, first: int, after: int, ways: Set[int]) -> set[int]:
        """The blocks of a branch up to ``after``, and the ``ways`` that it goes to."""
        seen: set[int] = set()
        left = [first]
        while left:
            label = left.pop()
            if label not in seen and label != after:
                seen.add(label)
                if label not in ways:
                    left += _targets(function.blocks[label].end)
        return seen

    def _contains_loop(self, block: Block) -> bool:
        return bool(block.merge) or any(
            i.opcode == m.CALL and any(
                b.merge for b in self.module.functions[i.operands[0]].blocks.values()
            ) for i in block.instructions
        )

    # -- control ----------------------------------------------------------------------------------
    def _call(
        self, function: Function, given: Sequence[Any], path: tuple[int, ...], outer: Loop
    ) -> Any:
        self.values.update(zip(function.parameters, given, strict=True))
        inside: list[tuple[Block, Loop]] = []
        label, before = function.first, 0
        while True:
            block = function.blocks[label]
            while inside and inside[-1][0].merge == label:
                inside.pop()
            if block.merge and not (inside and inside[-1][0] is block):
                loop = self.loops[path, label]
                loop.entered += 1
                inside.append((block, loop))
            if inside and inside[-1][0].continues == label:
                inside[-1][1].turns += 1
            here = inside[-1][1] if inside else outer
            if any(self.work[label]):
                here.work = sum_of((here.work, self.work[label]))
            self._run(block, before, path, here)
            end, before = block.end, label
            if end.opcode in (m.RETURN, m.KILL, m.UNREACHABLE):
                return None
            if end.opcode == m.RETURN_VALUE:
                return self.values.get(end.operands[0])
            label = self._next(function, block, [each for each, _ in inside])

    def _next(self, function: Function, block: Block, inside: Sequence[Block]) -> int:
        a = block.end.operands
        if block.end.opcode == m.BRANCH:
            return a[0]
        value = self.values.get(a[0])
        if value is None:
            if block.merge or not block.after:
                raise Undetermined(_LEAVES)
            ways = {n for loop in inside for n in (loop.merge, loop.continues, loop.label)}
            reached = {
                n for way in _targets(block.end)
                for n in self._reached(function, way, block.after, ways)
            }
            if ways & reached:
                raise Undetermined(_LEAVES)
            if any(self._contains_loop(function.blocks[n]) for n in reached):
                raise Undetermined("whether a loop runs depends on what is loaded")
            return block.after
        if block.end.opcode == m.BRANCH_IF:
            return a[1] if value else a[2]
        cases = dict(zip(a[2::2], a[3::2], strict=True))
        return cases.get(value & 0xFFFFFFFF, a[1])

    def _run(self, block: Block, before: int, path: tuple[int, ...], here: Loop) -> None:
        values = self.values
        phis = []
        for i in self.relevant[block.label]:
            if i.opcode == m.CALL:
                function = self.module.functions[i.operands[0]]
                given = [values.get(n) for n in i.operands[1:]]
                values[i.result] = self._call(function, given, (*path, i.result), here)
                continue
            if i.opcode == m.STORE:
                self._store(values.get(i.operands[0]), values.get(i.operands[1]))
                continue
            self.steps += 1
            if i.opcode == m.PHI:
                came = dict(zip(i.operands[1::2], i.operands[::2], strict=True))
                phis.append((i.result, values.get(came.get(before, 0))))
                continue
            if phis:
                values.update(phis)
                phis = []
            values[i.result] = self._computed(i)
        values.update(phis)
        if self.steps > _STEPS:
            raise Undetermined(f"an invocation takes more than {_STEPS} steps")

    # -- memory: (bytes, offset, type) or (a list with the value, the way into it) -----------------
    def _variable(self, i: Instruction) -> Any:
        module, storage = self.module, i.operands[0]
        pointee = module.types[i.type].of[0]
        built_in = module.built_in(i.result)
        if built_in is not None:
            return ([self._built_in(built_in)], ())
        if storage == m.PUSH_CONSTANT:
            return (self.inputs.push, 0, pointee)
        if storage == m.UNIFORM:
            return (self.inputs.uniforms.get(module.place(i.result)), 0, pointee)
        if storage in (m.PRIVATE, m.FUNCTION_STORAGE):
            first = self.values.get(i.operands[1]) if len(i.operands) > 1 else None
            return ([_copy(first)], ())
        return None

    def _built_in(self, number: int) -> Any:
        groups, size = self.inputs.groups, self.inputs.local_size
        group, local = [n // 2 for n in groups], [*self.local]
        index = local[0] + size[0] * (local[1] + size[1] * local[2])
        return {
            24: list(groups), 25: list(size), 26: group, 27: local,
            28: [g * n + at for g, n, at in zip(group, size, local, strict=True)], 29: index,
            36: SUBGROUP, 38: -(-prod(size) // SUBGROUP), 40: index // SUBGROUP,
            41: index % SUBGROUP,
        }.get(number)

    def _chain(self, i: Instruction) -> Any:
        pointer = self.values.get(i.operands[0])
        if pointer is None:
            return None
        ways = [self.values.get(n) for n in i.operands[1:]]
        if len(pointer) == 2:
            return (pointer[0], (*pointer[1], *ways))
        data, offset, kind = pointer
        for way in ways:
            of = self.module.types[kind]
            if way is None:
                return None
            if of.kind == m.T_STRUCT:
                offset += self.module.offsets.get((kind, way), 0)
                kind = of.of[way]
            else:
                step = 4 if of.kind == m.T_VECTOR else self.module.stride(kind)
                offset, kind = offset + step * way, of.of[0]
        return (data, offset, kind)

    def _load(self, pointer: Any) -> Any:
        if pointer is None:
            return None
        if len(pointer) == 2:
            value = pointer[0][0]
            for way in pointer[1]:
                value = value[way] if isinstance(value, list) and way is not None and (
                    0 <= way < len(value)) else None
            return _copy(value)
        return self._read(*pointer)

    def _read(self, data: bytes | None, offset: int, number: int) -> Any:
        kind = self.module.types[number]
        if data is None:
            return None
        if kind.kind == m.T_VECTOR:
            return [self._read(data, offset + 4 * n, kind.of[0]) for n in range(kind.count)]
        if kind.kind == m.T_STRUCT:
            return [
                self._read(data, offset + self.module.offsets.get((number, n), 0), of)
                for n, of in enumerate(kind.of)
            ]
        if kind.kind == m.T_ARRAY:
            stride, count = self.module.stride(number), self.values[kind.count]
            return [self._read(data, offset + stride * n, kind.of[0]) for n in range(count)]
        size = kind.count // 8
        if kind.kind != m.T_INT or offset + size > len(data):
            return None
        return int.from_bytes(data[offset : offset + size], "little", signed=kind.signed)

    def _store(self, pointer: Any, value: Any) -> None:
        if pointer is None or len(pointer) != 2:
            return
        box, ways = pointer
        at, key = box, 0
        for way in ways:
            if way is None or at[key] is not None and not isinstance(at[key], list):
                at[key] = None
                return
            if at[key] is None:
                at[key] = []
            at = at[key]
            at.extend([None] * (way + 1 - len(at)))
            key = way
        at[key] = _copy(value)

    # -- values -----------------------------------------------------------------------------------
    def _computed(self, i: Instruction) -> Any:
        a, values = i.operands, self.values
        if i.opcode == m.LOAD:
            return self._load(values.get(a[0]))
        if i.opcode in (m.CHAIN, m.CHAIN_IN_BOUNDS):
            return self._chain(i)
        if i.opcode == m.VARIABLE:
            return self._variable(i)
        if i.opcode == 81:  # OpCompositeExtract
            return self._load(([values.get(a[0])], a[1:]))
        if i.opcode == 77:  # OpVectorExtractDynamic
            return self._load(([values.get(a[0])], (values.get(a[1]),)))
        if i.opcode == 82:  # OpCompositeInsert
            box = [_copy(values.get(a[1]))]
            self._store((box, a[2:]), values.get(a[0]))
            return box[0]
        if i.opcode == 79:  # OpVectorShuffle
            both = [n for v in a[:2] for n in self._elements(v)]
            return [both[n] if n < len(both) else None for n in a[2:]]
        if i.opcode == 80:  # OpCompositeConstruct
            if self.module.types[i.type].kind == m.T_VECTOR:
                return [n for v in a for n in self._elements(v)]
            return [_copy(values.get(v)) for v in a]
        if i.opcode == m.EXT_INST:
            function, given = _GLSL.get(a[1]), a[2:]
        elif 338 <= i.opcode <= 339:  # broadcasts: of what all invocations have
            return values.get(a[1])
        elif 334 <= i.opcode <= 335:  # votes
            return values.get(a[1])
        else:
            function, given = _OPERATIONS.get(i.opcode), a
        if function is None or self.module.types[i.type].kind == m.T_FLOAT:
            return None
        return self._each(i, function, given)

    def _elements(self, number: int) -> list[Any]:
        value = self.values.get(number)
        if isinstance(value, list):
            return value
        return [value] * self.module.length(self.module.type_of[number])

    def _each(self, i: Instruction, function: Any, given: Sequence[int]) -> Any:
        kind = self.module.types[i.type]
        if kind.kind == m.T_VECTOR:
            element = self.module.types[kind.of[0]]
            sides = [self._elements(n) for n in given]
            sides = [side * kind.count if len(side) == 1 else side for side in sides]
            return [
                self._one(i.opcode, function, args, element) for args in zip(*sides, strict=True)
            ]
        return self._one(i.opcode, function, [self.values.get(n) for n in given], kind)

    def _one(self, opcode: int, function: Any, args: Sequence[Any], kind: m.Type) -> Any:
        if opcode == 169:  # OpSelect
            return None if args[0] is None else args[1] if args[0] else args[2]
        if opcode in (166, 167) and None in args:  # OpLogicalOr, OpLogicalAnd
            return (opcode == 166) if (opcode == 166) in args else None
        if any(not isinstance(each, int) for each in args):
            return None
        value = function(*args)
        if value is None or kind.kind == m.T_BOOL:
            return value
        return m.wrapped(int(value), kind) if kind.kind == m.T_INT else None


def _u(value: int) -> int:
    return value & 0xFFFFFFFF if value < 0 else value


def _s(value: int) -> int:
    return value - (1 << 32) if 1 << 31 <= value < 1 << 32 else value


def _truncated(x: int, y: int) -> int | None:
    """A quotient without its fraction."""
    return None if y == 0 else (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1)


def _remainder(x: int, y: int) -> int | None:
    whole = _truncated(x, y)
    return None if whole is None else x - y * whole


_OPERATIONS: dict[int, Any] = {
    83: lambda x: x, 113: _u, 114: _s, 124: lambda x: x, 126: lambda x: -x, 400: lambda x: x,
    128: lambda x, y: x + y, 130: lambda x, y: x - y, 132: lambda x, y: x * y,
    134: lambda x, y: _u(x) // _u(y) if y else None, 135: lambda x, y: _truncated(_s(x), _s(y)),
    137: lambda x, y: _u(x) % _u(y) if y else None, 138: lambda x, y: _remainder(_s(x), _s(y)),
    139: lambda x, y: _s(x) % _s(y) if y else None,
    164: lambda x, y: x == y, 165: lambda x, y: x != y, 166: lambda x, y: bool(x or y),
    167: lambda x, y: bool(x and y), 168: lambda x: not x, 169: lambda c, x, y: x if c else y,
    170: lambda x, y: _u(x) == _u(y), 171: lambda x, y: _u(x) != _u(y),
    172: lambda x, y: _u(x) > _u(y), 173: lambda x, y: _s(x) > _s(y),
    174: lambda x, y: _u(x) >= _u(y), 175: lambda x, y: _s(x) >= _s(y),
    176: lambda x, y: _u(x) < _u(y), 177: lambda x, y: _s(x) < _s(y),
    178: lambda x, y: _u(x) <= _u(y), 179: lambda x, y: _s(x) <= _s(y),
    194: lambda x, y: _u(x) >> (y & 63), 195: lambda x, y: _s(x) >> (y & 63),
    196: lambda x, y: x << (y & 63), 197: lambda x, y: x | y, 198: lambda x, y: x ^ y,
    199: lambda x, y: x & y, 200: lambda x: ~x,
    203: lambda x, at, n: _u(x) >> at & ((1 << n) - 1),
}


def _copy(value: Any) -> Any:
    return [_copy(each) for each in value] if isinstance(value, list) else value


def _targets(end: Instruction) -> tuple[int, ...]:
    if end.opcode == m.BRANCH:
        return end.operands[:1]
    if end.opcode == m.BRANCH_IF:
        return end.operands[1:3]
    return (end.operands[1], *end.operands[3::2]) if end.opcode == m.SWITCH else ()


def _needed(module: Module) -> set[int]:
    """The ids that control may depend on, so that others need not be computed."""
    made: dict[int, Instruction] = {}
    stores: dict[int, list[Instruction]] = {}
    returned: dict[int, list[int]] = {}
    left: list[int] = []
    for function in module.functions.values():
        for block in function.blocks.values():
            for i in block.instructions:
                if i.opcode == m.STORE:
                    stores.setdefault(_root(made, i.operands[0]), []).append(i)
                elif i.opcode == m.CALL:
                    left += i.operands[1:]
                if i.result:
                    made[i.result] = i
            if block.end.opcode in (m.BRANCH_IF, m.SWITCH):
                left.append(block.end.operands[0])
            elif block.end.opcode == m.RETURN_VALUE:
                returned.setdefault(function.number, []).append(block.end.operands[0])
        left += function.parameters
    needed: set[int] = set()
    while left:
        number = left.pop()
        if number in needed:
            continue
        needed.add(number)
        for store in stores.get(number, ()):
            left += store.operands
        instruction = made.get(number)
        if instruction is None:
            continue
        if instruction.opcode == m.CALL:
            left += returned.get(instruction.operands[0], [])
        elif module.types[instruction.type].kind != m.T_FLOAT:
            left += [n for n in instruction.operands if n in made or n in stores]
    return needed


def _root(made: Mapping[int, Instruction], pointer: int) -> int:
    """The variable that a pointer points into."""
    while pointer in made and made[pointer].opcode in (m.CHAIN, m.CHAIN_IN_BOUNDS):
        pointer = made[pointer].operands[0]
    return pointer
