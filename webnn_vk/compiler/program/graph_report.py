"""The result of a compilation, as data (``graph.report()``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.mixins import html_table


@dataclass(frozen=True)
class ReportLine:
    """One dispatch, CPU operator or copy, on ``device``. ``kernel`` is "copy" for copies between
    device and CPU; their ``variant`` names the direction. ``groups`` are a dispatch's workgroups;
    ``flops`` and ``bytes`` are of this line. ``kernel`` is "repeat" for a loop, whose ``variant``
    names the number of repetitions and the kernels; ``repeated`` counts its dispatches."""

    operators: tuple[str, ...]
    device: str
    kernel: str
    variant: str = ""
    groups: tuple[int, int, int] | None = None
    flops: int = 0
    bytes: int = 0
    reason: str = ""
    repeated: int = 0


@dataclass(frozen=True)
class ReportStep:
    """One step: ``operators`` are the names with labels that it computes, ``reason`` says why it
    runs where it does, ``flops`` and ``bytes`` count one run. ``kernel`` and ``variant`` are of its
    first dispatch; ``parts`` has a line for each dispatch."""

    operators: tuple[str, ...]
    device: str
    reason: str
    kernel: str
    variant: str
    dispatches: int
    flops: int
    bytes: int
    parts: tuple[ReportLine, ...] = ()


@dataclass(frozen=True, repr=False)
class GraphReport:
    """``steps`` in order of execution; ``lines``: their dispatches and CPU operators, and the
    copies between them; ``setup``: the lines that run once, at load; ``folded``: the nodes
    computed at build time. Sizes in bytes: ``arena_bytes`` of intermediates, ``weight_bytes`` of
    constants as stored, ``packed_bytes`` of them in a kernel's layout. ``build_seconds`` by stage.
    ``donated``: for each donated input, whether its output is written in place or a copy of the
    input is kept. ``notes``: what the graph's maker says. ``print(report)`` shows a table."""

    steps: tuple[ReportStep, ...] = ()
    folded: tuple[str, ...] = ()
    arena_bytes: int = 0
    weight_bytes: int = 0
    build_seconds: dict[str, float] = field(default_factory=dict)
    lines: tuple[ReportLine, ...] = ()
    setup: tuple[ReportLine, ...] = ()
    packed_bytes: int = 0
    donated: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def count(self, device: str) -> int:
        """Number of steps on "vulkan" or "cpu"."""
        return sum(step.device == device for step in self.steps)

    @property
    def dispatches(self) -> int:
        return sum(step.dispatches for step in self.steps)

    @property
    def copies(self) -> int:
        """Number of copies, between device and CPU and to further outputs."""
        return sum(line.kernel == "copy" and line.groups is None for line in self.lines)

    @property
    def summary(self) -> str:
        """Steps, dispatches, sizes and build times in one line."""
        times = ", ".join(f"{k} {v * 1e3:.1f} ms" for k, v in self.build_seconds.items())
        weights = f"weights {self.weight_bytes / 1e6:.2f} MB"
        if self.packed_bytes:
            weights += f" ({self.packed_bytes / 1e6:.2f} MB packed)"
        return (
            f"{len(self.steps)} steps ({self.count('vulkan')} Vulkan, {self.count('cpu')} CPU), "
            f"{self.dispatches} dispatches, {self.copies} copies, {len(self.folded)} folded, "
            f"arena {self.arena_bytes / 1e6:.2f} MB, {weights}" + (f"; {times}" if times else "")
        )

    def __str__(self) -> str:
        lines = _table(self.lines)
        if self.setup:
            lines += ["", "once, at load:", *_table(self.setup)]
        return "\n".join([*lines, *self.donated, *self.notes, self.summary])

    def __repr__(self) -> str:
        return f"<GraphReport {self.summary}>"

    def _repr_html_(self) -> str:
        html = html_table(map(_cells, self.lines), _HEAD, self.summary)
        if self.setup:
            html += html_table(map(_cells, self.setup), _HEAD, "once, at load")
        return html


_HEAD = ("step", "device", "kernel", "variant", "groups", "MFLOP", "MB", "reason")


def _cells(line: ReportLine) -> tuple[str, ...]:
    return (
        " + ".join(line.operators),
        line.device,
        line.kernel,
        line.variant,
        "" if line.groups is None else "×".join(map(str, line.groups)),
        f"{line.flops / 1e6:.3f}",
        f"{line.bytes / 1e6:.3f}",
        line.reason,
    )


def _table(lines: Sequence[ReportLine]) -> list[str]:
    rows = [_cells(line) for line in lines]
    widths = [min(48, max(len(r[i]) for r in [_HEAD, *rows])) for i in range(len(_HEAD))]
    # The reason is the last column and is shown in full.
    widths[-1] = max(len(r[-1]) for r in [_HEAD, *rows])
    return [
        "  ".join(cell[:w].ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in [_HEAD, *rows]
    ]
