"""Memory planning: places for slots, by exact liveness."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from webnn_vk.driver.resources import ALIGNMENT
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import round_up

from .arena import ArenaPlanner, Lifetime, WholeBlocks, liveness_bound, placed_within
from .program import Slot

# An arena is good enough if it exceeds the bytes alive at one time by at most 1/50.
_GOOD_ENOUGH = 50
# Pairs of slots to compare in search of a better arena: about 100 ms. With so many slots that one
# plan takes more pairs, there is no search.
_PAIRS = 1 << 20


def _aligned(size: int) -> int:
    return round_up(size, ALIGNMENT)


@dataclass(frozen=True)
class MemoryPlan:
    """The slots with their places, and the sizes in bytes of the memory that they share."""

    slots: tuple[Slot, ...]
    arenas: tuple[int, ...]
    host_size: int


def plan_memory(
    slots: Sequence[Slot],
    uses: Iterable[Sequence[int]],
    block_limit: int,
    *,
    whole: bool = False,
    room: Callable[[int], int] = _aligned,
) -> MemoryPlan:
    """Places for the slots of kind "arena" and "host".

    ``uses`` lists the slots touched at each point in time, in order. A slot of the arena owns its
    memory from its first use to its last, inclusive. "host" slots keep their memory, since CPU
    steps may hold on to arrays read there. MemoryError if a slot exceeds ``block_limit`` bytes, the
    device's largest allocation. ``whole``: a slot has a whole block while it is alive
    (``DeviceProfile.whole_bindings``). ``room``: the bytes to reserve for a size
    (``driver.resources.room_for``).

    Places are found in the order of time and, if that leaves gaps, in the order of sizes; the
    smaller arena is used.
    """
    times = [dict.fromkeys(touched) for touched in uses]
    last = {slot: time for time, touched in enumerate(times) for slot in touched}
    limit = block_limit // ALIGNMENT * ALIGNMENT
    arena = WholeBlocks(limit) if whole else ArenaPlanner(limit)
    placed = list(slots)
    known: set[int] = set()
    # The next slot begins after this slot's texel views, unless the limit leaves no room for them.
    rooms = [room(slot.size) for slot in slots]
    rooms = [
        slot.size if whole or wanted > limit else wanted
        for slot, wanted in zip(slots, rooms, strict=True)
    ]
    for time, touched in enumerate(times):
        in_arena = [slot for slot in touched if slots[slot].kind == "arena"]
        for slot in in_arena:
            if slot not in known:
                known.add(slot)
                block, offset = arena.allocate(rooms[slot])
                placed[slot] = replace(slots[slot], index=block, offset=offset)
        for slot in in_arena:
            if last[slot] == time:
                arena.free(placed[slot].index, placed[slot].offset, rooms[slot])
    if not whole:
        _placed_tighter(placed, times, last, arena.sizes, rooms)
    host_size = 0
    for number, slot in enumerate(slots):
        if slot.kind == "host":
            placed[number] = replace(slot, offset=host_size)
            host_size += round_up(slot.size, ALIGNMENT)
    return MemoryPlan(tuple(placed), tuple(arena.sizes), host_size)


def _placed_tighter(
    placed: list[Slot], times: Sequence[Iterable[int]], last: dict[int, int], arenas: list[int],
    rooms: Sequence[int],
) -> None:
    """If an arena is larger than the bytes alive at one time, look for other places for its slots,
    and use them if they need less."""
    slots = [slot for slot in last if placed[slot].kind == "arena"]
    if len(arenas) != 1 or len(slots) ** 2 > _PAIRS:
        return
    first: dict[int, int] = {}
    for time, touched in enumerate(times):
        for slot in touched:
            first.setdefault(slot, time)
    lifetimes = [Lifetime(rooms[slot], first[slot], last[slot]) for slot in slots]
    bound = liveness_bound(lifetimes)
    wanted = bound + bound // _GOOD_ENOUGH
    if arenas[0] <= wanted:
        return
    offsets, total = placed_within(lifetimes, wanted, _PAIRS)
    if total < arenas[0]:
        arenas[0] = total
        for slot, offset in zip(slots, offsets, strict=True):
            placed[slot] = replace(placed[slot], offset=offset)


def stack_scratch(
    slots: Sequence[Slot], wanted: Iterable[int], room: Callable[[int], int] = _aligned
) -> tuple[tuple[Slot, ...], int]:
    """The slots, with the ``wanted`` ones (scratch of one set-up part) placed one after the other,
    and their total bytes. ``room`` as in ``plan_memory``."""
    placed, size = list(slots), 0
    for number in wanted:
        placed[number] = replace(placed[number], offset=size)
        size += room(placed[number].size)
    return tuple(placed), size
