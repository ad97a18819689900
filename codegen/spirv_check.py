"""Checks that bytes from a cache or an archive have the structure of a compute shader's module.

Drivers trust modules, and a malformed one may crash them. This module checks the header, the length
of every instruction, the order of the sections, that there is one entry point, that every id is in
bounds and defined exactly once, that types are types, and which capabilities are declared. It does
not check the behaviour of a module: its author chooses what runs on the device (docs/trust.md). The
time is bounded by the module's size.
"""

from __future__ import annotations

from array import array

from .spirv import MAGIC, SpirvError, is_known_capability, words_of

_LARGEST = 16 << 20  # bytes; the library's largest has 0.1 MB
_MOST_IDS = 0x3FFFFF  # the specification's universal limit
_VERSIONS = range(0x10000, 0x10700, 0x100)

_CAPABILITY, _EXTENSION, _IMPORT, _MEMORY_MODEL, _ENTRY_POINT = 17, 10, 11, 14, 15
_FUNCTION, _FUNCTION_END, _VARIABLE, _LABEL, _UNDEF = 54, 56, 59, 248, 1
_LINE, _NO_LINE = 8, 317
_GL_COMPUTE = 5
_TERMINATORS = frozenset({249, 250, 251, 252, 253, 254, 255})
_TYPES = frozenset({*range(19, 40), 4456})

#: The section of each instruction outside of functions, in the order of sections in a module.
_SECTIONS = {
    _CAPABILITY: 0, _EXTENSION: 1, _IMPORT: 2, _MEMORY_MODEL: 3, _ENTRY_POINT: 4, 16: 5, 331: 5,
    **dict.fromkeys((2, 3, 4, 5, 6, 7, 330), 6), **dict.fromkeys((71, 72, 332), 7),
    **dict.fromkeys((*_TYPES, *range(41, 53), _VARIABLE, _UNDEF), 8),
}


def _operands() -> dict[int, tuple[int, bool, int, int, int | None]]:
    """Opcode → (least words, has a type, place of the result or 0, first id, end of the ids or None
    for all following ones). For an instruction that isn't here only the length is checked."""
    table: dict[int, tuple[int, bool, int, int, int | None]] = {}

    def add(least: int, typed: bool, result: int, first: int, end: int | None, *ops: int) -> None:
        table.update(dict.fromkeys(ops, (least, typed, result, first, end)))

    # no ids at all
    add(2, False, 0, 0, 0, _CAPABILITY, _EXTENSION)
    add(3, False, 0, 0, 0, _MEMORY_MODEL)
    add(1, False, 0, 0, 0, _FUNCTION_END, 252, 253, 255, _NO_LINE)
    # a result only, or with ids
    add(2, False, 1, 0, 0, 19, 20, _LABEL)
    add(3, False, 1, 0, 0, _IMPORT, 22)
    add(4, False, 1, 0, 0, 21)
    add(4, False, 1, 2, 3, 23, 24)
    add(4, False, 1, 2, 4, 28)
    add(3, False, 1, 2, 3, 29)
    add(2, False, 1, 2, None, 30)
    add(4, False, 1, 3, 4, 32)
    add(3, False, 1, 2, None, 33)
    add(7, False, 1, 2, 7, 4456)
    add(9, False, 1, 2, 3, 25)
    add(3, False, 1, 2, 3, 27)
    # type and result
    add(3, True, 2, 0, 0, 41, 42, 46, 48, 49, _UNDEF, 55)
    add(4, True, 2, 0, 0, 43, 50, 52)
    add(3, True, 2, 3, None, 44, 51, 80)
    add(5, True, 2, 4, 5, _FUNCTION)
    add(4, True, 2, 3, None, 57, 65, 66)
    add(4, True, 2, 4, None, _VARIABLE)
    add(4, True, 2, 3, 4, 61, 81, 68, 83, 84, 400, 4460)
    add(4, True, 2, 3, 4, 100)
    add(5, True, 2, 3, 5, 95, 77, 79, 82, 4450, 4451, 4452, 4453, 4454, 4455)
    add(6, True, 2, 3, 6, 78, 4459)
    add(5, True, 2, 3, 5, 4457)
    add(4, True, 2, 3, None, *range(109, 125), 126, 127, *range(154, 164), 168, *range(200, 206))
    add(5, True, 2, 3, None, *range(128, 153), 164, 165, 166, 167, *range(170, 192),
        *range(194, 200), 245)
    add(6, True, 2, 3, None, 169)
    add(5, True, 2, 3, 4, 12)
    add(4, True, 2, 3, 4, *range(333, 349), *range(349, 365))
    add(5, True, 2, 3, None, *range(229, 243))
    add(6, True, 2, 3, None, 227)
    # ids only
    add(5, False, 0, 1, 5, 228)
    add(3, False, 0, 1, 3, 62, 63, 225, 246, 251, 4458)
    add(4, False, 0, 1, 4, 224, 250)
    add(3, False, 0, 1, 2, 247, 16, 71, 331, 332)
    add(4, False, 0, 1, 2, 72, _LINE)
    add(2, False, 0, 1, 2, 249, 254)
    add(3, False, 0, 1, 2, 5)
    add(4, False, 0, 1, 2, 6)
    return table


_OPERANDS = _operands()
_UNKNOWN = (1, False, 0, 0, 0)


def check(module: bytes) -> None:
    """Raises SpirvError unless it is a well-formed module of one compute shader."""
    if len(module) > _LARGEST:
        raise SpirvError(f"{len(module)} bytes are too many for a shader")
    words = words_of(module)
    if module[:4] != MAGIC.to_bytes(4, "little"):
        raise SpirvError("the module has the wrong byte order")
    version, bound, size = words[1], words[3], len(words)
    if version not in _VERSIONS:
        raise SpirvError(f"SPIR-V version {version:#x} is unknown")
    if not 0 < bound <= min(_MOST_IDS, 4 * size):
        raise SpirvError(f"a bound of {bound} ids in {size} words")
    if words[4]:
        raise SpirvError(f"the schema is {words[4]}, not 0")
    _Walk(words, bound).check()


class _Walk:
    def __init__(self, words: array, bound: int) -> None:
        self.words, self.bound = words, bound
        self.used: set[int] = set()
        self.types_used: set[int] = set()
        self.types: set[int] = set()
        self.functions: set[int] = set()
        self.entry: int | None = None
        self.models = 0

    def check(self) -> None:
        defined = self._walk()
        if self.entry is None or not self.models:
            raise SpirvError("the module has no entry point, or no memory model")
        if self.entry not in self.functions:
            raise SpirvError(f"the entry point %{self.entry} is not a function")
        if not self.types_used <= self.types:
            wrong = min(self.types_used - self.types)
            raise SpirvError(f"%{wrong} is used as a type, but is not one")
        if not self.used <= defined:
            raise SpirvError(f"%{min(self.used - defined)} is used and not defined")

    def _walk(self) -> set[int]:
        words, size, bound = self.words, len(self.words), self.bound
        position, section, function, block = 5, 0, False, False
        results: list[int] = []
        known = _OPERANDS.get
        used, types_used = self.used, self.types_used
        while position < size:
            word = words[position]
            op, end = word & 0xFFFF, position + (word >> 16)
            least, typed, result, first, last = known(op, _UNKNOWN)
            if end < position + least or end > size:
                raise SpirvError(
                    f"instruction {op} of {word >> 16} words at word {position} of {size}"
                )
            if typed:
                types_used.add(words[position + 1])
            if result:
                results.append(words[position + result])
            if last is None:
                used.update(words[position + first : end])
            elif last:
                used.update(words[position + first : position + last])
            if function:
                if op == _LABEL:
                    block = not block
                    inside = block
                elif op == _FUNCTION_END:
                    function, inside = False, not block
                elif op == 55 or op == _LINE or op == _NO_LINE:
                    inside = True
                else:
                    inside = block and op not in _SECTIONS or op in (_UNDEF, _VARIABLE)
                    if op in _TERMINATORS:
                        block = False
                if not inside:
                    raise SpirvError(f"instruction {op} at word {position} is misplaced")
            elif op == _FUNCTION:
                function, section = True, 9
                self.functions.add(words[position + 2])
            elif op != _LINE and op != _NO_LINE:
                section = self._outside(op, position, end, section)
            position = end
        if function:
            raise SpirvError("the last function has no end")
        defined = set(results)
        if len(defined) < len(results):
            raise SpirvError("an id is defined twice")
        if defined and (max(defined) >= bound or 0 in defined):
            raise SpirvError(f"an id is not below the bound of {bound}")
        return defined

    def _outside(self, op: int, position: int, end: int, section: int) -> int:
        """Check an instruction outside of functions; returns its section."""
        mine = _SECTIONS.get(op)
        if mine is None or mine < section:
            raise SpirvError(f"instruction {op} at word {position} is misplaced")
        if op in _TYPES:
            self.types.add(self.words[position + 1])
        elif op == _CAPABILITY:
            if not is_known_capability(self.words[position + 1]):
                raise SpirvError(f"capability {self.words[position + 1]} is not supported")
        elif op == _ENTRY_POINT:
            self._entry_point(position, end)
        elif op == _MEMORY_MODEL:
            self.models += 1
            if self.models > 1:
                raise SpirvError("a second memory model")
        return mine

    def _entry_point(self, position: int, end: int) -> None:
        words = self.words
        if self.entry is not None:
            raise SpirvError("a second entry point")
        if end - position < 4 or words[position + 1] != _GL_COMPUTE:
            raise SpirvError("the entry point is not of a compute shader")
        self.entry = words[position + 2]
        for place in range(position + 3, end):
            if not words[place] >> 24:  # the name's last word ends with a zero
                self.used.update(words[place + 1 : end])
                return
        raise SpirvError("the entry point's name has no end")
