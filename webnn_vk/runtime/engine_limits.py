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


def _of(*types: str) -> Callable[[CpuStep], bool]:
    """Whether a step's operands have one of these types."""
    return lambda step: any(t.descriptor.data_type in types for t in step.operands.values())


_INTEGERS = _of("int8", "uint8", "int32", "uint32", "int64", "uint64")
_HALVES = "of some 64-bit integers only the lower halves are compared"

STAYS: tuple[Stay, ...] = (
    *(Stay(name, _HALVES, _of("int64")) for name in ("max", "min", "clamp", "relu", "sign")),
    *(
        Stay(name, _HALVES, _of("int64", "uint32", "uint64"))
        for name in ("reduce_max", "reduce_min")
    ),
    *(
        Stay(name, "integers are added up as doubles and do not wrap around", _INTEGERS)
        for name in ("reduce_sum", "reduce_product", "reduce_l1", "reduce_sum_square")
    ),
    Stay("scatter_nd", "several updates of one place are written in no order; the last has to win"),
)
_BY_OPERATOR: dict[str, list[Stay]] = {}
for _stay in STAYS:
    _BY_OPERATOR.setdefault(_stay.operator, []).append(_stay)


def stays(step: CpuStep) -> str:
    """Why a step stays on NumPy, or nothing."""
    return next((s.reason for s in _BY_OPERATOR.get(step.operator, ()) if s.applies(step)), "")
