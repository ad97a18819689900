"""What stays on NumPy because ONNX Runtime gets it wrong, by the conformance suite's tolerances or
by what the operators promise. What ONNX can't express or ONNX Runtime has no kernel for is found
out when a graph is built and isn't listed here.

``tests/device/cpu_engine/test_limits.py`` shows for each that it is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..program import CpuStep


@dataclass(frozen=True)
class Stay:
    """Steps of an operator for which ``applies`` stay on NumPy, and why."""

    operator: str
    reason: str
    applies: Callable[[CpuStep], bool] = lambda step: True


STAYS: tuple[Stay, ...] = (
    Stay(
        "scatter_nd",
        "several updates of one place are written in no order, the last has to win",
    ),
)
_BY_OPERATOR: dict[str, list[Stay]] = {}
for _stay in STAYS:
    _BY_OPERATOR.setdefault(_stay.operator, []).append(_stay)


def stays(step: CpuStep) -> str:
    """Why a step stays on NumPy, or nothing."""
    return next((s.reason for s in _BY_OPERATOR.get(step.operator, ()) if s.applies(step)), "")
