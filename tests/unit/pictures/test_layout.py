"""The layout that igraph makes, and what is said where it isn't there."""

from __future__ import annotations

import sys

import pytest

from webnn_vk.pictures import PicturesUnavailable
from webnn_vk.pictures.layout import arranged

pytest.importorskip("igraph")


def test_edges_run_downward_and_boxes_have_a_column_each():
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3), (3, 4)]
    found = arranged(5, edges)
    assert found == arranged(5, edges)
    rows = [row for _, row in found.places]
    assert all(rows[a] < rows[b] for a, b in edges)
    assert min(x for x, _ in found.places) >= 0
    for row in set(rows):
        columns = sorted(x for x, r in found.places if r == row)
        columns += [x for bends in found.bends for x, r in bends if r == row]
        columns.sort()
        assert all(b - a >= 1 for a, b in zip(columns, columns[1:], strict=False))
    # The edge past two rows has a bend in each.
    assert [row for _, row in found.bends[4]] == list(range(rows[0] + 1, rows[3]))


def test_nothing_to_lay_out():
    assert arranged(0, []).places == () and len(arranged(3, []).places) == 3


def test_without_igraph(monkeypatch):
    monkeypatch.setitem(sys.modules, "igraph", None)
    with pytest.raises(PicturesUnavailable, match=r"pip install 'webnn_vk\[pictures\]'"):
        arranged(1, [])
