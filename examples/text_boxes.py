"""Where text is: turned rectangles around the connected parts of a probability map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

#: A part is text where the map says so with at least this probability; its mean needs more.
PIXEL, REGION = 0.3, 0.5
#: The map shows text shrunken; a region grows by its area × GROWTH / its perimeter.
GROWTH = 1.6
#: Regions thinner than this many pixels of the map are dirt; at most MOST regions are taken.
THINNEST, MOST = 3, 1000
#: A level box is taken where its area is at most this many times that of the smallest box.
LEVEL = 1.1
#: From this height per width on, a line is taken to be written upwards or downwards.
UPRIGHT = 1.5


@dataclass(frozen=True)
class Box:
    """A turned rectangle: centre, width along the text and height across it in pixels, the text's
    direction in radians (0: to the right, π/2: downwards)."""

    x: float
    y: float
    width: float
    height: float
    angle: float

    @property
    def along(self) -> tuple[float, float]:
        """The unit vector in which the text runs."""
        return math.cos(self.angle), math.sin(self.angle)

    @property
    def across(self) -> tuple[float, float]:
        """The unit vector from the text's top to its bottom."""
        return -math.sin(self.angle), math.cos(self.angle)

    def corners(self) -> list[tuple[float, float]]:
        """Top left, top right, bottom right, bottom left, as the text is read."""
        (ax, ay), (bx, by) = self.along, self.across
        halves = [(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)]
        return [
            (
                self.x + self.width * i * ax + self.height * j * bx,
                self.y + self.width * i * ay + self.height * j * by,
            )
            for i, j in halves
        ]

    def scaled(self, factor: float) -> Box:
        """The same box on an image ``factor`` times as large."""
        return Box(
            self.x * factor, self.y * factor, self.width * factor, self.height * factor, self.angle
        )

    def turned(self) -> Box:
        """The same place, with text that runs the other way."""
        return replace(self, angle=math.remainder(self.angle + math.pi, math.tau))

    def part(self, start: float, end: float) -> Box:
        """The piece from ``start`` to ``end``, shares of the width."""
        ax, ay = self.along
        offset = self.width * ((start + end) / 2 - 0.5)
        return replace(
            self, x=self.x + offset * ax, y=self.y + offset * ay, width=self.width * (end - start)
        )


def find_boxes(probabilities: np.ndarray) -> list[Box]:
    """The boxes of a map [height, width] of probabilities that a pixel is text."""
    boxes = []
    for runs in components(probabilities > PIXEL):
        values = [probabilities[y, start:end] for y, start, end in runs]
        if np.concatenate(values).mean() < REGION:
            continue
        box = smallest_box(runs)
        if min(box.width, box.height) < THINNEST:
            continue
        grown = box.width * box.height * GROWTH / (box.width + box.height)
        boxes.append(replace(box, width=box.width + grown, height=box.height + grown))
    return sorted(boxes, key=lambda box: -box.width * box.height)[:MOST]


def components(mask: np.ndarray) -> list[np.ndarray]:
    """The connected parts of a mask (diagonals count): for each its runs, rows of y, first x, and
    the x after the last."""
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    y, x = np.nonzero(edges)
    if not len(y):
        return []
    runs = np.stack([y[::2], x[::2], x[1::2]], axis=1)
    starts, ends = runs[:, 1].tolist(), runs[:, 2].tolist()
    first = np.searchsorted(runs[:, 0], np.arange(mask.shape[0] + 1)).tolist()
    parent = list(range(len(runs)))

    def root(run: int) -> int:
        while parent[run] != run:
            parent[run] = parent[parent[run]]
            run = parent[run]
        return run

    for row in range(1, mask.shape[0]):
        above, below = first[row - 1], first[row]
        while above < first[row] and below < first[row + 1]:
            if starts[above] <= ends[below] and starts[below] <= ends[above]:
                parent[root(below)] = root(above)
            if ends[above] < ends[below]:
                above += 1
            else:
                below += 1
    roots = np.array([root(run) for run in range(len(runs))])
    order = np.argsort(roots, kind="stable")
    cuts = np.flatnonzero(np.diff(roots[order])) + 1
    return [runs[part] for part in np.split(order, cuts)]


def smallest_box(runs: np.ndarray) -> Box:
    """The box of least area around runs of pixels; its text runs to the right, or downwards where
    it is much higher than wide."""
    y, start, end = runs.T.astype(np.float64)
    points = np.stack([np.concatenate([start, end] * 2), np.concatenate([y, y, y + 1, y + 1])], 1)
    corners = _hull(points)
    sides = np.roll(corners, -1, axis=0) - corners
    # The level one stands first.
    along = np.concatenate([[[1.0, 0.0]], sides / np.hypot(sides[:, :1], sides[:, 1:])])
    across = np.stack([-along[:, 1], along[:, 0]], axis=1)
    u, v = along @ corners.T, across @ corners.T  # [directions, corners]
    widths, heights = np.ptp(u, axis=1), np.ptp(v, axis=1)
    areas = widths * heights
    best = int(np.argmin(areas))
    # Pixels make level lines seem turned a little: level it is where that is nearly as small.
    if areas[0] <= LEVEL * areas[best]:
        best = 0
    middle = (u[best].max() + u[best].min()) / 2, (v[best].max() + v[best].min()) / 2
    x, y = middle[0] * along[best] + middle[1] * across[best]
    width, height = float(widths[best]), float(heights[best])
    angle = math.atan2(along[best, 1], along[best, 0])
    # Of its four directions the one that is nearest to the right.
    quarter = round(angle / (math.pi / 2))
    angle -= quarter * math.pi / 2
    if quarter % 2:
        width, height = height, width
    if height >= UPRIGHT * width:
        width, height, angle = height, width, angle + math.pi / 2
    return Box(float(x), float(y), width, height, angle)


def _hull(points: np.ndarray) -> np.ndarray:
    """The corners of the convex hull, in order."""
    ordered = sorted(set(map(tuple, points.tolist())))

    def half(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        chain: list[tuple[float, float]] = []
        for x, y in points:
            while len(chain) > 1:
                (x0, y0), (x1, y1) = chain[-2:]
                if (x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) > 0:
                    break
                chain.pop()
            chain.append((x, y))
        return chain[:-1]

    return np.array(half(ordered) + half(ordered[::-1]))


def reading_order(boxes: Sequence[Box]) -> list[int]:
    """Indices of the boxes from the top of the page to its bottom, each row from left to right, as
    most of the text runs."""
    if not boxes:
        return []
    total = [sum(box.width * box.along[axis] for box in boxes) for axis in (0, 1)]
    length = math.hypot(*total) or 1.0
    ax, ay = total[0] / length, total[1] / length
    if not any(total):
        ax, ay = 1.0, 0.0
    position = [(box.x * ax + box.y * ay, box.y * ax - box.x * ay) for box in boxes]
    order: list[int] = []
    row: list[int] = []
    for index in sorted(range(len(boxes)), key=lambda i: position[i][1]):
        limit = 0.5 * min(boxes[index].height, boxes[row[0]].height) if row else 0.0
        if row and position[index][1] - position[row[0]][1] > limit:
            order += sorted(row, key=lambda i: position[i][0])
            row = []
        row.append(index)
    return order + sorted(row, key=lambda i: position[i][0])
