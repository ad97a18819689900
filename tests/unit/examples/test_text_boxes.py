"""Boxes of text from probability maps, and the order in which they are read."""

import math

import numpy as np
import pytest

from webnn_vk.examples.text_boxes import (
    MOST,
    Box,
    components,
    find_boxes,
    reading_order,
    smallest_box,
)


def filled(shape, *parts):
    mask = np.zeros(shape, bool)
    for rows, columns in parts:
        mask[rows, columns] = True
    return mask


def area_of(runs):
    return int((runs[:, 2] - runs[:, 1]).sum())


def test_components_touch_by_a_corner_and_join_from_both_sides():
    mask = np.array(
        [
            [1, 0, 0, 0, 1, 0, 1],
            [0, 1, 0, 0, 1, 1, 1],
            [0, 0, 0, 0, 0, 0, 0],
            [1, 1, 0, 1, 0, 0, 1],
        ],
        bool,
    )
    assert sorted(area_of(runs) for runs in components(mask)) == [1, 1, 2, 2, 5]
    assert components(np.zeros((3, 3), bool)) == []
    (whole,) = components(np.ones((2, 3), bool))
    assert whole.tolist() == [[0, 0, 3], [1, 0, 3]]


def test_components_of_random_masks_are_those_that_a_flood_finds():
    mask = np.random.default_rng(0).random((30, 40)) < 0.4
    labels = np.where(mask, np.arange(mask.size).reshape(mask.shape) + 1, 0)
    while True:  # every pixel takes the largest label around it, until nothing changes
        padded = np.pad(labels, 1)
        around = [padded[y : y + 30, x : x + 40] for y in range(3) for x in range(3)]
        spread = np.where(mask, np.max(around, axis=0), 0)
        if (spread == labels).all():
            break
        labels = spread
    sizes = sorted(np.unique(labels[mask], return_counts=True)[1].tolist())
    assert sorted(area_of(runs) for runs in components(mask)) == sizes


def drawn(box, shape=(200, 300)):
    y, x = np.mgrid[: shape[0], : shape[1]] + 0.5
    (ax, ay), (bx, by) = box.along, box.across
    u = (x - box.x) * ax + (y - box.y) * ay
    v = (x - box.x) * bx + (y - box.y) * by
    return (np.abs(u) <= box.width / 2) & (np.abs(v) <= box.height / 2)


@pytest.mark.parametrize("degrees", [0, 12, -30, 44, 60, 90, -75])
def test_the_smallest_box_is_the_one_that_was_drawn(degrees):
    box = Box(150, 100, 120, 24, math.radians(degrees))
    (runs,) = components(drawn(box))
    found = smallest_box(runs)
    assert np.allclose([found.x, found.y], [box.x, box.y], atol=1.5)
    assert np.allclose([found.width, found.height], [box.width, box.height], atol=4)
    # A line that runs up is as good as one that runs down: the networks decide.
    turned = math.remainder(found.angle - box.angle, math.pi)
    assert abs(turned) < 0.03


def test_find_boxes_leaves_out_dirt_and_doubt_and_grows_the_rest():
    probabilities = np.zeros((100, 200), np.float32)
    probabilities[20:30, 20:120] = 0.9
    probabilities[50:60, 20:120] = 0.4  # doubt
    probabilities[80:82, 20:22] = 0.9  # dirt
    (box,) = find_boxes(probabilities)
    grown = 1.6 * 100 * 10 / 110
    assert (box.x, box.y, box.angle) == (70, 25, 0)
    assert np.allclose([box.width, box.height], [100 + grown, 10 + grown])


def test_no_more_boxes_than_the_bound():
    probabilities = np.zeros((300, 300), np.float32)
    for y in range(0, 300, 6):
        for x in range(0, 300, 6):
            probabilities[y : y + 4, x : x + 4] = 1
    assert len(find_boxes(probabilities)) == MOST


def test_reading_order():
    heading, left, right = Box(100, 20, 200, 30, 0), Box(50, 60, 80, 20, 0), Box(160, 63, 80, 20, 0)
    below = Box(60, 90, 100, 20, 0)
    boxes = [below, right, heading, left]
    assert reading_order(boxes) == [2, 3, 1, 0]
    # The page upside down: the lowest line is read first.
    around = [Box(300 - b.x, 200 - b.y, b.width, b.height, math.pi) for b in boxes]
    assert reading_order(around) == [2, 3, 1, 0]
    assert reading_order([]) == []
    opposite = [Box(10, 10, 10, 5, 0), Box(10, 30, 10, 5, math.pi)]
    assert sorted(reading_order(opposite)) == [0, 1]


def test_parts_and_turning():
    box = Box(100, 50, 80, 20, math.pi / 2)
    first = box.part(0, 0.25)
    assert np.allclose([first.x, first.y, first.width], [100, 20, 20])
    assert np.allclose(box.turned().corners()[0], box.corners()[2])
    assert np.allclose(box.scaled(0.5).corners(), np.array(box.corners()) / 2)
