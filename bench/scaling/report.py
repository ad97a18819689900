"""`python -m bench scaling`: a table for each sweep, JSON, and charts."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webnn_vk.codegen.files import write_atomically

from ..table import show
from .measure import measured
from .points import TITLES, Point, cells, cliffs, remarks
from .sweeps import SWEEPS


@dataclass(frozen=True)
class Measured:
    """A sweep with its figures, judged ``by`` clock or processor."""

    key: str
    title: str
    unit: str
    by: str
    points: tuple[Point, ...]


def main(
    device: str | None, keys: Sequence[str] | None, sizes: Sequence[int] | None, runs: int, *,
    by: str, limit: float, file: Path | None, chart: Path | None,
) -> None:
    """Measure each size of the sweeps, print tables and cliffs, and write all to files."""
    from webnn_vk.tools.devices import open_context

    if chart is not None:
        from ..charts import check

        check(chart)
    with open_context(device) as context:
        about = str(context.device_info)
    print(about)
    sweeps: list[Measured] = []
    for key in keys or SWEEPS:
        sweep = SWEEPS[key]
        points: list[Point] = []
        for size in sorted(set(sizes or sweep.sizes)):
            points.append(measured(key, size, device, runs, limit))
            print(_progress(points[-1], by, sweep.unit), file=sys.stderr, flush=True)
        sweeps.append(Measured(key, sweep.title, sweep.unit, by, tuple(points)))
        _write(about, sweeps, file)
        print(f"\n{sweep.title} ({sweep.unit}), judged by the {by}")
        show(TITLES, cells(points, by))
        print()
        for line in remarks(points, by, sweep.unit) or ["no cliff"]:
            print(line)
    if chart is not None:
        from ..charts import scaling_chart

        scaling_chart(sweeps, about, chart)


def _progress(point: Point, by: str, unit: str) -> str:
    figures = point.failure or f"{1e3 * point.time(by):.1f} ms, {1e12 * point.each(by):.1f} ps each"
    return f"{point.size} {unit}: {figures}"


def _write(about: str, sweeps: Sequence[Measured], file: Path | None) -> None:
    if file is None:
        return
    everything: list[dict[str, Any]] = [
        {
            **dataclasses.asdict(sweep),
            "cliffs": [cliff.point.size for cliff in cliffs(sweep.points, sweep.by)],
        }
        for sweep in sweeps
    ]
    text = json.dumps({"device": about, "sweeps": everything}, indent=1, ensure_ascii=False)
    write_atomically(file, text.encode() + b"\n", mode=0o644)
