"""Charts of measurements as SVG, PNG or PDF, drawn by matplotlib (the extra "bench")."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from webnn_vk.tools import ToolError, need

from .peers.results import ON_CPU, OURS, TITLES, WORKLOADS, Result, Row, peers_of, summary
from .scaling.points import Point, cliffs

#: Colours that colour-blind people can tell apart (Okabe and Ito). Ours is the strongest.
_COLOURS = {
    "webnn_vk": "#d55e00", "ncnn_vulkan": "#0072b2", "ort_webgpu": "#56b4e9",
    "iree_vulkan": "#009e73", "tinygrad_webgpu": "#cc79a7", "ort_cpu": "#999999",
    "webnn_vk_cpu": "#e8b48f",
}
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "webnn_vk", "font.size": 9}


def plotting() -> Any:
    """matplotlib's `Figure`, without a screen. `ToolError` where it isn't installed."""
    need("--chart needs", "charts")
    from matplotlib.figure import Figure

    return Figure


def check(file: Path) -> None:
    """`ToolError` where a chart can't be drawn into the file; called before half an hour of
    work."""
    plotting()
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    if file.suffix[1:].lower() not in kinds:
        raise ToolError(f"--chart {file}: .svg, .png or .pdf is expected")


def peers_chart(table: Sequence[Row], about: str, file: Path) -> None:
    """Milliseconds of a run, with a group of bars for each workload and our ratio beside our
    bar."""
    figure_class = plotting()
    import matplotlib

    peers = peers_of(table)
    with matplotlib.rc_context(_STYLE):
        figure = figure_class(figsize=(9, 1.2 + 0.17 * len(table) * (len(peers) + 1)))
        axes = figure.subplots()
        thickness = 1 / (len(peers) + 1)
        for place, peer in enumerate(peers):
            hatch = "//" if peer in ON_CPU else None
            bars = [
                (group + (place + 0.5) * thickness, result, row)
                for group, row in enumerate(table) if (result := row.results.get(peer))
            ]
            there = [(y, result) for y, result, _ in bars if result.steady is not None]
            axes.barh(
                [y for y, _ in there], [result.steady for _, result in there], thickness * 0.9,
                color=_COLOURS[peer], hatch=hatch, label=TITLES[peer],
            )
            for y, result, row in bars:
                axes.annotate(
                    _beside(result, row), (result.steady or 0, y), (3, 0),
                    textcoords="offset points",
                    xycoords=("data" if result.steady else axes.get_yaxis_transform()),
                    va="center", fontsize=7, weight="bold" if peer == OURS else "normal",
                )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.margins(x=0.12)
        axes.set_ylim(len(table), -0.1)
        axes.set_yticks(
            [group + 0.5 - thickness / 2 for group in range(len(table))],
            [WORKLOADS.get(row.workload, row.workload) for row in table],
        )
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
        axes.set_xlabel("milliseconds of a run, less is better")
        axes.set_title(f"{summary(table, 'steady')}\n{about}", fontsize=8, loc="left")
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
        _save(figure, file)


def _beside(result: Result, row: Row) -> str:
    """The text at the end of a bar."""
    if result.failure:
        return f"{TITLES[result.peer]}: no result"
    if not result.right:
        return f"{_digits(result.steady)} wrong"
    ratio = row.ratio("steady") if result.peer == OURS else None
    return _digits(result.steady) + (f"  ({ratio:.1f}×)" if ratio is not None else "")


def _digits(number: float | None) -> str:
    """Three digits, without a power of ten."""
    return "" if number is None else f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def scaling_chart(sweeps: Sequence[Any], about: str, file: Path) -> None:
    """Time of a run and time per multiply-add against the size, a column for each sweep."""
    figure_class = plotting()
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        figure = figure_class(figsize=(4 * len(sweeps), 6))
        grid = figure.subplots(2, len(sweeps), squeeze=False, sharex="col")
        for (runs, work), sweep in zip(grid.T, sweeps, strict=True):
            points: list[Point] = [point for point in sweep.points if not point.failure]
            sizes = [point.size for point in points]
            for axes, figures in (
                (runs, [1e3 * point.time(sweep.by) for point in points]),
                (work, [1e12 * point.each(sweep.by) for point in points]),
            ):
                axes.plot(sizes, figures, marker="o", markersize=4, color=_COLOURS[OURS])
                axes.set_xscale("log", base=2)
                axes.grid(alpha=0.3)
            runs.set_yscale("log")
            runs.set_title(sweep.title, fontsize=9)
            steep = [rise.point for rise in cliffs(sweep.points, sweep.by)]
            work.scatter(
                [point.size for point in steep], [1e12 * point.each(sweep.by) for point in steep],
                s=90, facecolors="none", edgecolors="black", label="cliff",
            )
            if steep:
                work.legend()
            work.set_ylim(0, 1.1 * max((1e12 * p.each(sweep.by) for p in points), default=1.0))
            work.set_xticks(sizes, [str(size) for size in sizes], rotation=60, fontsize=7)
            work.minorticks_off()
            work.set_xlabel(sweep.unit)
        kind = {"clock": "by the clock", "processor": "of the processor"}[sweeps[0].by]
        grid[0][0].set_ylabel(f"milliseconds of a run, {kind}")
        grid[1][0].set_ylabel("picoseconds per multiply-add")
        figure.suptitle(about, fontsize=8)
        _save(figure, file)


def _save(figure: Any, file: Path) -> None:
    try:
        figure.savefig(file, bbox_inches="tight", metadata=_NO_DATE.get(file.suffix.lower()))
    except (OSError, ValueError) as error:
        raise ToolError(f"--chart {file}: {error}") from error


#: The same figures give the same file.
_NO_DATE = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
