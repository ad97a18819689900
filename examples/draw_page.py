"""Draws `page.png`, the page that `webnn-vk demo ocr` reads: python -m webnn_vk.examples.draw_page

Text of several sizes, on light and dark ground, turned, upside down and upwards, and a line that is
longer than the reader's widest input. Needs pillow with FreeType, whose own font is used.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

SIZE = (960, 608)
PAPER, INK, DARK, LIGHT = (250, 247, 240), (35, 38, 45), (38, 60, 92), (240, 243, 248)
RULE = (180, 90, 60)
#: (text, x, y, size): lines on the paper.
PLAIN = [
    ("Reading text with WebNN", 50, 36, 46),
    ("Three networks look at this page: one", 50, 124, 28),
    ("finds the lines, one turns them upright,", 50, 166, 28),
    ("and one reads them.", 50, 208, 28),
    ("Small print is read as well, unless it is too small.", 50, 268, 18),
    ("Invoice 2026-1122", 50, 318, 30),
    ("Total: 1,234.50 EUR", 50, 360, 30),
]
#: Light on dark, in a box of its own.
ON_DARK = [("Light on dark is fine.", 74, 448, 30)]
LONG = (
    "A line as long as this one does not fit into the widest input, so it is cut between two words."
)
LONG_PLACE = (50, 544, 18)
#: (text, centre x, centre y, size, degrees clockwise): text that is turned.
TURNED = [
    ("A little askew", 750, 200, 34, 12),
    ("Upside down", 750, 360, 34, 180),
    ("Upwards, too", 912, 340, 30, -90),
]
#: What is on the page, in the order in which a reader should meet it, turned lines last.
LINES = [text for text, *_ in [*PLAIN, *ON_DARK]] + [LONG] + [text for text, *_ in TURNED]


def draw() -> Any:
    """The page as an RGB `PIL.Image`."""
    from PIL import Image, ImageDraw

    page = Image.new("RGB", SIZE, PAPER)
    pen = ImageDraw.Draw(page)
    for text, x, y, size in PLAIN:
        pen.text((x, y), text, INK, _font(size))
    pen.line([(50, 106), (860, 106)], RULE, 3)
    pen.rounded_rectangle([(50, 430), (420, 504)], 14, DARK)
    for text, x, y, size in ON_DARK:
        pen.text((x, y), text, LIGHT, _font(size))
    x, y, size = LONG_PLACE
    pen.text((x, y), LONG, INK, _font(size))
    for text, x, y, size, degrees in TURNED:
        _draw_turned(page, text, (x, y), size, degrees)
    return page


def _draw_turned(page: Any, text: str, centre: tuple[int, int], size: int, degrees: int) -> None:
    from PIL import Image, ImageDraw

    left, top, right, bottom = _font(size).getbbox(text)
    mask = Image.new("L", (round(right - left) + 8, round(bottom - top) + 8))
    ImageDraw.Draw(mask).text((4 - left, 4 - top), text, 255, _font(size))
    mask = mask.rotate(-degrees, Image.Resampling.BICUBIC, expand=True)
    place = centre[0] - mask.width // 2, centre[1] - mask.height // 2
    page.paste(INK, place, mask)


def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("page.png")
    draw().save(path, optimize=True)
    print(f"wrote {path}")
