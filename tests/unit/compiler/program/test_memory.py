import pytest
from hypothesis import given
from hypothesis import strategies as st

from webnn_vk.compiler.program.memory import plan_memory, stack_scratch
from webnn_vk.compiler.program.program import Slot

LIMIT = 4096


@given(st.data())
def test_slots_in_use_at_one_time_lie_apart(data):
    sizes = data.draw(st.lists(st.integers(1, 2000), min_size=1, max_size=12))
    slots = [Slot("arena", size) for size in sizes]
    some = st.lists(st.integers(0, len(slots) - 1), max_size=4)
    uses = data.draw(st.lists(some, max_size=20))
    plan = plan_memory(slots, uses, LIMIT)
    lives = {
        n: [t for t, touched in enumerate(uses) if n in touched] for n in range(len(slots))
    }
    for n, times in lives.items():
        slot = plan.slots[n]
        if not times:
            assert slot == slots[n]
            continue
        assert slot.size == sizes[n] and slot.offset % 256 == 0
        assert slot.offset + slot.size <= plan.arenas[slot.index] <= LIMIT
        for m, others in lives.items():
            other = plan.slots[m]
            at_once = others and times[0] <= others[-1] and others[0] <= times[-1]
            if m != n and at_once and other.index == slot.index:
                assert (
                    slot.offset + slot.size <= other.offset
                    or other.offset + other.size <= slot.offset
                )


def test_memory_is_used_again_and_no_more_than_needed():
    slots = [Slot("arena", 1000) for _ in range(5)]
    chain = [[n, n + 1] for n in range(4)]
    assert plan_memory(slots, chain, LIMIT).arenas == (2048,)


def test_places_by_size_where_the_order_of_time_leaves_gaps():
    # A small slot takes the place of a large one, which the next large one then can't have.
    slots = [Slot("arena", size) for size in (1024, 256, 1024, 256)]
    uses = [[0], [1], [1, 2], [2, 3]]
    assert plan_memory(slots, uses, LIMIT).arenas == (1280,)


@given(st.data())
def test_whole_blocks_are_of_one_slot_at_a_time(data):
    sizes = data.draw(st.lists(st.integers(1, 2000), min_size=1, max_size=12))
    slots = [Slot("arena", size) for size in sizes]
    some = st.lists(st.integers(0, len(slots) - 1), max_size=4)
    uses = data.draw(st.lists(some, max_size=20))
    plan = plan_memory(slots, uses, LIMIT, whole=True)
    lives = {n: [t for t, touched in enumerate(uses) if n in touched] for n in range(len(slots))}
    used = {n: times for n, times in lives.items() if times}
    for n, times in used.items():
        slot = plan.slots[n]
        assert slot.offset == 0 and sizes[n] <= plan.arenas[slot.index] <= LIMIT
        for m, others in used.items():
            if m != n and times[0] <= others[-1] and others[0] <= times[-1]:
                assert plan.slots[m].index != slot.index
    # At most as many as are alive at one time.
    alive = [sum(t[0] <= now <= t[-1] for t in used.values()) for now in range(len(uses))]
    assert len(plan.arenas) == max(alive, default=0)


def test_whole_blocks_grow_for_a_larger_slot():
    slots = [Slot("arena", size) for size in (256, 512, 1024, 300)]
    plan = plan_memory(slots, [[0], [1], [2], [3]], LIMIT, whole=True)
    assert plan.arenas == (1024,)
    with pytest.raises(MemoryError, match="5120 bytes exceed"):
        plan_memory([Slot("arena", 5000)], [[0]], LIMIT, whole=True)


def test_only_arena_and_host_slots_get_a_place():
    slots = [Slot("input", 64, name="x"), Slot("host", 100), Slot("array", 64), Slot("host", 20)]
    plan = plan_memory(slots, [[0, 1], [1, 2, 3]], LIMIT)
    assert plan.slots == (slots[0], slots[1], slots[2], Slot("host", 20, offset=256))
    assert (plan.arenas, plan.host_size) == ((), 512)


def test_what_one_allocation_can_not_hold():
    with pytest.raises(MemoryError, match="5120 bytes exceed"):
        plan_memory([Slot("arena", 5000)], [[0]], LIMIT)


def test_scratch_of_a_set_up_part():
    slots = (Slot("constant", 64), Slot("scratch", 100), Slot("scratch", 300))
    placed, size = stack_scratch(slots, [1, 2])
    assert placed == (*slots[:2], Slot("scratch", 300, offset=256)) and size == 768
