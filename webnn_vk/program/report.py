"""What was compiled, as data (``graph.report()``)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ReportStep:
    """One step: ``operators`` are the names with labels that it computes, ``reason`` says why it
    runs where it does, ``flops`` and ``bytes`` count one run."""

    operators: tuple[str, ...]
    device: str
    reason: str
    kernel: str
    variant: str
    dispatches: int
    flops: int
    bytes: int


@dataclass(frozen=True)
class GraphReport:
    """``steps`` in order of execution; ``folded`` names what was computed at build time; sizes in
    bytes; ``build_seconds`` by stage. ``print(report)`` shows a table."""

    steps: tuple[ReportStep, ...]
    folded: tuple[str, ...] = ()
    arena_bytes: int = 0
    weight_bytes: int = 0
    build_seconds: dict[str, float] = field(default_factory=dict)

    def count(self, device: str) -> int:
        """Number of steps on "vulkan" or "cpu"."""
        return sum(step.device == device for step in self.steps)

    @property
    def dispatches(self) -> int:
        return sum(step.dispatches for step in self.steps)

    def __str__(self) -> str:
        head = ("step", "device", "kernel", "variant", "dispatches", "MFLOP", "MB", "reason")
        rows = [
            (
                " + ".join(s.operators),
                s.device,
                s.kernel,
                s.variant,
                str(s.dispatches),
                f"{s.flops / 1e6:.3f}",
                f"{s.bytes / 1e6:.3f}",
                s.reason,
            )
            for s in self.steps
        ]
        widths = [min(48, max(len(r[i]) for r in [head, *rows])) for i in range(len(head))]
        # The reason stands last and is shown in full.
        widths[-1] = max(len(r[-1]) for r in [head, *rows])
        lines = [
            "  ".join(cell[:w].ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in [head, *rows]
        ]
        times = ", ".join(f"{k} {v * 1e3:.1f} ms" for k, v in self.build_seconds.items())
        lines.append(
            f"{len(self.steps)} steps ({self.count('vulkan')} Vulkan, {self.count('cpu')} CPU), "
            f"{self.dispatches} dispatches, {len(self.folded)} folded, "
            f"arena {self.arena_bytes / 1e6:.2f} MB, weights {self.weight_bytes / 1e6:.2f} MB"
            + (f"; {times}" if times else "")
        )
        return "\n".join(lines)
