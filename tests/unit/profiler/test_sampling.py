"""The runs whose kernels are timed."""

from __future__ import annotations

import pytest

from webnn_vk.profiler.sampling import FIRST, LEAST, SHARE, Sampler


def simulate(sampler, runs, seconds, stamps, kind=0):
    """This many runs with this duration without timestamps; returns the chosen ones."""
    chosen = []
    for number in range(runs):
        if sampler.chooses(kind, stamps):
            chosen.append(number)
            sampler.took(kind, seconds + stamps * sampler.stamp_seconds, stamps)
    return chosen


@pytest.mark.parametrize(("every", "expected"), [(1, [0, 1, 2, 3, 4, 5, 6]), (3, [0, 3, 6])])
def test_one_in_so_many(every, expected):
    assert simulate(Sampler(every, 1.0), 7, 0.001, 4) == expected


def test_all_where_timestamps_cost_little():
    # 4 timestamps of 2 µs in 1 ms: 0.8 %.
    sampler = Sampler(None, 2e-6)
    assert simulate(sampler, 100, 1e-3, 4) == list(range(100))
    assert sampler.overhead(0.1008) == pytest.approx(0.008)


def test_the_first_and_then_as_many_as_cost_little():
    # 4 timestamps of 50 µs in 0.4 ms: every run costs half more. SHARE allows one in 12.5.
    sampler = Sampler(None, 50e-6)
    chosen = simulate(sampler, 1000, 4e-4, 4)
    assert chosen[:FIRST] == list(range(FIRST))
    assert len(chosen) == pytest.approx(1000 * 4e-4 * SHARE / 2e-4, abs=1)
    assert sampler.overhead(0.4 + len(chosen) * 2e-4) <= SHARE * (1 + 1e-9)
    # The cost of the first ones is made up for before there are more, which are spread evenly.
    gaps = [after - before for before, after in zip(chosen[FIRST:], chosen[FIRST + 1:],
                                                    strict=False)]
    assert set(gaps) <= {12, 13} and chosen[FIRST] == pytest.approx(FIRST * 12.5 + 12.5, abs=1)


def test_a_short_block_has_all():
    assert simulate(Sampler(None, 1.0), FIRST, 1e-6, 100) == list(range(FIRST))


def test_each_graph_has_its_first_runs():
    sampler = Sampler(None, 1.0)
    assert simulate(sampler, 50, 1e-6, 3, "a") == list(range(FIRST))
    assert simulate(sampler, 50, 1e-6, 3, "b") == list(range(FIRST))


def test_what_the_host_spends_counts():
    sampler = Sampler(None, 0.0)
    assert simulate(sampler, 10, 1e-3, 4) == list(range(10))
    sampler.spent(10 * 1e-3 * SHARE + 1e-3 * SHARE)
    # As much as eleven runs allow, of which the eleventh is one.
    assert simulate(sampler, 1, 1e-3, 4) == [0]
    sampler.spent(1e-3 * SHARE * 5)
    assert simulate(sampler, 10, 1e-3, 4) == [4, 5, 6, 7, 8, 9]
    assert sampler.overhead(21e-3) == pytest.approx(SHARE * 16 / (21 - SHARE * 16))


def test_a_batch_is_chosen_from_before_it_is_over():
    """Not all of many runs queued at once are chosen before the cost of one is known."""
    sampler = Sampler(None, 50e-6)
    chosen = [sampler.chooses(0, 4) for _ in range(100)]
    assert sum(chosen) == FIRST
    for _ in range(FIRST):
        sampler.took(0, 6e-4, 4)
    more = sum(sampler.chooses(0, 4) for _ in range(100))
    assert more == pytest.approx(200 / 12.5 - FIRST, abs=1)


def test_a_price_that_is_too_high_leaves_something():
    sampler = Sampler(None, 1.0)
    assert sampler.chooses(0, 4)
    sampler.took(0, 1e-3, 4)
    assert sampler.overhead(1.0) == pytest.approx(4 / LEAST)
