"""`webnn-vk demo ocr`: reads the text in an image with three trained networks and draws it."""

from __future__ import annotations

import importlib.resources
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from webnn_vk.examples.images import ImageError, open_image
from webnn_vk.examples.weights import WeightsError

from . import ToolError
from .demo import need_with_weights
from .devices import device_title, open_context
from .output import emit, working, writable, writing

if TYPE_CHECKING:
    from webnn_vk.examples.text_reader import Line, TextReader

#: The longest side of the picture in pixels. Larger images are made smaller first.
LONGEST_SIDE = 1600
#: Batches of a typical page, for the progress bar. The number is known once lines are found.
BATCHES = 10
#: Colours of the boxes of successive lines.
COLOURS = ("#c0392b", "#2471a3", "#1e8449", "#b9770e", "#7d3c98", "#117a65")


def example_page() -> Path:
    """The page included in the library (`examples/` in a checkout)."""
    return Path(str(importlib.resources.files("webnn_vk.examples") / "page.png"))


def _need_packages() -> None:
    from webnn_vk.examples.text_reader import DETECTION

    need_with_weights("reading", DETECTION.package, DETECTION.install_command)


def run(
    path: Path | None, output: Path | None, device: str | None, as_json: bool = False
) -> None:
    """Read the text, print it and write the picture. `ToolError` for unusable arguments."""
    _need_packages()
    source = path or example_page()
    target = output or Path(f"{source.stem or 'image'}-text.png")
    try:
        image = open_image(source)
    except ImageError as error:
        raise ToolError(str(error)) from None
    check_target(target, source)
    with open_context(device) as context:
        if not as_json:
            print(f"Device    {device_title(context)}", flush=True)
            print(f"Image     {source}, {image.width} × {image.height} pixels\n", flush=True)
        with working("reading", BATCHES) as bar:
            reader = make_reader(context, bar.step)
            start = time.perf_counter()
            lines = reader.read(image)
            whole = time.perf_counter() - start
        times = times_of(reader, whole)
        if not as_json:
            print_lines(lines)
            print_times(times)
    with writing(target):
        picture(image, lines).save(target, "PNG")
    if as_json:
        emit({
            "device": str(context.device_info),
            "image": str(source), "width": image.width, "height": image.height,
            "lines": [{"text": line.text, "confidence": float(line.confidence),
                       "corners": np.asarray(line.box.corners(), float).tolist()}
                      for line in lines],
            **times, "picture": str(target),
        })
    else:
        print(f"Picture   {target}")


def check_target(target: Path, source: Path) -> None:
    """Raises `ToolError`, before any work is done, where the picture can't be written."""
    if target.suffix.lower() != ".png":
        raise ToolError(f"the picture is a PNG; {target} does not end in .png")
    writable((target, ()))
    if target.exists() and target.samefile(source):
        raise ToolError(f"the picture would replace the image {source}; give another --output")


def make_reader(context: Any, notify: Any) -> TextReader:
    """The text reader. `ToolError` where its weights or a library are missing."""
    _need_packages()
    from webnn_vk.examples.text_reader import TextReader

    try:
        return TextReader(context, notify)
    except WeightsError as error:
        raise ToolError(str(error)) from None


def print_lines(lines: Sequence[Line]) -> None:
    for number, line in enumerate(lines, 1):
        print(f"  {number:3}  {line.confidence:4.0%}  {line.text}")
    if not lines:
        print("  no text was found")
    print()


def times_of(reader: TextReader, whole: float) -> dict[str, Any]:
    """Times and steps for JSON: "seconds", "networks" by name, "steps" by device."""
    networks = reader.networks
    return {
        "seconds": whole,
        "networks": {
            name: {"run_seconds": network.run_seconds, "build_seconds": network.build_seconds,
                   "graphs": len(network.shapes)}
            for name, network in networks.items()
        },
        "steps": {d: sum(n.steps[d] for n in networks.values()) for d in ("vulkan", "cpu")},
    }


def print_times(times: Mapping[str, Any]) -> None:
    networks, steps = times["networks"], times["steps"]
    for title, (name, of) in zip(("Times", "", ""), networks.items(), strict=True):
        graphs = f"{of['graphs']} graph{'s' * (of['graphs'] != 1)}"
        print(
            f"{title:9} {name:11} {of['run_seconds']:6.2f} s, "
            f"build {of['build_seconds']:.2f} s ({graphs})"
        )
    print(f"          total       {times['seconds']:6.2f} s, building and finding boxes included")
    print(f"Steps     {steps['vulkan']} on Vulkan, {steps['cpu']} on the CPU")


def picture(image: Any, lines: Sequence[Line]) -> Any:
    """The image with boxes, and beside it the text in the same places."""
    from PIL import Image, ImageDraw

    scale = min(1.0, LONGEST_SIDE / max(image.size))
    width, height = (max(1, round(side * scale)) for side in image.size)
    left = image.resize((width, height)) if scale < 1 else image.copy()
    right = Image.new("RGB", left.size, "white")
    pen, frame = ImageDraw.Draw(left), ImageDraw.Draw(right)
    for index, line in enumerate(lines):
        box, colour = line.box.scaled(scale), COLOURS[index % len(COLOURS)]
        outline = box.corners()
        pen.line([*outline, outline[0]], "white", 4)
        pen.line([*outline, outline[0]], colour, 2)
        # A thick edge marks the start of the text.
        pen.line([outline[0], outline[3]], colour, 5)
        frame.line([*outline, outline[0]], "#dddddd")
        _write(right, line.text, box, colour)
    both = Image.new("RGB", (2 * width + 12, height), "#d0d0d0")
    both.paste(left, (0, 0))
    both.paste(right, (width + 12, 0))
    return both


def _write(page: Any, text: str, box: Any, colour: str) -> None:
    """Draw the text rotated into its box, as large as fits."""
    from PIL import Image, ImageDraw, ImageFont

    length = ImageFont.load_default(100).getlength(text) or 1.0
    font = ImageFont.load_default(max(4.0, min(0.95 * box.height, 98 * box.width / length)))
    left, top, right, bottom = font.getbbox(text)
    mask = Image.new("L", (max(1, round(right)) + 2, max(1, round(bottom)) + 2))
    ImageDraw.Draw(mask).text((1, 1), text, 255, font)
    # The text starts at the start of the box and is centred in its height.
    (ax, ay), (bx, by) = box.along, box.across
    edge = (2 - box.width / 2 - left, -(top + bottom) / 2)
    start = (
        box.x + edge[0] * ax + edge[1] * bx - ax - bx,
        box.y + edge[0] * ay + edge[1] * by - ay - by,
    )
    inverse = (ax, ay, -(start[0] * ax + start[1] * ay), bx, by, -(start[0] * bx + start[1] * by))
    placed = mask.transform(
        page.size, Image.Transform.AFFINE, inverse, Image.Resampling.BICUBIC, fillcolor=0
    )
    page.paste(colour, (0, 0), placed)
