"""The layout of fast-sugiyama, and the message if it isn't installed."""

from __future__ import annotations

import sys

import pytest

from tests.support import selection
from webnn_vk.profiler.pictures import PicturesUnavailable
from webnn_vk.profiler.pictures.layout import Arrangement, arranged

pytest.importorskip("fast_sugiyama")


def check(found: Arrangement, edges: list[tuple[int, int]]) -> None:
    """Edges run downward, with a bend in each row between; boxes in a row don't touch."""
    rows = [row for _, row in found.places]
    assert all(rows[a] < rows[b] for a, b in edges)
    for (a, b), bends in zip(edges, found.bends, strict=True):
        assert [row for _, row in bends] == list(range(rows[a] + 1, rows[b]))
    assert min((x for x, _ in found.places), default=0) >= 0
    first = dict(zip(reversed(edges), reversed(found.bends), strict=True))
    everything = [*found.places, *(bend for bends in first.values() for bend in bends)]
    for row in set(rows):
        columns = sorted(x for x, r in everything if r == row)
        assert all(b - a >= 0.999 for a, b in zip(columns, columns[1:], strict=False))


def test_edges_run_downward_and_boxes_have_a_column_each():
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3), (3, 4)]
    found = arranged(5, edges)
    assert found == arranged(5, edges)
    check(found, edges)
    assert len(found.bends[4]) == 1


def test_edges_with_the_same_ends_go_side_by_side():
    edges = [(0, 1), (1, 2), (0, 2), (0, 1), (0, 2), (0, 2)]
    found = arranged(3, edges)
    check(found, edges)
    assert len({found.bends[n] for n in (2, 4, 5)}) == 3


def test_a_box_stands_near_what_reads_it():
    """A computed constant that is used only at the end."""
    edges = [(n, n + 1) for n in range(9)]
    found = arranged(11, [*edges, (10, 9)])
    assert found.places[10][1] == 8


@pytest.mark.parametrize("seed", range(20))
def test_any_graph(seed):
    """With several components, unconnected boxes, duplicate edges and long edges."""
    rng = selection.chance("any graph", seed)
    count = rng.choice([2, 10, 40, 80])
    edges = [
        (max(0, n - 1 - int(rng.expovariate(0.4))), n) for n in range(1, count)
        for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))
    ]
    check(arranged(count, edges), edges)


def test_parts_do_not_mix():
    """Bends of a later component get no number of an earlier one."""
    edges = [(5, n) for n in range(6, 9)] + [(6, 9), (9, 8), (5, 8), (0, 10), (1, 11)]
    found = arranged(12, edges)
    check(found, edges)
    assert [x for x, _ in found.places][:5] == [0, 1, 2, 3, 4]


def test_nothing_to_lay_out():
    assert arranged(0, []).places == () and len(arranged(3, []).places) == 3


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "fast_sugiyama", None)
    with pytest.raises(PicturesUnavailable, match=r"pip install 'webnn_vk\[pictures\]'"):
        arranged(1, [])
