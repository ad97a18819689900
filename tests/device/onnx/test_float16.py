"""Operators that the importer makes of several: their float16 results are the float32 results,
rounded, wherever these are finite. Each node is computed in both types, on numbers of several
magnitudes: an intermediate value must not overflow, nor lose digits that the result has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from tests.support.onnx_nodes import Draws, Node


def whole(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def weights(*shape: int) -> np.ndarray:
    return Draws(1).normal(*shape) / 5


@dataclass(frozen=True)
class Case:
    """``inputs`` of numbers of a magnitude; ``largest``: up to which it is tried. ``bound`` is
    relative to the largest value."""

    operator: str
    inputs: Callable[[np.ndarray], list[Any]]
    attributes: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = (2, 8, 6, 6)
    largest: float = 3e4
    bound: float = 1e-3
    outputs: int = 1
    opset: int = 22
    domain: str = ""


def alone(x: np.ndarray) -> list[Any]:
    return [x]


CASES = [
    Case("LRN", alone, {"size": 5, "alpha": 0.5, "bias": 1.0}),
    *(Case("LpPool", alone, {"kernel_shape": [2, 2], "p": p}) for p in (1, 2, 3)),
    *(Case("GlobalLpPool", alone, {"p": p}) for p in (1, 2, 3, 4)),
    *(Case("LpNormalization", alone, {"p": p}) for p in (1, 2)),
    Case("BatchNormalization",
         lambda x: [x, weights(8), weights(8), weights(8), weights(8) ** 2],
         {"training_mode": 1}, outputs=3),
    Case("InstanceNormalization", lambda x: [x, weights(8), weights(8)]),
    Case("GroupNormalization", lambda x: [x, weights(8), weights(8)], {"num_groups": 4}),
    Case("LayerNormalization", lambda x: [x, weights(6), weights(6)], outputs=3),
    Case("RMSNormalization", lambda x: [x, weights(6)], opset=23),
    Case("MeanVarianceNormalization", alone),
    Case("Sum", lambda x: [x, x[::-1], -x]),
    Case("Mean", lambda x: [x, np.abs(x), np.abs(x[::-1]), x]),
    *(Case("Det", alone, {}, (5, n, n)) for n in (2, 3, 4)),
    Case("CumProd", lambda x: [np.abs(x), np.array(1)], {}, (4, 9), largest=30, opset=26),
    *(Case(name, lambda x: [np.abs(x) + 1, whole(1, 2)])
      for name in ("ReduceLogSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceMean")),
    *(Case(name, alone) for name in ("ReduceLogSumExp", "LogSoftmax")),
    Case("Softmax", alone, largest=1),
    Case("AveragePool", lambda x: [np.abs(x)],
         {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1}),
    Case("GlobalAveragePool", lambda x: [np.abs(x)]),
    *(Case("Resize", lambda x, to=to: [x, None, None, whole(2, 8, *to)], attributes)
      for to in ((9, 11), (3, 4))
      for attributes in ({"mode": "linear"}, {"mode": "cubic"}, {"mode": "linear", "antialias": 1},
                         {"mode": "linear", "coordinate_transformation_mode": "align_corners"})),
    *(Case("GridSample", lambda x: [x, weights(2, 4, 4, 2)], {"mode": mode})
      for mode in ("linear", "cubic")),
    Case("RoiAlign", lambda x: [x, np.array([[0, 0, 4, 4], [1, 1, 5, 3]], np.float32), whole(0, 1)],
         {"output_height": 2, "output_width": 2}),
    Case("DFT", lambda x: [x, None, np.array(1)], {"inverse": 1}, (3, 40, 2)),
    *(Case("CDist", lambda x: [x, x[::-1] + 1], {"metric": metric}, (5, 7), domain="com.microsoft")
      for metric in ("euclidean", "sqeuclidean")),
    Case("MultiHeadAttention", lambda x: [x, weights(2, 5, 16) * 5, weights(2, 5, 16)],
         {"num_heads": 2}, (2, 4, 16), bound=0.03, domain="com.microsoft"),
    *(Case("Attention", lambda x: [x, weights(2, 2, 5, 8), weights(2, 2, 5, 8)], attributes,
           (2, 2, 4, 8), largest=30, bound=0.03, opset=23)
      for attributes in ({}, {"softcap": 30.0})),
]
#: Not SkipLayerNormalization: the sum that it gives out, in float16 too, may overflow as any sum.


def named(case: Case) -> str:
    return " ".join([case.operator, *(f"{k}={v}" for k, v in case.attributes.items())])


@pytest.mark.sample(0.34)
@pytest.mark.parametrize("size", [1.0, 30.0, 1000.0, 3e4], ids="{:g}".format)
@pytest.mark.parametrize("case", CASES, ids=named)
def test_as_in_float32(context, case, size):
    if size > case.largest:
        return
    x = np.clip(Draws().normal(*case.shape) * size, -65000, 65000)
    halves = [v.astype(np.float16) if getattr(v, "dtype", None) == np.float32 else v
              for v in case.inputs(x.astype(np.float32))]
    wide = [v.astype(np.float32) if getattr(v, "dtype", None) == np.float16 else v for v in halves]
    got, expected = (
        Node(case.operator, given, case.attributes, case.outputs, case.domain,
             opset=case.opset).here(context)
        for given in (halves, wide)
    )
    for short, exact in zip(got, expected, strict=True):
        assert short.dtype == np.float16 or exact is not expected[0]
        finite = np.isfinite(exact) & (np.abs(exact) < 65000)
        if not finite.any():
            assert size > 1
            continue
        assert_allclose(
            short[finite].astype(np.float32), exact[finite], rtol=2e-3,
            atol=case.bound * np.abs(exact[finite]).max(),
        )
