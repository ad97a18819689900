"""ONNX operators that ONNX Runtime computes wrongly, by the conformance suite's tolerances or by
what the operators promise. A model with one of them does not run there as it is: its graphs compute
it in other forms (`compiler/ir/to_onnx`).

``tests/unit/onnx/test_runtime_limits.py`` shows for each that it is wrong, and since which release
it is not: releases before that are in use.
"""

from __future__ import annotations

from webnn_vk.support.dataclass import dataclass


@dataclass(frozen=True)
class Limit:
    """Operators that are wrong with an operand of one of the ``types``, or always if ``types`` is
    empty."""

    operators: tuple[str, ...]
    types: tuple[str, ...]
    reason: str


HALVES_COMPARED = "some 64-bit integers are compared by their lower halves only"
_NAN = "NaN is ignored"

LIMITS: tuple[Limit, ...] = (
    Limit(("Max", "Min", "Clip", "Relu", "Sign"), ("int64",), HALVES_COMPARED),
    Limit(("ReduceMax", "ReduceMin"), ("int64", "uint32", "uint64"), HALVES_COMPARED),
    Limit(("ReduceMax", "ReduceMin"), ("float16", "float32"), _NAN),
    Limit(("Sign",), ("float16",), _NAN),
    Limit(
        ("ReduceSum", "ReduceProd", "ReduceL1", "ReduceSumSquare"),
        ("int32", "uint32", "int64", "uint64"),
        "integers are summed as doubles and do not wrap around",
    ),
    Limit(
        ("ScatterND",), (),
        "several updates of one element are applied in no fixed order; the last must win",
    ),
)
