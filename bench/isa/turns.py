"""How often each instruction of a listing runs.

The compiler keeps the loops of a SPIR-V module in order, unrolls some and drops others, so each
loop of the listing is one of the module. Of the possible matches, the best is the one in which the
listing multiplies, uses shared memory and loads as often as the module. Where no match comes near
in multiplications, or equally good matches differ much, the result is `Undetermined`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from webnn_vk.codegen.isa.listing import Block, Kind, loops, mix

from .execution import Loop, Undetermined, sum_of

#: The most turns of a loop that NIR unrolls.
_UNROLLED = 64
#: How far the multiplications of listing and module may be apart, as a part of the module's: the
#: compiler shares equal ones, and this count includes branches that aren't taken. Not checked where
#: loads are ten times as many, since division and exp multiply too.
_APART = 0.5
#: How far ways that are equally near may differ in instructions; the shortest is the bound.
_ALIKE = 1.2
_WAYS = 20000
_MULTIPLICATION = re.compile(r"v_(?:pk_|dual_)?mul_(?:f|legacy)")


@dataclass
class _Found:
    """A loop of a listing with its blocks, from the first to the last."""

    first: int
    last: int
    inner: list[_Found] = field(default_factory=list)
    own: list[Block] = field(default_factory=list)

    @cached_property
    def work(self) -> tuple[int, int, int]:
        """As `Module.work`, of one turn without inner loops."""
        found = mix(self.own)
        return (
            sum(map(_multiplications, self.own)),
            sum(width * count for width, count in found.lds.items()) // 4,
            sum(max(width, 4) * count for width, count in found.loads.items()) // 4,
        )


#: Loops of a listing, each with the loop of the module and the number of its copies, which come
#: from unrolling the loops around it.
_Way = tuple[tuple[_Found, Loop, int], ...]


def executions(blocks: Sequence[Block], module: Loop) -> list[tuple[Block, float]]:
    """Each block of a listing with how often an invocation runs it; once outside of loops."""
    root = _tree(blocks)
    ways = []
    inner = tuple((loop, 1) for loop in module.inner)
    for number, way in enumerate(_ways(tuple(root.inner), inner)):
        if number == _WAYS:
            raise Undetermined(f"its {len(root.inner)} loops match in more than {_WAYS} ways")
        ways.append((_apart(root, module, way), way))
    if not ways:
        raise Undetermined("no match of its loops with the module's")
    least, best = min((sum(apart), apart[0]) for apart, _ in ways)
    multiplied, *other = module.all_work
    if best > _APART and 10 * multiplied > sum(other):
        raise Undetermined(f"its loops multiply {best:.0%} more or less often than the module's")
    near = [_counted(root, way) for apart, way in ways if sum(apart) <= least + 1e-9]
    totals = [sum(len(block.instructions) * count for block, count in each) for each in near]
    if max(totals) > _ALIKE * min(totals):
        raise Undetermined("which loops of the module are left in it can't be told")
    return near[totals.index(min(totals))]


def _tree(blocks: Sequence[Block]) -> _Found:
    """The listing as the outermost of its loops."""
    number = {block.number: n for n, block in enumerate(blocks)}
    ranges: dict[int, int] = {}
    for loop in loops(blocks):
        first, last = number[loop[0].number], number[loop[-1].number]
        ranges[first] = max(last, ranges.get(first, 0))
    root = _Found(0, len(blocks))
    inside = [root]
    for n, block in enumerate(blocks):
        while inside[-1] is not root and inside[-1].last < n:
            inside.pop()
        if n in ranges:
            found = _Found(n, ranges[n])
            inside[-1].inner.append(found)
            inside.append(found)
        inside[-1].own.append(block)
    return root


def _ways(found: tuple[_Found, ...], left: tuple[tuple[Loop, int], ...]) -> Iterator[_Way]:
    """Every match of the listing's loops with loops of the module, in order."""
    if not left:
        if not found:
            yield ()
        return
    (loop, copies), rest = left[0], left[1:]
    if found:
        for inner in _ways(tuple(found[0].inner), tuple((each, copies) for each in loop.inner)):
            for after in _ways(found[1:], rest):
                yield ((found[0], loop, copies), *inner, *after)
    if _may_vanish(loop):
        yield from _ways(found, rest)
    turns = round(loop.turns / loop.entered) if loop.entered else 0
    if loop.inner and 1 <= turns <= len(found):
        copied = tuple((each, copies * turns) for each in loop.inner) * turns
        yield from _ways(found, copied + rest)


def _may_vanish(loop: Loop) -> bool:
    return loop.turns <= _UNROLLED * loop.entered and all(map(_may_vanish, loop.inner))


def _apart(root: _Found, module: Loop, way: _Way) -> tuple[float, ...]:
    """How far each kind of work in the loops is apart, as a part of the module's."""
    kept: dict[int, tuple[float, ...]] = {}
    for found, loop, copies in way:
        done = tuple(each * loop.turns / copies for each in found.work)
        kept[id(loop)] = sum_of((kept.get(id(loop), (0, 0, 0)), done))
    apart = [0.0, 0.0, 0.0]

    def visit(loop: Loop) -> tuple[float, ...]:
        """The work of what is unrolled into the loop around."""
        own = sum_of([loop.work, *map(visit, loop.inner)])
        if id(loop) not in kept:
            return own
        for n, (wanted, done) in enumerate(zip(own, kept[id(loop)], strict=True)):
            apart[n] += abs(wanted - done)
        return 0, 0, 0

    for n, (wanted, done) in enumerate(zip(visit(module), root.work, strict=True)):
        # What isn't in a loop may be in branches that aren't taken.
        apart[n] += max(0.0, wanted - done)
    return tuple(
        each / max(1, whole) for each, whole in zip(apart, module.all_work, strict=True)
    )


def _counted(root: _Found, way: _Way) -> list[tuple[Block, float]]:
    counts = [(block, 1.0) for block in root.own]
    for found, loop, copies in way:
        counts += [(block, loop.turns / copies) for block in found.own]
    return counts


def _multiplications(block: Block) -> int:
    """Multiply-adds, and multiplications of floating-point numbers: chains begin with one."""
    found = 0
    for i in block.instructions:
        if i.kind in (Kind.FMA, Kind.VECTOR):
            second = i.operands.split("::")[1].split()[:1] if "::" in i.operands else []
            multiplied = sum(bool(_MULTIPLICATION.match(name)) for name in (i.opcode, *second))
            found += i.multiply_adds + multiplied * (2 if i.opcode.startswith("v_pk_") else 1)
    return found
