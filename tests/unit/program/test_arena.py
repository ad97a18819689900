import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.counting import calls_of
from webnn_vk.program.arena import ALIGNMENT, ArenaPlanner


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
    """Many ranges free at once, of many sizes, among as many that are not."""
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
