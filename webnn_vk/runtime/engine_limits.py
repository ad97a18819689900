"""Operators that run on NumPy because ONNX Runtime computes them wrongly, by the conformance
suite's tolerances or by what the operators promise. Operators that ONNX can't express, or for
which ONNX Runtime has no kernel, are found when a graph is built and are not listed here.

``tests/unit/runtime/test_limits.py`` shows for each that it is wrong, and since which release it
is not: releases before that are in use.
"""

from __future__ import annotations

from dataclasses import dataclass

from webnn_vk.compiler.program import CpuStep


@dataclass(frozen=True)
class NumpyOnly:
    """An operator that has to run on NumPy, and why: only steps with an operand of one of the
    ``types``, or all steps if ``types`` is empty."""

    operator: str
    reason: str
    types: tuple[str, ...] = ()

    def applies(self, step: CpuStep) -> bool:
        """Whether the entry covers a step of its operator."""
        given = {t.descriptor.data_type for t in step.operands.values()}
        return not self.types or not given.isdisjoint(self.types)


HALVES_COMPARED = "some 64-bit integers are compared by their lower halves only"
_NAN = "NaN is ignored"
_SUMS = "integers are summed as doubles and do not wrap around"

NUMPY_ONLY: tuple[NumpyOnly, ...] = (
    *(
        NumpyOnly(name, HALVES_COMPARED, ("int64",))
        for name in ("max", "min", "clamp", "relu", "sign")
    ),
    *(
        NumpyOnly(name, HALVES_COMPARED, ("int64", "uint32", "uint64"))
        for name in ("reduce_max", "reduce_min")
    ),
    *(NumpyOnly(name, _NAN, ("float16", "float32")) for name in ("reduce_max", "reduce_min")),
    NumpyOnly("sign", _NAN, ("float16",)),
    *(
        NumpyOnly(name, _SUMS, ("int32", "uint32", "int64", "uint64"))
        for name in ("reduce_sum", "reduce_product", "reduce_l1", "reduce_sum_square")
    ),
    NumpyOnly(
        "scatter_nd",
        "several updates of one element are applied in no fixed order; the last must win",
    ),
)


def numpy_only(step: CpuStep) -> str:
    """Why a step has to run on NumPy; an empty string if it does not."""
    reasons = (s.reason for s in NUMPY_ONLY if s.operator == step.operator and s.applies(step))
    return next(reasons, "")
