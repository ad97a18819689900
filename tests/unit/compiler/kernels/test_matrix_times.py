"""Products by cooperative matrices on NVIDIA's GPUs, compared with measurements on an H200."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.profiles import H200, stored_profile
from tests.support.running import node_of
from webnn_vk.compiler.kernels import KernelNode, Schedule, solver_of
from webnn_vk.compiler.kernels.choose import ranked
from webnn_vk.compiler.kernels.heuristics import device_class
from webnn_vk.compiler.kernels.heuristics.device_classes import GpuClass
from webnn_vk.compiler.kernels.schedule import SPLIT
from webnn_vk.compiler.types.data_types import MLOperandDescriptor

MEASURED = [
    row for row in json.loads((ROOT / "bench/gpu/nvidia-h200-2026-11-28.json").read_text())["rows"]
    if row.get("kind") == "tuned" and row["size"][0] > 1
]


def _matrices(row: dict[str, Any]) -> dict[tuple[str, ...], float]:
    """(rows, columns, parts) of the tiles by cooperative matrices that an H200's tuner measured for
    a product, and their microseconds."""
    numbers = (
        (dict(n.split("=") for n in text.split()[1:]), seconds)
        for text, seconds, _ in row["measured"] if text.startswith("matmul_coopmat")
    )
    return {(n["BM"], n["BN"], n.get("SPLIT", "1")): 1e6 * s for n, s in numbers}


def _product(row: dict[str, Any]) -> tuple[Any, Any]:
    m, n, k = row["size"]
    given = [MLOperandDescriptor("float16", shape) for shape in ((m, k), (k, n))]
    return solver_of(KernelNode.of(node_of("matmul", *given)[0]))


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: "x".join(map(str, row["size"])))
def test_products_by_matrices_are_chosen_as_an_h200_measured(row: dict[str, Any]) -> None:
    """The schedules of 28 November had other steps of the inner dimension: tiles and parts count.
    Of those that were measured, what is chosen takes at most 1.1 times as long as the fastest."""
    (solver, problem), profile = _product(row), stored_profile(H200)
    measured = _matrices(row)

    def measure(schedule: Schedule) -> float | None:
        tile = (*map(str, schedule.tile), str(schedule.parts)) if schedule.by_matrices else ()
        return measured.get(tile)

    candidates = [c for c in solver.candidates(problem, profile)
                  if measure(c) is not None or not c.by_matrices]
    first = measure(next(ranked("matmul", candidates, problem, profile)))
    assert first is not None
    assert first <= 1.1 * min(seconds * 1e6 for _, seconds, _ in row["measured"])


def test_times_of_products_by_matrices_are_near_the_measured_ones() -> None:
    device = device_class(stored_profile(H200))
    assert isinstance(device, GpuClass) and device.matrix_times is not None
    ratios = []
    for row in MEASURED:
        for numbers, measured in _matrices(row).items():
            tile = Schedule("matmul_coopmat", tuple(zip(
                ("BM", "BN", SPLIT), map(int, numbers), strict=True
            )))
            time = device.matrix_times.of(_product(row)[1], tile, device.product_tiles)
            ratios.append(time / measured)
    assert (len(ratios), sum(1 / 1.2 < ratio < 1.2 for ratio in ratios)) == (27, 24)
