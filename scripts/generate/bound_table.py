"""The table of bounds in docs/performance.md, from docs/bounds.json:

    python -m bench isa --captured FOLDER --chip NAVI21 --chip GFX1100 --chip VEGA10 \\
        --json docs/bounds.json
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "docs" / "bounds.json"
OURS = "webnn_vk"
TITLES = {
    "matmul_512": "matmul 512³",
    "matmul_1024": "matmul 1024³",
    "conv3x3_56x56_64_64": "convolution 3×3, 64 → 64 channels, 56²",
    "conv1x1_28x28_128_512": "convolution 1×1, 128 → 512 channels, 28²",
    "dwconv3x3_112x112_32": "depthwise 3×3, 32 channels, 112²",
    "layernorm_128x768": "layer normalisation, 128 × 768",
    "softmax_12x128x128": "softmax, 12 × 128 × 128",
    "add_relu_chain_1m": "add and relu of 2²⁰ elements",
    "mobilenet_v2_224": "MobileNetV2",
    "bert_2l_128": "BERT, 2 layers, 128 tokens",
    "resnet50_v1_224": "ResNet-50",
}
PEERS = {"ncnn": "ncnn", "ort": "ONNX Runtime", "iree": "IREE"}


def text() -> str:
    """The table: a row a workload; on the first chip each peer, on the others the fastest."""
    found = json.loads(FIGURES.read_text(encoding="utf-8"))
    chips = {
        chip: {(row["workload"], row["who"]): row for row in rows} for chip, rows in found.items()
    }
    (first, all_of_first), *others = chips.items()
    titles = ["", f"{first}: ours", *PEERS.values()]
    titles += [f"{chip}: ours, fastest" for chip, _ in others]
    lines = [f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}"]
    for workload, title in TITLES.items():
        cells = [title, *(_time(all_of_first.get((workload, who))) for who in (OURS, *PEERS))]
        for _, rows in others:
            times = [
                row["bound"]["all"] for who in PEERS
                if (row := rows.get((workload, who))) and row["bound"]
            ]
            cells.append(f"{_time(rows[workload, OURS])}, {_figure(min(times))}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _time(row: dict[str, Any] | None) -> str:
    return "–" if row is None else "?" if row["bound"] is None else _figure(row["bound"]["all"])


def _figure(time: float) -> str:
    return f"{time:.2f}" if time < 10 else f"{time:.1f}" if time < 200 else f"{time:.0f}"


def files() -> dict[Path, str]:
    """The page with its table updated."""
    page = PAGE.read_text(encoding="utf-8")
    pattern = r"(<!-- bounds -->\n).*?(<!-- end of bounds -->)"
    made = re.sub(pattern, lambda found: f"{found[1]}{text()}\n{found[2]}", page, flags=re.DOTALL)
    return {PAGE: made}
