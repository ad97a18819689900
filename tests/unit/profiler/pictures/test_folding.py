"""Folding of large pictures: consecutive stretches, few at once, equal for repeated ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.profiler.pictures.graphs import chain
from webnn_vk.profiler.pictures import Box, Picture
from webnn_vk.profiler.pictures.folding import MEMBERS, SHOWN, Group, folded, summary

LAYER = ["matmul", "softmax", "matmul", "add", "norm", "gemm", "gelu", "gemm", "add", "norm"]


def groups(group: Group):
    """All groups in it."""
    for member in group.members:
        if isinstance(member, Group):
            yield member
            yield from groups(member)


def check(picture: Picture) -> Group:
    """Every box is included once, in order within groups, and no level shows too many."""
    whole = folded(picture)
    assert sorted(whole.boxes()) == list(range(len(picture.boxes)))
    for group in (whole, *groups(whole)):
        assert len(group.members) <= max(SHOWN, 3 * MEMBERS)
        assert group.boxes() == sorted(group.boxes())
    for group in groups(whole):
        boxes = group.boxes()
        # Stretches: nothing between except boxes outside of groups.
        between = set(range(boxes[0], boxes[-1])) - set(boxes)
        assert all(picture.boxes[n].kind in ("input", "output") for n in between)
    return whole


def test_small_pictures_are_not_folded():
    picture = chain(["relu"] * 20)
    assert folded(picture).members == tuple(range(len(picture.boxes)))


def test_layers_become_a_group_each():
    names = ["gather", "add", "mul", "sub", "norm", *LAYER * 8, "pool", "div"]
    picture = chain(names, residual=5, shared=True)
    alike = [g for g in check(picture).members if isinstance(g, Group) and "alike" in g.title]
    assert [g.title for g in alike] == [f"{n} of 8 alike" for n in range(1, 9)]
    names = [[picture.boxes[n].title for n in g.boxes()] for g in alike]
    assert all(len(n) == len(LAYER) and n == names[0] for n in names)


@pytest.mark.parametrize("names", [
    ["relu"] * 500, LAYER * 50, [f"op{n}" for n in range(500)],
    ["relu"] * 40 + [f"op{n}" for n in range(60)] + ["conv2d", "add", "relu", "pool"] * 20,
], ids=["alike", "layers", "different", "mixed"])
def test_large_chains(names):
    whole = check(chain(names))
    assert 2 <= sum(isinstance(m, Group) for m in whole.members) <= 2 * MEMBERS + 1


def test_graphs_without_narrow_places():
    random = np.random.default_rng(0)
    boxes = [Box("input", "x", writes=(0,))]
    for number in range(1, 400):
        reads = {int(v) for v in random.integers(max(number - 20, 0), number, 4)}
        boxes.append(Box("node", "add", reads=tuple(sorted(reads)), writes=(number,)))
    check(Picture("tangle", tuple(boxes), dict.fromkeys(range(400), "")))


def test_what_a_group_says():
    picture = chain(["relu"] * 3 + ["conv2d"] * 2)
    assert summary(picture, range(2, 7)) == ("5 operators", "relu ×3, conv2d ×2")
    fused = Picture("", (Box("kernel", "matmul", ("matmul [a]", "add"), "vulkan"),
                         Box("copy", "copy device to CPU", device="vulkan"),
                         Box("node", "sort", device="cpu")))
    assert summary(fused, (0, 1, 2)) == (
        "3 operators in 1 kernel", "matmul, add", "sort", "1 of them on the CPU")
