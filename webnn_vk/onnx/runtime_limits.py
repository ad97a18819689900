"""ONNX operators that ONNX Runtime computes wrongly, by the conformance suite's tolerances or by
what the operators promise. A model with one of them does not run there as it is: its graphs compute
it in other forms (`compiler/ir/to_onnx`).

``tests/unit/onnx/test_runtime_limits.py`` shows for each that it is wrong, and since which release
it is not: releases before that are in use. ``tests/device/onnx/test_dynamic.py`` shows the same for
``DEVIATIONS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from webnn_vk.support.dataclass import dataclass

#: Whether attributes and the inputs' shapes (None for an omitted one) are such.
Condition = Callable[[Mapping[str, Any], Sequence[tuple[int, ...] | None]], bool]


@dataclass(frozen=True)
class Limit:
    """Operators that are wrong with a first operand of one of the ``types``, or of any if ``types``
    is empty; where there is a condition, only if it holds."""

    operators: tuple[str, ...]
    types: tuple[str, ...]
    reason: str
    when: Condition | None = None


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


def _is_same(attributes: Mapping[str, Any]) -> bool:
    return str(attributes.get("auto_pad", "")).startswith("SAME")


def _has_gaps(attributes: Mapping[str, Any], kernel: Sequence[int]) -> bool:
    """Whether strides pass the window."""
    dilations = attributes.get("dilations", [1] * len(kernel))
    strides = attributes.get("strides", ())
    return any(s > (k - 1) * d + 1 for s, k, d in zip(strides, kernel, dilations, strict=False))


def _pads_oddly(attributes: Mapping[str, Any], _: Any) -> bool:
    dilated = any(d > 1 for d in attributes.get("dilations", ()))
    if _is_same(attributes):
        return dilated or _has_gaps(attributes, attributes.get("kernel_shape", ()))
    return dilated and any(attributes.get("pads", ()))


def _transforms(attributes: Mapping[str, Any], _: Any) -> bool:
    return attributes.get("post_transform", "NONE") not in ("NONE", 0)


_INTEGERS = ("int8", "uint8", "int32", "uint32", "int64", "uint64")

#: Operators whose results ONNX leaves open, or whose definition ONNX Runtime doesn't follow: the
#: import's are others, with the same results on all devices.
DEVIATIONS: tuple[Limit, ...] = (
    Limit(("MeanVarianceNormalization",), (), "elements that are all equal become NaN"),
    Limit(("LpNormalization",), (), "squares overflow, or vanish"),
    Limit(("LRN",), (), "sums lose the digits of what is smaller than a former neighbour"),
    Limit(("BatchNormalization",), (), "in training, statistics overwrite parameters equal to them",
          lambda a, _: bool(a.get("training_mode"))),
    Limit(("BatchNormalization",), (), "without epsilon, a variance of 0 makes everything NaN",
          lambda a, _: a.get("epsilon", 1) == 0),
    Limit(("Pow", "Shrink", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"), _INTEGERS,
          "integers are computed as floats"),
    Limit(("Resize",), _INTEGERS, "interpolated integers are not rounded to the nearest",
          lambda a, _: a.get("mode", "nearest") != "nearest"),
    Limit(("Resize",), (), "a region is ignored where an axis keeps its length",
          lambda a, _: a.get("coordinate_transformation_mode") == "tf_crop_and_resize"),
    Limit(("GridSample",), (), "reflections far outside are inexact",
          lambda a, _: a.get("padding_mode") == "reflection"),
    Limit(("MaxPool", "AveragePool", "LpPool"), (), "automatic padding ignores dilations and is "
          "negative where strides pass the window; a maximum over padding alone is the lowest "
          "number", _pads_oddly),
    Limit(("MaxUnpool",), (), "with output_shape, indices count in it",
          lambda a, shapes: len(shapes) > 2),
    Limit(("ConvTranspose",), (), "computed padding is wrong where strides pass the filter",
          lambda a, shapes: (_is_same(a) or "output_shape" in a) and _has_gaps(
              a, ((shapes[1] if len(shapes) > 1 else None) or ())[2:])),
    Limit(("LinearRegressor", "TreeEnsembleRegressor", "TreeEnsemble"), (),
          "post_transform of one score is ignored; of scores that are 0 SOFTMAX_ZERO is NaN",
          _transforms),
    Limit(("LinearClassifier", "TreeEnsembleClassifier"), (), "SOFTMAX_ZERO of zeros is NaN",
          lambda a, _: a.get("post_transform") == "SOFTMAX_ZERO"),
    Limit(("TreeEnsembleRegressor",), (), "targets without a leaf lack their base value",
          lambda a, _: a.get("n_targets", 1) > 1 and any(
              name.startswith("base_values") for name in a)),
)
