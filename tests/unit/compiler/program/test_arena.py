import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.counting import calls_of
from webnn_vk.compiler.program.arena import (
    ALIGNMENT,
    ArenaPlanner,
    Lifetime,
    liveness_bound,
    placed_within,
)


@given(st.lists(st.tuples(st.integers(1, 5000), st.booleans(), st.integers(0, 50)), max_size=80))
def test_live_ranges_never_overlap(steps):
    planner = ArenaPlanner(16 * 1024)
    live: list[tuple[int, int, int]] = []
    for size, release, which in steps:
        if release and live:
            planner.free(*live.pop(which % len(live)))
        block, offset = planner.allocate(size)
        end = offset + -(-size // ALIGNMENT) * ALIGNMENT
        assert offset % ALIGNMENT == 0
        assert end <= planner.sizes[block] <= 16 * 1024
        for other, start, length in live:
            assert other != block or offset >= start + length or start >= end
        live.append((block, offset, size))


def test_freed_memory_is_reused_and_merged():
    planner = ArenaPlanner(1 << 20)
    places = [planner.allocate(1000) for _ in range(3)]
    assert planner.sizes == [3072]
    for place in places:
        planner.free(*place, 1000)
    assert planner.allocate(3000) == (0, 0)
    assert planner.sizes == [3072]


def test_a_block_grows_from_the_free_range_at_its_end():
    planner = ArenaPlanner(4096)
    planner.allocate(1024)
    last = planner.allocate(512)
    planner.free(*last, 512)
    assert planner.allocate(2048) == last
    assert planner.sizes == [3072]


def test_best_fit_takes_the_smallest_range():
    planner = ArenaPlanner(1 << 20)
    a, _, b, _ = (planner.allocate(n) for n in (2048, 256, 512, 256))
    planner.free(*a, 2048)
    planner.free(*b, 512)
    assert planner.allocate(512) == b


def test_blocks_and_their_limit():
    planner = ArenaPlanner(1024)
    assert [planner.allocate(768)[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(MemoryError, match="2048 bytes exceed the device's allocation of 1024"):
        planner.allocate(2000)


def _busy(count: int) -> None:
    """Many free ranges at once, of many sizes, among as many used ones."""
    chance = random.Random(1)
    planner = ArenaPlanner(1 << 40)
    sizes = [chance.randint(1, 100_000) for _ in range(count)]
    places = [planner.allocate(size) for size in sizes]
    for place, size in [*zip(places, sizes, strict=True)][::2]:
        planner.free(*place, size)
    for size in sizes:
        planner.free(*planner.allocate(size), size)


def test_work_grows_with_the_ranges_not_their_square():
    assert calls_of(lambda: _busy(2000)) < 2.5 * calls_of(lambda: _busy(1000))


_LIVES = st.lists(
    st.builds(
        lambda size, first, length: Lifetime(size, first, first + length),
        st.integers(1, 5000), st.integers(0, 20), st.integers(0, 8),
    ),
    max_size=30,
)


@given(_LIVES)
def test_places_within_lie_apart_while_both_live(lifetimes):
    wanted = liveness_bound(lifetimes)
    offsets, total = placed_within(lifetimes, wanted, 20 * len(lifetimes) ** 2)
    assert total >= wanted
    pairs = zip(offsets, lifetimes, strict=True)
    ends = [o + -(-v.size // ALIGNMENT) * ALIGNMENT for o, v in pairs]
    assert max(ends, default=0) == total and not any(o % ALIGNMENT for o in offsets)
    for n, life in enumerate(lifetimes):
        for m, other in enumerate(lifetimes[:n]):
            if life.first <= other.last and other.first <= life.last:
                assert ends[n] <= offsets[m] or ends[m] <= offsets[n]


@given(_LIVES)
def test_the_bound_is_what_lives_at_one_time(lifetimes):
    alive = [
        sum(-(-v.size // ALIGNMENT) * ALIGNMENT for v in lifetimes if v.first <= now <= v.last)
        for now in range(30)
    ]
    assert liveness_bound(lifetimes) == max(alive, default=0)


def test_what_does_not_fit_is_placed_first_in_the_next_plan():
    # Residuals of a network: each lives together with the previous and the next one, and with
    # smaller ones in between that need all remaining memory.
    lives = [(400, 14, 24), (400, 24, 34), (225, 18, 20), (225, 20, 22)]
    lives += [(100, 22, 24), (225, 28, 30), (225, 30, 32), (100, 32, 34)]
    lifetimes = [Lifetime(size * ALIGNMENT, first, last) for size, first, last in lives]
    bound = liveness_bound(lifetimes)
    assert bound == 900 * ALIGNMENT
    assert placed_within(lifetimes, bound, 0)[1] > bound
    assert placed_within(lifetimes, bound, 1000)[1] == bound
