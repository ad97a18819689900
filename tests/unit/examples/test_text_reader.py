"""The parts of reading besides the networks: batches, strips of long lines, texts from scores."""

import numpy as np
import pytest

from webnn_vk.examples.text_boxes import Box
from webnn_vk.examples.text_reader import (
    HEIGHT,
    LARGEST_SIDE,
    WIDTHS,
    Strip,
    batch_size,
    cut_line,
    decode,
    detection_input,
    joined,
    plan_batches,
    widest_gap,
)

BOX = Box(500, 24, 1000, 48, 0)


def test_batches_are_of_one_width_and_few_sizes():
    planned = plan_batches([100, 900, 150, 310, 99, 5000, 160])
    assert planned == [(160, 4, [0, 2, 4, 6]), (320, 1, [3]), (960, 1, [1]), (1280, 1, [5])]
    many = plan_batches([10] * 13)
    assert [(size, len(members)) for _, size, members in many] == [(8, 8), (4, 4), (1, 1)]
    assert sorted(i for _, _, members in many for i in members) == list(range(13))
    assert plan_batches([]) == []


@pytest.mark.parametrize(
    "lines, size", [(1, 1), (2, 2), (3, 4), (4, 4), (5, 4), (6, 8), (7, 8), (50, 8)]
)
def test_at_most_a_quarter_of_a_batch_is_blank(lines, size):
    assert batch_size(lines) == size


def test_a_long_line_is_cut_at_the_widest_gap():
    Image = pytest.importorskip("PIL.Image")
    pixels = np.full((HEIGHT, 2000, 3), 255, np.uint8)
    pixels[10:40, ::3] = 0
    pixels[:, 1000:1030] = 255
    strips = cut_line(Image.fromarray(pixels), BOX)
    assert [strip.pixels.shape[1] for strip in strips] == [1016, 984]
    assert [(strip.goes_on, strip.space) for strip in strips] == [(True, True), (False, False)]
    assert np.isclose(sum(strip.box.width for strip in strips), BOX.width)
    short = cut_line(Image.fromarray(pixels[:, : WIDTHS[-1]]), BOX)
    assert len(short) == 1 and short[0].box == BOX and not short[0].goes_on


def test_a_line_without_a_gap_is_cut_all_the_same():
    Image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 255, (HEIGHT, 6000, 3), np.uint8)
    strips = cut_line(Image.fromarray(pixels), BOX)
    widths = [strip.pixels.shape[1] for strip in strips]
    assert sum(widths) == 6000 and max(widths) <= WIDTHS[-1] and min(widths) > 0
    assert widest_gap(np.array([9.0, 8.0, 7.5, 9.0])) == (1, 3)


def test_decode_leaves_out_blanks_and_repetitions():
    scores = np.full((8, 3), 0.1)
    best = [1, 1, 0, 1, 2, 2, 0, 0]
    scores[np.arange(8), best] = 0.5, 0.9, 0.9, 0.7, 0.6, 0.8, 0.9, 0.9
    text, confidence = decode(scores, ["", "a", "b"])
    assert text == "aab" and np.isclose(confidence, (0.5 + 0.7 + 0.6) / 3)
    assert decode(np.array([[0.9, 0.1]]), ["", "a"]) == ("", 0.0)


def test_strips_are_joined_to_lines():
    pixels = np.zeros((HEIGHT, 4, 3), np.uint8)
    strips = [
        Strip(pixels, BOX.part(0, 0.5), True, True), Strip(pixels, BOX.part(0.5, 1)),
        Strip(pixels, BOX), Strip(pixels, BOX),
    ]
    texts = {0: ("one", 0.8), 1: (" two", 0.6), 2: ("", 0.0), 3: ("three", 0.9)}
    lines = joined(strips, texts)
    assert [line.text for line in lines] == ["one two", "three"]
    assert np.isclose(lines[0].confidence, 0.7)
    assert np.allclose(lines[0].box.corners(), BOX.corners())


@pytest.mark.parametrize("size", [(1, 1), (33, 500), (3000, 20), (9000, 6000), (640, 480)])
def test_detection_sees_bounded_multiples(size):
    Image = pytest.importorskip("PIL.Image")
    batch, scale = detection_input(Image.new("RGB", size, "white"))
    _, _, height, width = batch.shape
    assert height % 32 == width % 32 == 0 and max(height, width) <= LARGEST_SIDE
    assert width >= round(size[0] * scale) and height >= max(1, round(size[1] * scale))
    assert batch.dtype == np.float32 and (batch == 1).all()
