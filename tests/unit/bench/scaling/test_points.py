"""Cliffs in synthetic measurements, and the multiply-adds by which time is divided."""

import pytest

from bench.models import classic, mobilenet_v2
from bench.scaling.points import TITLES, Point, cells, cliffs, remarks
from bench.scaling.sweeps import SWEEPS


def point(size, each, processor=None, **others):
    """With this many seconds per multiply-add, of which there are ten for each unit of its size."""
    work = 10 * size
    return Point(size, work, each * work, (each if processor is None else processor) * work,
                 **others)


def test_a_cliff_is_a_jump_upwards():
    points = [point(1, 9), point(2, 4), point(4, 4.4), point(8, 6.7), point(16, 8), point(32, 2)]
    (cliff,) = cliffs(points, "clock")
    assert (cliff.before.size, cliff.point.size) == (4, 8)
    assert cliff.factor == pytest.approx(6.7 / 4.4)
    assert cliffs(points, "clock", 1.6) == []


def test_sizes_without_figures_are_passed_over():
    points = [point(8, 4), Point(4, 40, failure="Traceback\nMemoryError: too large\n"), point(2, 1)]
    (cliff,) = cliffs(points, "clock")
    assert (cliff.before.size, cliff.point.size) == (2, 8)
    assert remarks(points, "clock", "tokens") == [
        "cliff at 8 tokens: a multiply-add takes 4.00 times as long as at 2",
        "4 tokens: MemoryError: too large",
    ]
    assert remarks(points[:1], "clock", "tokens") == []


def test_judged_by_what_was_asked_for():
    points = [point(1, 1, processor=3), point(2, 2, processor=3)]
    assert len(cliffs(points, "clock")) == 1
    assert cliffs(points, "processor") == []


def test_the_table():
    points = [
        point(2, 1e-12, 2e-12, build=0.5, peak=99.6), Point(4, 40, failure="no memory"),
        point(8, 2e-12, 3e-12, on_host=3),
    ]
    found = cells(points, "clock")
    assert {len(row) for row in found} == {len(TITLES)}
    assert found[0] == ["2", "0.0", "0.0", "1.0", "", "0.50", "100", "0", ""]
    assert found[1][0] == "4" and found[1][-1] == "failed"
    assert found[2][3:] == ["2.0", "2.00", "0.00", "0", "3", "cliff"]


def test_multiply_adds():
    # The peers' harness counts the same for the ONNX models by walking their nodes.
    assert 2 * mobilenet_v2.multiply_adds() == 601_548_544
    assert 2 * classic.bert_multiply_adds(2) == 3_724_541_952
    assert mobilenet_v2.multiply_adds(3) == 3 * mobilenet_v2.multiply_adds()
    # Sides that a stride doesn't divide are rounded up: 17 after the first.
    assert mobilenet_v2.multiply_adds(1, 33) == mobilenet_v2.multiply_adds(1, 34)


@pytest.mark.parametrize("key", SWEEPS)
def test_sweeps_reach_as_far_as_they_say(key):
    first, last = {"tokens": (64, 2048), "image": (128, 1024), "batch": (1, 64)}[key]
    sizes = SWEEPS[key].sizes
    assert list(sizes) == sorted(set(sizes)) and (sizes[0], sizes[-1]) == (first, last)
    # At sizes between the powers of two as well.
    assert any(size & (size - 1) for size in sizes)
