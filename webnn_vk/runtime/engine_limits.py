"""What stays on NumPy because ONNX Runtime gets it wrong, by the conformance suite's tolerances or
by what the operators promise. What ONNX can't express or ONNX Runtime has no kernel for is found
out when a graph is built and isn't listed here.

``tests/unit/runtime/test_limits.py`` shows for each that it is wrong, and since which release it
is not: releases before that are in use.
"""

from __future__ import annotations

from dataclasses import dataclass

from webnn_vk.compiler.program import CpuStep


@dataclass(frozen=True)
class Stay:
    """Steps of an operator stay on NumPy, those with an operand of one of the ``types`` (none:
    all), and why."""

    operator: str
    reason: str
    types: tuple[str, ...] = ()

    def applies(self, step: CpuStep) -> bool:
        """Whether it says so of a step."""
        given = {t.descriptor.data_type for t in step.operands.values()}
        return not self.types or not given.isdisjoint(self.types)


HALVES_COMPARED = "of some 64-bit integers only the lower halves are compared"
_NAN = "a NaN is passed over"
_SUMS = "integers are added up as doubles and do not wrap around"

STAYS: tuple[Stay, ...] = (
    *(Stay(name, HALVES_COMPARED, ("int64",)) for name in ("max", "min", "clamp", "relu", "sign")),
    *(
        Stay(name, HALVES_COMPARED, ("int64", "uint32", "uint64"))
        for name in ("reduce_max", "reduce_min")
    ),
    *(Stay(name, _NAN, ("float16", "float32")) for name in ("reduce_max", "reduce_min")),
    Stay("sign", _NAN, ("float16",)),
    *(
        Stay(name, _SUMS, ("int32", "uint32", "int64", "uint64"))
        for name in ("reduce_sum", "reduce_product", "reduce_l1", "reduce_sum_square")
    ),
    Stay("scatter_nd", "several updates of one place are written in no order; the last has to win"),
)


def stays(step: CpuStep) -> str:
    """Why a step stays on NumPy, or nothing."""
    return next((s.reason for s in STAYS if s.operator == step.operator and s.applies(step)), "")
