"""Text in images, read by three trained networks (PP-OCRv4) that run as ONNX models on a context.

The first finds lines of text, the second says which are upside down, the third reads them. Lines
run in batches of few sizes, so that few graphs are built: `plan_batches`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .text_boxes import Box, find_boxes, reading_order
from .weights import Weights

_PACKAGE = ("rapidocr-onnxruntime", "1.4.4")
DETECTION = Weights(
    *_PACKAGE, "ch_PP-OCRv4_det_infer.onnx",
    "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
)
ORIENTATION = Weights(
    *_PACKAGE, "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
)
RECOGNITION = Weights(
    *_PACKAGE, "ch_PP-OCRv4_rec_infer.onnx",
    "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
)

#: Detection sees images whose sides are multiples of this, the longer one within these bounds:
#: larger ones are made smaller, and smaller ones larger, by a whole number.
MULTIPLE, SMALLEST_SIDE, LARGEST_SIDE = 32, 320, 1600
#: Lines are this high for reading, and as wide as the first class that holds them; longer ones are
#: cut between words. The classifier of directions sees the first 192 pixels.
HEIGHT, WIDTHS, TURN_WIDTH = 48, (160, 320, 480, 640, 800, 960, 1280), 192
#: Batches of these sizes are run; what is missing in one is blank.
BATCHES = (1, 2, 4, 8)
#: A line is turned when the classifier is so sure, and told when the reader is.
TURNED, READ = 0.9, 0.5


@dataclass(frozen=True)
class Line:
    """A line that was read: where, what, and how sure the reader is (0 to 1)."""

    box: Box
    text: str
    confidence: float


@dataclass
class Network:
    """A model on a context, with what building and running it took, in seconds, and the steps of
    its graphs by device."""

    context: Any
    weights: Weights
    notify: Callable[[str], None]
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    steps: dict[str, int] = field(default_factory=lambda: {"vulkan": 0, "cpu": 0})
    shapes: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        from webnn_vk.onnx import Session

        self.session = Session(self.weights.path(), self.context, keep=24)
        self.input = self.session.get_inputs()[0].name

    def run(self, batch: np.ndarray, title: str) -> np.ndarray:
        """The network's first output for a batch."""
        feeds = {self.input: np.ascontiguousarray(batch, np.float32)}
        self.notify(title)
        start = time.perf_counter()
        graph = self.session.graph(feeds)
        built = time.perf_counter()
        self.build_seconds += built - start
        if batch.shape not in self.shapes:
            self.shapes.append(batch.shape)
            for step in graph.report().steps if graph else ():
                self.steps[step.device] += 1
        output: np.ndarray = self.session.run(None, feeds)[0]
        self.run_seconds += time.perf_counter() - built
        return output


class TextReader:
    """Reads the text in images, on one context. `notify` hears what is done next.

    `WeightsError` where the weights are not installed.
    """

    def __init__(self, context: Any, notify: Callable[[str], None] = lambda title: None) -> None:
        self.detection = Network(context, DETECTION, notify)
        self.orientation = Network(context, ORIENTATION, notify)
        self.recognition = Network(context, RECOGNITION, notify)
        self.characters = read_characters(RECOGNITION)

    @property
    def networks(self) -> dict[str, Network]:
        """The three by what they do, in the order in which they run."""
        return {
            "detection": self.detection,
            "orientation": self.orientation,
            "recognition": self.recognition,
        }

    def read(self, image: Any) -> list[Line]:
        """The lines in an RGB `PIL.Image`, in reading order."""
        pixels, scale = detection_input(image)
        found = find_boxes(self.detection.run(pixels, "finding lines")[0, 0])
        boxes = self._turned(image, [box.scaled(1 / scale) for box in found])
        order = reading_order(boxes)
        strips = [strip for i in order for strip in cut_line(crop(image, boxes[i]), boxes[i])]
        texts: dict[int, tuple[str, float]] = {}
        for width, size, members in plan_batches([s.pixels.shape[1] for s in strips]):
            batch = np.zeros((size, 3, HEIGHT, width), np.float32)
            for row, index in enumerate(members):
                pixels = strips[index].pixels[:, :width]
                batch[row, :, :, : pixels.shape[1]] = normalised(pixels)
            output = self.recognition.run(batch, f"reading {len(members)} lines")
            for row, index in enumerate(members):
                texts[index] = decode(output[row], self.characters)
        return [line for line in joined(strips, texts) if line.confidence >= READ]

    def _turned(self, image: Any, boxes: Sequence[Box]) -> list[Box]:
        """The boxes, those turned around whose text is upside down."""
        turned = list(boxes)
        for _, size, members in plan_batches([TURN_WIDTH] * len(boxes), (TURN_WIDTH,)):
            batch = np.zeros((size, 3, HEIGHT, TURN_WIDTH), np.float32)
            for row, index in enumerate(members):
                pixels = np.asarray(crop(image, boxes[index]))[:, :TURN_WIDTH]
                batch[row, :, :, : pixels.shape[1]] = normalised(pixels)
            upright_or_not = self.orientation.run(batch, "which way is up")
            for row, index in enumerate(members):
                if upright_or_not[row, 1] > TURNED:
                    turned[index] = boxes[index].turned()
        return turned


# -- images to batches -----------------------------------------------------------------------------
def detection_input(image: Any) -> tuple[np.ndarray, float]:
    """The batch of one that detection takes, and its pixels per pixel of the image."""
    longer = max(image.size)
    if longer > LARGEST_SIDE:
        scale = LARGEST_SIDE / longer
    else:
        scale = float(min(8, max(1, SMALLEST_SIDE // longer)))
    width, height = (max(1, round(side * scale)) for side in image.size)
    pixels = np.asarray(image if scale == 1 else image.resize((width, height)))
    # Filled up to multiples with the pixels at the edges, where text is not found.
    missing = [(0, -height % MULTIPLE), (0, -width % MULTIPLE), (0, 0)]
    return normalised(np.pad(pixels, missing, mode="edge"))[None], scale


def normalised(pixels: np.ndarray) -> np.ndarray:
    """RGB bytes [height, width, 3] → blue, green, red as planes of numbers from −1 to 1."""
    return (pixels[..., ::-1].astype(np.float32) / 127.5 - 1).transpose(2, 0, 1)


def crop(image: Any, box: Box) -> Any:
    """A box of an image as an image `HEIGHT` pixels high in which its text runs to the right."""
    from PIL import Image

    width, height = max(1, round(box.width)), max(1, round(box.height))
    (ax, ay), (bx, by) = box.along, box.across
    corner = box.corners()[0]
    # What lies outside of the image looks like its edge there.
    edge = tuple(min(max(int(c), 0), s - 1) for c, s in zip(corner, image.size, strict=True))
    # At the image's own resolution first: only resize() makes things smaller without gaps.
    upright = image.transform(
        (width, height), Image.Transform.AFFINE, (ax, bx, corner[0], ay, by, corner[1]),
        Image.Resampling.BICUBIC, fillcolor=image.getpixel(edge),
    )
    scaled = max(HEIGHT // 4, round(width * HEIGHT / height))
    return upright.resize((scaled, HEIGHT), Image.Resampling.BICUBIC)


@dataclass(frozen=True)
class Strip:
    """A line or a piece of one, RGB [HEIGHT, width, 3]: its place, whether it goes on with the next
    strip, and whether there is a space between."""

    pixels: np.ndarray
    box: Box
    goes_on: bool = False
    space: bool = False


def cut_line(line: Any, box: Box) -> list[Strip]:
    """The strips of a line: one, or where it is longer than the widest class several, cut at the
    widest gap in the last third of what fits."""
    pixels, most = np.asarray(line), WIDTHS[-1]
    width = pixels.shape[1]
    strips, start = [], 0
    while width - start > most:
        first = start + most * 2 // 3
        grey = pixels[:, first : start + most].astype(np.float32).mean(axis=2)
        gap_start, gap_end = widest_gap(np.ptp(grey, axis=0))
        cut = first + (gap_start + gap_end) // 2
        piece = box.part(start / width, cut / width)
        strips.append(Strip(pixels[:, start:cut], piece, True, gap_end - gap_start > HEIGHT / 6))
        start = cut
    return [*strips, Strip(pixels[:, start:], box.part(start / width, 1.0))]


def widest_gap(contrast: np.ndarray) -> tuple[int, int]:
    """The longest range of columns whose contrast is low; where there is none, the lowest one."""
    low = contrast < max(0.25 * contrast.max(), contrast.min() + 1)
    edges = np.flatnonzero(np.diff(np.pad(low, 1).astype(np.int8)))
    starts, ends = edges[::2], edges[1::2]
    if not len(starts):
        least = int(np.argmin(contrast))
        return least, least
    widest = int(np.argmax(ends - starts))
    return int(starts[widest]), int(ends[widest])


def plan_batches(
    widths: Sequence[int], classes: Sequence[int] = WIDTHS, sizes: Sequence[int] = BATCHES
) -> list[tuple[int, int, list[int]]]:
    """Width, size and the indices of the lines of each batch: lines of one class go together."""
    groups: dict[int, list[int]] = {}
    for index, width in enumerate(widths):
        fitting = next((c for c in classes if c >= width), classes[-1])
        groups.setdefault(fitting, []).append(index)
    planned = []
    for width, members in sorted(groups.items()):
        start = 0
        while start < len(members):
            size = batch_size(len(members) - start, sizes)
            planned.append((width, size, members[start : start + size]))
            start += size
    return planned


def batch_size(lines: int, sizes: Sequence[int] = BATCHES) -> int:
    """The size of the next batch when this many lines are left: the largest of which at most a
    quarter stays blank."""
    return max(size for size in sizes if lines >= size * 3 / 4)


# -- what the networks say -------------------------------------------------------------------------
def read_characters(weights: Weights) -> list[str]:
    """What the reader's outputs mean: the blank, the model's own list, and the space."""
    import onnx

    model = onnx.load(weights.path(), load_external_data=False)
    entries = {entry.key: entry.value for entry in model.metadata_props}
    return ["", *entries["character"].split("\n"), " "]


def decode(scores: np.ndarray, characters: Sequence[str]) -> tuple[str, float]:
    """The text of [positions, characters]: the best character at each position, repetitions and
    blanks left out; and the mean of their probabilities."""
    best = scores.argmax(axis=1)
    kept = (best != 0) & np.concatenate([[True], best[1:] != best[:-1]])
    text = "".join(characters[int(i)] for i in best[kept])
    return text, float(scores.max(axis=1)[kept].mean()) if kept.any() else 0.0


def joined(strips: Sequence[Strip], texts: dict[int, tuple[str, float]]) -> list[Line]:
    """The lines of the strips, those put together that were cut."""
    lines = []
    parts: list[str] = []
    sure: list[float] = []
    boxes: list[Box] = []
    for index, strip in enumerate(strips):
        text, confidence = texts[index]
        parts.append(text.strip())
        if text:
            sure.append(confidence)
        boxes.append(strip.box)
        if strip.goes_on:
            parts.append(" " if strip.space else "")
            continue
        text = "".join(parts).strip()
        if text:
            lines.append(Line(spanning(boxes), text, sum(sure) / len(sure)))
        parts, sure, boxes = [], [], []
    return lines


def spanning(boxes: Sequence[Box]) -> Box:
    """One box over pieces of a line."""
    if len(boxes) == 1:
        return boxes[0]
    first, last = boxes[0].corners(), boxes[-1].corners()
    width = sum(box.width for box in boxes)
    middle = np.mean([first[0], first[3], last[1], last[2]], axis=0)
    return Box(float(middle[0]), float(middle[1]), width, boxes[0].height, boxes[0].angle)


def steps_of(networks: Sequence[Network]) -> dict[str, int]:
    """Steps by device over all graphs of the networks."""
    return {
        device: sum(network.steps[device] for network in networks) for device in ("vulkan", "cpu")
    }


__all__ = [
    "DETECTION", "ORIENTATION", "RECOGNITION", "Line", "Network", "TextReader", "steps_of",
]
