"""The harness's measurements as rows of a table: pure functions over plain data."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OURS, OURS_ON_CPU = "webnn_vk", "webnn_vk_cpu"
#: The harness's names of peers → ours. Our ratios are to the peers on Vulkan.
ON_VULKAN: Mapping[str, str] = {
    "ncnn_vulkan": "ncnn",
    "ort_webgpu": "ORT WebGPU",
    "iree_vulkan": "IREE",
    "tinygrad_webgpu": "tinygrad",
}
ON_CPU: Mapping[str, str] = {"ort_cpu": "ORT CPU", OURS_ON_CPU: "our CPU device"}
TITLES: Mapping[str, str] = {OURS: "ours", **ON_VULKAN, **ON_CPU}
#: The harness's names of workloads → ours.
WORKLOADS: Mapping[str, str] = {
    "matmul_512": "matmul 512³",
    "matmul_1024": "matmul 1024³",
    "conv3x3_56x56_64_64": "conv 3×3, 64 → 64, 56²",
    "conv1x1_28x28_128_512": "conv 1×1, 128 → 512, 28²",
    "dwconv3x3_112x112_32": "depthwise 3×3, 32, 112²",
    "layernorm_128x768": "layer norm 128 × 768",
    "softmax_12x128x128": "softmax 12 × 128²",
    "add_relu_chain_1m": "add and relu, 1 M",
    "mobilenet_v2_224": "MobileNetV2",
    "bert_2l_128": "BERT, 2 layers",
    "resnet50_v1_224": "ResNet-50",
}
#: A result is right if it differs from the reference (ONNX Runtime on the CPU) by at most this
#: share of the reference's largest element.
RIGHT = 1e-3
#: The number of processors that other processes may use on a machine that counts as quiet.
BUSY = 0.25


@dataclass(frozen=True)
class Result:
    """One peer's figures for one workload. ``steady``: milliseconds of a run, the median. ``cold``:
    seconds from empty caches to the first result, without Python's start. ``error`` is relative to
    the largest element, None where nothing was compared. ``busy``: processors that others kept
    busy meanwhile. ``on_host``: what a peer on Vulkan, or we, left to the CPU, where it is known.
    ``failure``: why there are no figures."""

    peer: str
    workload: str
    steady: float | None = None
    cold: float | None = None
    error: float | None = None
    busy: float = 0.0
    on_host: tuple[str, ...] = ()
    failure: str = ""

    @property
    def right(self) -> bool:
        # A NaN is wrong.
        return self.steady is not None and self.error is not None and self.error <= RIGHT


def read(measured: Mapping[str, Any]) -> Result:
    """The result that the harness wrote for one peer and one workload."""
    peer, workload = measured["peer"], measured["workload"]
    if "error" in measured:
        return Result(peer, workload, failure=str(measured["error"]) or "no message")
    cold = measured["build_s"] + measured["first_run_s"]
    info = measured.get("info", {})
    on_host = info.get("layers_without_vulkan") or _cpu_steps(info.get("report", ""))
    return Result(
        peer, workload, measured["ms"], cold, measured.get("max_rel_err"),
        measured.get("foreign_cores", 0.0),
        tuple(on_host) if peer in (OURS, *ON_VULKAN) else (),
    )


def _cpu_steps(report: str) -> list[str]:
    """The operators on the CPU in the printed report of our graph. Where the harness has cut the
    report, the text says so."""
    rows = [re.split(r" {2,}", line) for line in report.splitlines()]
    found = [row[0] for row in rows if len(row) > 2 and row[1] == "cpu"]
    whole = re.search(r"steps \(\d+ Vulkan, (\d+) CPU\)", report)
    if report and not whole:
        found.append("perhaps more, the report is cut")
    return found


@dataclass(frozen=True)
class Row:
    """A workload with its results by peer."""

    workload: str
    results: Mapping[str, Result]

    def fastest(self, figure: str) -> Result | None:
        """The fastest Vulkan peer with a right result; ``figure``: steady or cold."""
        there = [r for peer in ON_VULKAN if (r := self.results.get(peer)) and r.right]
        return min(there, key=lambda result: getattr(result, figure), default=None)

    def ratio(self, figure: str) -> float | None:
        """Our speed relative to ``fastest``; None where either has no right result."""
        ours, peer = self.results.get(OURS), self.fastest(figure)
        if ours is None or not ours.right or peer is None:
            return None
        return getattr(peer, figure) / getattr(ours, figure)


def rows(results: Iterable[Result]) -> list[Row]:
    """A row for each workload, in the order of `WORKLOADS`."""
    by_workload: dict[str, dict[str, Result]] = {}
    for result in results:
        by_workload.setdefault(result.workload, {})[result.peer] = result
    order = [*WORKLOADS, *by_workload]
    return [Row(name, by_workload[name]) for name in sorted(by_workload, key=order.index)]


def geometric_mean(table: Sequence[Row], figure: str) -> tuple[float | None, int]:
    """The mean of the existing ratios, and their number."""
    ratios = [ratio for row in table if (ratio := row.ratio(figure)) is not None]
    if not ratios:
        return None, 0
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios)), len(ratios)


def peers_of(table: Sequence[Row]) -> list[str]:
    """The columns: ours, the peers on Vulkan, the peers on the CPU."""
    return [peer for peer in TITLES if any(peer in row.results for row in table)]


def cells(table: Sequence[Row], figure: str) -> tuple[list[str], list[list[str]]]:
    """The titles and the rows of a table. The times of wrong results are in brackets."""
    peers = peers_of(table)
    found = [
        [
            WORKLOADS.get(row.workload, row.workload),
            *(_cell(row.results.get(peer), figure) for peer in peers),
            TITLES[fastest.peer] if (fastest := row.fastest(figure)) else "-",
            "-" if (ratio := row.ratio(figure)) is None else f"{ratio:.2f}",
        ]
        for row in table
    ]
    return ["", *(TITLES[peer] for peer in peers), "fastest peer", "ratio"], found


def _cell(result: Result | None, figure: str) -> str:
    if result is None:
        return "-"
    if result.failure:
        return "too long" if result.failure.startswith("timeout") else "failed"
    time = f"{getattr(result, figure):.{1 if figure == 'steady' else 2}f}"
    time += " + CPU" * bool(result.on_host)
    return time if result.right else f"(wrong: {time})"


def summary(table: Sequence[Row], figure: str) -> str:
    """The geometric mean in words, with its number of workloads."""
    mean, count = geometric_mean(table, figure)
    if mean is None:
        return "no ratio: no workload has a right result of ours and of a Vulkan peer"
    return (
        f"geometric mean of the ratios (fastest Vulkan peer with a right result ÷ ours): "
        f"{mean:.2f}, {count} of {len(table)} workloads"
    )


def remarks(table: Sequence[Row]) -> list[str]:
    """A line for each result that is wrong, missing or was computed elsewhere, and one where the
    machine was busy."""
    lines = []
    busy = max((result.busy for row in table for result in row.results.values()), default=0)
    if busy > BUSY:
        lines.append(
            f"not a quiet machine: others kept up to {busy:.1f} processors busy; such figures "
            "say little"
        )
    for row in table:
        for result in row.results.values():
            who = f"{TITLES.get(result.peer, result.peer)}, {WORKLOADS.get(row.workload)}"
            if result.failure:
                lines.append(f"{who}: {result.failure.strip().splitlines()[-1]}")
            elif result.error is None:
                lines.append(f"{who}: not compared with the reference")
            elif not result.right:
                lines.append(f"{who}: wrong by {result.error:.1e} of the largest element")
            if result.on_host:
                lines.append(f"{who}: on the CPU: {', '.join(result.on_host)}")
    return lines


def ours_not_right(table: Sequence[Row]) -> list[str]:
    """The requested workloads for which this library has no right result."""
    return [
        WORKLOADS.get(row.workload, row.workload)
        for row in table if OURS in row.results and not row.results[OURS].right
    ]
