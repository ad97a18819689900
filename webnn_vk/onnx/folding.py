"""Small values that are known at import are computed then, by ONNX's reference implementation.

This is what makes shape arithmetic (Shape, Gather, Concat, Range …) disappear. Only operators whose
result has a size that is known from their inputs are evaluated, so that a hostile model can't
ask for much.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .nodes import NodeCall

#: Elements that are read and made at most; larger constants are left to the graph's compiler.
MAX_ELEMENTS = 1 << 18
#: The same for operators that the reference computes element by element in Python.
_MAX_LOOPED = 1 << 12

#: Operators whose results are views, or no larger than their inputs; weights are folded, too.
_VIEWS = {"Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Slice", "Flatten", "Split"}
_ELEMENTWISE = {
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift",
    "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Clip",
    "Cos", "Cosh",
    "DequantizeLinear", "Div", "Equal", "Erf", "Exp", "Floor", "Greater", "GreaterOrEqual", "IsInf",
    "IsNaN", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "Not", "Or",
    "Pow", "QuantizeLinear", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh",
    "Sqrt", "Sub", "Sum", "Tan", "Tanh", "Where", "Xor",
}
#: Others whose result is no larger than all that is read.
_SHRINKING = {
    "ArgMax", "ArgMin", "Compress", "Concat", "CumSum", "NonZero", "ReduceL1", "ReduceL2",
    "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ScatterND", "Shape", "Size", "Trilu",
}
# Not ReduceSumSquare: the reference's sums of int32 are int64.
# Not GatherElements: the reference's takes forever for indices far outside.
_LOOPED = {"GatherND", "ScatterElements", "TopK", "Unique"}


def evaluate(node: NodeCall, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray] | None:
    """The node's outputs, or None where they are better, or only, computed by the graph."""
    if node.domain != "":
        return None
    present = [x for x in inputs if x is not None]
    if any(x.dtype.kind in "OSU" for x in present):
        return None
    if node.attributes.get("num_outputs", len(node.outputs)) != len(node.outputs):
        return None  # a split, which the reference would make a list of that length for
    try:
        if node.operator not in _VIEWS and not _small(node, present):
            return None
        return run(node, inputs)
    except Exception:
        # The reference has gaps; the graph's own way is tried then, and says what is wrong.
        return None


def _small(node: NodeCall, inputs: list[np.ndarray]) -> bool:
    name = node.operator
    read = sum(x.size for x in inputs)
    if name in _LOOPED:
        return read <= _MAX_LOOPED
    if name in _SHRINKING:
        return read * max(1, *(x.ndim for x in inputs), 1) <= MAX_ELEMENTS
    if name in _ELEMENTWISE:
        shape = np.broadcast_shapes(*(x.shape for x in inputs if name not in _BLOCKWISE))
        return max(read, math.prod(shape)) <= MAX_ELEMENTS
    made = _GROWING[name](node, inputs) if name in _GROWING else math.inf
    return max(read, made) <= MAX_ELEMENTS


_BLOCKWISE = {"DequantizeLinear", "QuantizeLinear"}


def _product(lengths: Any) -> float:
    """Elements of a shape given as a tensor, as a float that can't overflow."""
    return float(np.prod(np.maximum(np.abs(np.asarray(lengths, np.float64)), 1)))


def _padded(node: NodeCall, inputs: list[np.ndarray]) -> float:
    pads = inputs[1] if len(inputs) > 1 else np.asarray(node.attributes.get("pads", ()))
    extra = float(np.abs(np.asarray(pads, np.float64)).sum())
    return math.prod(d + extra for d in inputs[0].shape)


def _counted(node: NodeCall, inputs: list[np.ndarray]) -> float:
    start, limit, step = (float(x.reshape(())) for x in inputs)
    return abs((limit - start) / step) + 1


def _gathered(node: NodeCall, inputs: list[np.ndarray]) -> float:
    data, indices = inputs[0], inputs[1]
    return data.size * max(1, indices.size) / max(1, min(data.shape, default=1))


#: Operators whose result may be larger than what is read, and how large at most.
_GROWING: dict[str, Callable[[NodeCall, list[np.ndarray]], float]] = {
    "ConstantOfShape": lambda node, x: _product(x[0]),
    "Expand": lambda node, x: _product(x[1]) * max(1, x[0].size),
    "Tile": lambda node, x: _product(x[1]) * max(1, x[0].size),
    "OneHot": lambda node, x: _product(x[1]) * max(1, x[0].size),
    "Pad": _padded,
    "Range": _counted,
    "Gather": _gathered,
    "MelWeightMatrix": lambda node, x: _product(x[0]) * _product(x[1]),
}


def run(node: NodeCall, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """The node's outputs as ONNX's reference implementation computes them. It raises anything."""
    axes = node.attributes.get("axes")
    if axes and node.operator in ("Squeeze", "Unsqueeze"):
        # The reference takes one axis after the other, and each counts in what the last one made.
        change: Any = np.squeeze if node.operator == "Squeeze" else np.expand_dims
        return [change(inputs[0], tuple(axes))]
    # A fifth of a second that models without shape arithmetic don't need.
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.ops import load_op

    kind: Any = load_op(node.domain, node.operator, node.version)
    runner = kind(
        node.proto,
        {
            "log": lambda *_: None,
            "opsets": {node.domain: node.version},
            "verbose": 0,
            "new_ops": None,
            "existing_functions": {},
            "evaluator_cls": ReferenceEvaluator,
        },
    )
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = runner.run(*inputs)
    made = [np.asarray(r) for r in results]
    if any(r.dtype.kind in "OSUV" and r.dtype.name == "object" for r in made):
        raise TypeError("not an array")
    return made
