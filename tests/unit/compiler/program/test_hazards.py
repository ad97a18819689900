from hypothesis import given
from hypothesis import strategies as st

from webnn_vk.compiler.program.hazards import HazardTracker, Location, with_barriers
from webnn_vk.compiler.program.program import BarrierStep, CopyStep, Range, Slot
from webnn_vk.support.integers import round_up

PLACES = st.builds(
    Location, st.sampled_from(["arena", "input"]), st.integers(0, 1), st.integers(0, 40),
    st.integers(1, 20),
)


@given(st.lists(st.tuples(st.lists(PLACES, max_size=3), st.lists(PLACES, max_size=2))))
def test_a_barrier_stands_between_any_two_conflicting_steps(steps):
    tracker = HazardTracker()
    since: list[tuple[Location, bool]] = []
    for reads, writes in steps:
        accesses = [(p, False) for p in reads] + [(p, True) for p in writes]
        conflict = any(
            p.space == q.space and p.key == q.key and (w or v)
            and p.offset < q.offset + q.size and q.offset < p.offset + p.size
            for p, w in accesses for q, v in since
        )
        assert tracker.step(accesses) == conflict
        since = accesses if conflict else since + accesses


def test_long_runs_without_conflict_get_a_barrier_too():
    tracker = HazardTracker()
    places = [Location("arena", 0, 16 * i, 16) for i in range(600)]
    assert sum(tracker.step([(place, True)]) for place in places) == 2


def test_a_texel_view_reaches_into_the_padding_of_its_slot():
    """Writes to the padding wait for the read, on drivers where views cover the padding."""
    slots = [Slot("arena", 64, offset=256), Slot("arena", 128, offset=256), Slot("arena", 512)]
    read = CopyStep(Range(0, 0, 64), Range(2, 0, 64))
    write = CopyStep(Range(2, 256, 64), Range(1, 64, 64))
    assert with_barriers(slots, [read, write]) == (read, write)
    padding = with_barriers(slots, [read, write], lambda size: round_up(size, 256))
    assert padding == (read, BarrierStep(), write)
    # In front of the end of its slot a view is exact.
    part = CopyStep(Range(1, 0, 64), Range(2, 0, 64))
    assert with_barriers(slots, [part, write], lambda size: round_up(size, 256)) == (part, write)
