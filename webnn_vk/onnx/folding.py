"""What is known at import is computed at import: ONNX's reference implementation, on small values.

This is what makes shape arithmetic (Shape, Gather, Concat, Range …) disappear. Only operators whose
result has a size that can be told from their inputs are evaluated, so that a hostile model can't
ask for much.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops import load_op

from .nodes import NodeCall

#: Elements that are read and made at most; larger constants are left to the graph's compiler.
MAX_ELEMENTS = 1 << 18
#: Results that are views or no larger than what is read: those of weights too.
_VIEWS = {"Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Slice", "Flatten", "Split"}
#: Never evaluated: random, or with graphs inside.
_LEFT_OUT = {
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
    "Bernoulli", "If", "Loop", "Scan", "SequenceMap", "ImageDecoder", "Dropout",
}


def evaluate(node: NodeCall, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray] | None:
    """The node's outputs, or None where they are better, or only, computed by the graph."""
    if node.domain != "" or node.operator in _LEFT_OUT:
        return None
    present = [x for x in inputs if x is not None]
    if node.operator not in _VIEWS:
        bound = _bound(node, present)
        if bound is None or bound > MAX_ELEMENTS:
            return None
    if any(x.dtype.kind in "OSU" for x in present):
        return None
    try:
        return _run(node, inputs)
    except Exception:
        # The reference has gaps; the graph's own way is tried then, and says what is wrong.
        return None


def _bound(node: NodeCall, inputs: list[np.ndarray]) -> int | None:
    """A bound on elements read and made, or None when it can't be told."""
    read = sum(x.size for x in inputs)
    name, attributes = node.operator, node.attributes

    def product(x: Any) -> int:
        total = 1
        for d in np.asarray(x).reshape(-1).tolist():
            total *= max(1, abs(int(d)))
        return total

    if name in ("ConstantOfShape",):
        return product(inputs[0])
    if name == "Expand":
        return product(inputs[1]) * max(1, inputs[0].size)
    if name == "Tile":
        return product(inputs[1]) * max(1, inputs[0].size)
    if name == "Range":
        start, limit, step = (float(x.reshape(())) for x in inputs)
        return None if step == 0 else int(max(0.0, (limit - start) / step)) + 1
    if name == "Pad":
        pads = inputs[1] if len(inputs) > 1 else np.asarray(attributes.get("pads", ()))
        total = 1
        for d in inputs[0].shape:
            total *= d + int(np.abs(pads).sum())
        return total
    if name == "OneHot":
        return product(inputs[1]) * max(1, inputs[0].size)
    if name in ("BlackmanWindow", "HammingWindow", "HannWindow"):
        return product(inputs[0])
    if name == "MelWeightMatrix":
        return product(inputs[0]) * product(inputs[1])
    if name in ("Resize", "Upsample", "Col2Im", "DFT", "STFT", "GridSample", "AffineGrid"):
        return None
    if name in ("MatMul", "Einsum", "Conv", "ConvTranspose", "Gemm"):
        return None
    if name in ("Gather", "GatherND"):
        data, indices = inputs[0], inputs[1]
        return read + data.size * max(1, indices.size) // max(1, min(data.shape, default=1))
    if name in ("EyeLike", "CenterCropPad"):
        return max(read, product(inputs[-1]) if name == "CenterCropPad" else read)
    try:
        return max(read, product(np.broadcast_shapes(*(x.shape for x in inputs))))
    except ValueError:
        return read


def _run(node: NodeCall, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
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
