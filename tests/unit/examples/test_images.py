"""Images as upright RGB; the page's tests read them, these check their pixels."""

import numpy as np
import pytest

from webnn_vk.examples.images import ImageError, open_image

Image = pytest.importorskip("PIL.Image")


def opened(tmp_path, array, **options):
    path = tmp_path / "image.tiff"
    Image.fromarray(array).save(path, **options)
    return np.asarray(open_image(path))


@pytest.mark.parametrize(
    "array, expected",
    [
        (np.array([[0, 32768, 65535]], np.uint16), [0, 128, 255]),
        (np.array([[0, 100, 255]], np.int32), [0, 100, 255]),
        (np.array([[0.0, 0.5, 1.0]], np.float32), [0, 128, 255]),
        (np.array([[np.nan, np.inf, 1.0]], np.float32), [0, 0, 255]),
        (np.array([[-100.0, 0.0, 100.0]], np.float32), [0, 128, 255]),
    ],
)
def test_more_than_eight_bits(tmp_path, array, expected):
    pixels = opened(tmp_path, array)
    assert pixels.shape == (1, 3, 3)
    assert np.abs(pixels[0, :, 0].astype(int) - expected).max() <= 1


@pytest.mark.parametrize(
    "seen, ground", [((0, 0, 0), (255, 255, 255)), ((250, 250, 250), (0, 0, 0))]
)
def test_transparency_lies_over_what_contrasts(tmp_path, seen, ground):
    array = np.zeros((64, 64, 4), np.uint8)
    array[20:30, 10:50] = (*seen, 255)
    pixels = opened(tmp_path, array)
    assert tuple(pixels[0, 0]) == ground and tuple(pixels[25, 30]) == seen


def test_a_transparent_colour_of_a_palette(tmp_path):
    path = tmp_path / "palette.png"
    image = Image.new("P", (8, 8), 0)
    image.putpalette([10, 20, 30, 0, 0, 0])
    image.paste(1, (2, 2, 4, 4))
    image.save(path, transparency=0)
    pixels = np.asarray(open_image(path))
    assert tuple(pixels[0, 0]) == (255, 255, 255) and tuple(pixels[2, 2]) == (0, 0, 0)


def test_decoders_that_fail_in_ways_of_their_own(tmp_path, monkeypatch):
    path = tmp_path / "image.png"
    Image.new("L", (4, 4)).save(path)

    def broken(*_):
        raise RuntimeError("odd file")

    monkeypatch.setattr("PIL.ImageOps.exif_transpose", broken)
    with pytest.raises(ImageError, match="cannot read the image .*: RuntimeError: odd file"):
        open_image(path)
