"""Examples of each difference between ONNX's operators and WebNN's (``onnx_definitions``): nodes to
import, and builder calls to export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.onnx_nodes import Draws, Node

DRAWS = Draws(7)
normal = DRAWS.normal
NAN, INFINITE = np.nan, np.inf


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def whole(*values: int, kind: str = "int64") -> np.ndarray:
    return np.array(values, kind)


def node(operator: str, *inputs: Any, opset: int = 17, outputs: int = 1, **attributes: Any) -> Node:
    return Node(operator, inputs, attributes, outputs, "", opset=opset)


@dataclass(frozen=True)
class Call:
    """Builder calls: ``build(builder, operand)`` for the one input."""

    input: np.ndarray
    build: Callable[[Any, Any], Any]


def recurrent(operator: str, gates: int, *more: Any, steps: int = 3, **attributes: Any) -> Node:
    hidden = 3
    return node(
        operator, normal(steps, 2, 4), normal(1, gates * hidden, 4),
        normal(1, gates * hidden, hidden), normal(1, 2 * gates * hidden), *more,
        outputs=3 if operator == "LSTM" else 2, hidden_size=hidden, **attributes,
    )


def cells(method: str, gates: int, **options: Any) -> Call:
    """One step or more of a recurrent network with all of the given options."""
    w, r, peephole = normal(1, gates * 3, 4), normal(1, gates * 3, 3), normal(1, 9)
    state = normal(2, 3)
    looks = options.pop("looks", False)

    def build(b: Any, x: Any) -> Any:
        given = dict(options, **({"peephole_weight": b.constant(peephole)} if looks else {}))
        if not method.endswith("cell"):
            return list(getattr(b, method)(x, b.constant(w), b.constant(r), 3, 3, **given))
        if looks:
            given["peephole_weight"] = b.constant(peephole[0])
        states = [b.constant(state)] * (2 if method == "lstm_cell" else 1)
        made = getattr(b, method)(x, b.constant(w[0]), b.constant(r[0]), *states, 3, **given)
        return list(made) if isinstance(made, (list, tuple)) else [made]

    return Call(normal(2, 4) if method.endswith("cell") else normal(3, 2, 4), build)


_BYTES = DRAWS.byte(2, 6)
_LENGTHS = whole(3, 2, kind="int32")
_IMAGE = normal(1, 2, 5, 6)
_TABLE = normal(3, 4)

IMPORTS: dict[str, list[Node]] = {
    "peepholes": [
        recurrent("LSTM", 4, None, None, None, normal(1, 9)),
        recurrent("LSTM", 4, _LENGTHS, None, None, normal(1, 9)),
        recurrent("LSTM", 4, None, None, None, normal(1, 9), direction="reverse"),
    ],
    "gates of LSTM": [recurrent("LSTM", 4)],
    "gates of GRU": [
        recurrent("GRU", 3), recurrent("GRU", 3, linear_before_reset=1),
        recurrent("GRU", 3, _LENGTHS, direction="reverse"),
    ],
    "clip of cells": [
        recurrent("LSTM", 4, None, None, None, normal(1, 9), clip=0.3, input_forget=1),
        recurrent("GRU", 3, clip=0.3),
        recurrent("GRU", 3, activations=["HardSigmoid", "Softsign"]),
    ],
    "attributes": [node("LeakyRelu", floats(-1, -3, 2).astype("float16"), alpha=0.01, opset=22)],
    "elu": [node("Elu", floats(-1, -30, 2).astype("float16"), alpha=0.3, opset=22)],
    "hard sigmoid": [node("HardSigmoid", floats(1, 0.3, -9).astype("float16"), opset=22)],
    "gelu": [node("Gelu", normal(9) * 3, approximate=a, opset=20) for a in ("none", "tanh")],
    "unsigned": [node("Abs", whole(0, 5, 255, kind="uint8"))],
    "sign": [node("Sign", whole(0, 5, 255, kind="uint8")), node("Sign", floats(-0.0, -2, 3))],
    "neg": [node("Neg", whole(-128, 5, 127, kind="int8"))],
    "relu": [node("Relu", whole(-128, 5, 127, kind="int8"))],
    "bounds": [
        node("Clip", floats(-3, 0, 5), floats(2).reshape(()), floats(1).reshape(())),
        node("Clip", whole(-3, 0, 2**40 + 1), None, np.array(2**40)),
    ],
    "integer quotients": [
        node("Div", whole(-7, 7, -7, 7, kind=k), whole(2, 2, -2, -2, kind=k))
        for k in ("int32", "int64")
    ],
    "powers": [
        node("Pow", whole(3, 7, -2, 2, kind="int32"), floats(19, 2, 3, 0)),
        node("Pow", floats(3, 0.5, -2), whole(4, -2, 3)),
        node("Pow", floats(-8, 0, 0, NAN), floats(1 / 3, 0, -1, 0)),
    ],
    "many operands": [
        node("Max", floats(1, NAN, 3), floats(NAN, 2, 2), floats(0, 1, INFINITE)),
        node("Max", whole(2**53 + 1, -1), whole(2**53, -2)),
    ],
    "least of many": [node("Min", floats(1, NAN, 3), floats(NAN, 2, 2), floats(0, 1, 9))],
    "slopes": [node("PRelu", normal(2, 3, 4), normal(3, 1))],
    "casts": [node("Cast", floats(-1.9, 1.9, -0.5, 254.7, 2**30), to=k) for k in (6, 7)],
    "infinities": [
        node("IsInf", floats(-INFINITE, INFINITE, NAN, 1), detect_negative=n, detect_positive=p,
             opset=20)
        for n, p in ((1, 1), (0, 1), (1, 0))
    ],
    "choice": [node("Where", np.array([True, False]), floats(1, 2), floats(NAN, 4))],
    "no axes": [
        node("ReduceSum", normal(2, 3), whole(), noop_with_empty_axes=n, opset=18) for n in (0, 1)
    ],
    "integer means": [
        node("ReduceMean", whole(2**30, 2**30 + 1, 2**30 + 2, 2**30 + 3, kind="int32")),
        node("ReduceMean", whole(-7, 0, 0, 0, kind="int32")),
    ],
    "last index": [
        node("ArgMax", floats(1, 3, 3, 2), axis=0, select_last_index=i) for i in (0, 1)
    ],
    "first least": [
        node("ArgMin", floats(1, 0, 0, 2), axis=0, select_last_index=i) for i in (0, 1)
    ],
    "unsigned sums": [
        node("CumSum", normal(3, 4), np.array(a), exclusive=e, reverse=r)
        for a, e, r in ((0, 0, 0), (-1, 1, 0), (1, 0, 1), (0, 1, 1))
    ],
    "rows": [node("Softmax", normal(2, 3, 4), axis=1, opset=o) for o in (11, 13)],
    "indices out of range": [node("Gather", _TABLE, whole(-1, 0, -3), axis=0)],
    "fewer indices": [node("GatherElements", _TABLE, whole(2, -1, 0).reshape(1, 3), axis=0)],
    "batches of indices": [
        node("GatherND", normal(2, 3, 4), whole(2, -1).reshape(2, 1), batch_dims=1)
    ],
    "scattered sums": [
        node("ScatterElements", _TABLE, whole(2, -1, 0).reshape(1, 3), normal(1, 3)),
        node("ScatterElements", floats(1, 2, 3), whole(1, 1, -1), floats(5, 6, 7), reduction="add",
             opset=18),
    ],
    "scattered slices": [
        node("ScatterND", _TABLE, whole(1, 1).reshape(2, 1), normal(2, 4), reduction="add",
             opset=18),
        node("ScatterND", _TABLE, whole(-1).reshape(1, 1), normal(1, 4), opset=18),
    ],
    "steps back": [
        node("Slice", _TABLE, whole(-1, 9), whole(-9, -9), whole(0, 1), whole(-2, -1)),
        node("Slice", _TABLE, whole(1), whole(2**62), whole(1), whole(2)),
    ],
    "padding cut off": [
        node("Pad", _TABLE, whole(-1, 2, 1, -2), opset=18),
        node("Pad", _TABLE, whole(1, 2, 1, 0), mode="wrap", opset=19),
        node("Pad", _TABLE, whole(1, 2, 1, 0), mode="reflect", opset=19),
    ],
    "parts": [node("Split", normal(7, 2), num_outputs=3, outputs=3, opset=18)],
    "both expand": [node("Expand", normal(3, 1), whole(2, 1, 4))],
    "kept sizes": [node("Reshape", normal(2, 3, 4), whole(0, -1, 2))],
    "far diagonals": [
        node("Trilu", _TABLE, np.array(k), upper=u) for k in (2**40, -(2**40), 1) for u in (0, 1)
    ],
    "scales of an axis": [
        node("QuantizeLinear", floats(0.5, 1.5, 2.5, 300, -300, 9).reshape(2, 3), floats(1, 0.1),
             whole(0, 7, kind="uint8"), axis=0, opset=19),
    ],
    "int32 zero points": [
        node("DequantizeLinear", whole(2**24 + 1, -5, kind="int32"), floats(0.5).reshape(()),
             opset=19),
        node("DequantizeLinear", _BYTES, floats(0.5, 0.25), whole(3, 9, kind="uint8"), axis=0),
    ],
    "large means": [
        # Without large means: ONNX Runtime's own result loses digits there.
        node("BatchNormalization", normal(2, 3, 4), normal(3), normal(3), normal(3),
             normal(3) ** 2, epsilon=1e-3),
    ],
    "rows of channels": [node("InstanceNormalization", normal(2, 3, 7), normal(3), normal(3))],
    "first axes": [
        node("LayerNormalization", normal(2, 3, 4), normal(4), normal(4), axis=1, epsilon=0.1),
    ],
    "counted padding": [
        node("AveragePool", _IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2],
             count_include_pad=p)
        for p in (0, 1)
    ],
    "padding alone": [
        node("MaxPool", _IMAGE, kernel_shape=[2, 3], strides=[2, 2], storage_order=s, outputs=2)
        for s in (0, 1)
    ],
    "other norms": [
        node("LpPool", _IMAGE, kernel_shape=[2, 2], p=p, opset=18) for p in (1, 2, 3)
    ],
    "vectors": [node("MatMul", normal(4), normal(4, 3)), node("MatMul", normal(2, 3, 4), normal(4)),
                node("MatMul", whole(2**40, 3).reshape(1, 2), whole(3, -1).reshape(2, 1))],
    "integer matrices": [
        node("Gemm", normal(3, 2), normal(4, 3), normal(4), transA=1, transB=1, alpha=0.5, beta=2.0)
    ],
    "same padding": [
        node("Conv", _IMAGE, normal(3, 2, 2, 3), auto_pad=p, strides=[2, 2])
        for p in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ] + [node("Conv", normal(1, 2, 7), normal(3, 2, 3), dilations=[2])],
    "upsampling": [
        node("ConvTranspose", _IMAGE, normal(2, 3, 3, 3), output_shape=[11, 12], strides=[2, 2]),
        node("ConvTranspose", normal(1, 2, 5), normal(2, 3, 3), strides=[2], output_padding=[1]),
    ],
    "corners": [
        node("Resize", _IMAGE, None, None, whole(1, 2, *size), mode=mode, opset=19,
             coordinate_transformation_mode=way, **({"nearest_mode": near} if near else {}))
        for size in ((7, 9), (3, 4), (10, 12))
        for mode, way, near in (
            ("nearest", "half_pixel", "round_prefer_floor"),
            ("nearest", "half_pixel", "round_prefer_ceil"), ("nearest", "asymmetric", "floor"),
            ("nearest", "asymmetric", "ceil"), ("nearest", "align_corners", "round_prefer_floor"),
            ("linear", "half_pixel", ""), ("linear", "align_corners", ""),
            ("linear", "asymmetric", ""), ("linear", "pytorch_half_pixel", ""),
            ("cubic", "half_pixel", ""),
        )
    ],
}

_COUNTS = whole(7, -7, 0, -(2**31), kind="int32")
EXPORTS: dict[str, list[Call]] = {
    "peepholes": [cells("lstm", 4, looks=True), cells("lstm_cell", 4, looks=True)],
    "gates of LSTM": [cells("lstm", 4, layout="ifgo", return_sequence=True)],
    "gates of GRU": [cells("gru", 3, layout=name, reset_after=after)
                     for name in ("rzn", "zrn") for after in (True, False)],
    "one step": [cells("lstm_cell", 4, layout="ifgo")],
    "one step of GRU": [cells("gru_cell", 3, layout="rzn", reset_after=False)],
    "elu": [Call(normal(9), lambda b, x: b.elu(x, alpha=0.3))],
    "relu": [Call(_COUNTS, lambda b, x: b.relu(x))],
    "bounds": [Call(whole(-3, 0, 2**40 + 1), lambda b, x: b.clamp(x, max_value=2**40))],
    "integer quotients": [
        Call(_COUNTS, lambda b, x, by=by: b.div(x, b.constant(whole(*by, kind="int32"))))
        for by in ((2, 2, 0, -1), (0, -2, 3, 5))
    ],
    "powers": [Call(whole(3, -7, 2, kind="int32"), lambda b, x: b.pow(
        x, b.constant(whole(21, 21, 21, kind="int32"))))],
    "slopes": [Call(normal(3), lambda b, x: b.prelu(x, b.constant(_TABLE[:, :3])))],
    "infinities": [Call(floats(INFINITE, -INFINITE, NAN, 1), lambda b, x: b.is_infinite(x))],
    "not equal": [Call(floats(NAN, 1, 2), lambda b, x: b.not_equal(x, x))],
    "choice": [Call(whole(0, 1, 7, kind="uint8"), lambda b, x: b.where(
        x, b.constant(floats(1, 2, 3)), b.constant(floats(4, 5, 6))))],
    "affine": [Call(normal(9), lambda b, x: b.linear(x, alpha=0.3, beta=2))],
    "no axes": [Call(normal(2, 3), lambda b, x: [b.reduce_sum(x, axes=[]), b.reduce_l2(x, axes=[]),
                                                 b.reduce_sum(x)])],
    "last index": [Call(floats(1, 3, 3, 2), lambda b, x: b.arg_max(x, 0))],
    "first least": [Call(whole(9, 2**32 - 1, 1, 1, kind="uint32"), lambda b, x: b.arg_min(x, 0))],
    "unsigned sums": [Call(whole(9, 2**32 - 1, 5, kind="uint32"), lambda b, x: b.cumulative_sum(
        x, 0, exclusive=True))],
    "indices out of range": [Call(_TABLE, lambda b, x: b.gather(
        x, b.constant(whole(-9, 9, -1, kind="int32"))))],
    "fewer indices": [Call(_TABLE, lambda b, x: b.gather_elements(
        x, b.constant(whole(-9, 9, -1, 1, kind="int32").reshape(1, 4))))],
    "batches of indices": [Call(_TABLE, lambda b, x: b.gather_nd(
        x, b.constant(whole(-9, 9, -1, 1, kind="int32").reshape(2, 2))))],
    "reversed": [Call(_TABLE, lambda b, x: b.reverse(x, axes=[1]))],
    "both expand": [Call(normal(3, 1), lambda b, x: b.expand(x, [2, 3, 4]))],
    "scales of an axis": [Call(floats(0.5, 1.5, 2.5, 300, -300, 9), lambda b, x: b.quantize_linear(
        x, b.constant(floats(1)), b.constant(whole(3, kind="uint8"))))],
    "int32 zero points": [Call(whole(2**24 + 1, -5, kind="int32"), lambda b, x: b.dequantize_linear(
        x, b.constant(floats(0.5)), b.constant(whole(2**24, kind="int32"))))],
    "large means": [Call(normal(2, 3) + 1000, lambda b, x: b.batch_normalization(
        x, b.constant(floats(1000, 1001, 999)), b.constant(floats(1, 2, 3))))],
    "first axes": [Call(normal(2, 3, 4), lambda b, x: [
        b.layer_normalization(x, axes=[0]), b.layer_normalization(x, axes=[])])],
    "counted padding": [Call(_IMAGE, lambda b, x: b.average_pool2d(
        x, window_dimensions=[2, 2], padding=[1, 2, 2, 1], strides=[2, 2]))],
    "padding alone": [Call(_IMAGE, lambda b, x: b.max_pool2d(
        x, window_dimensions=[2, 2], padding=[2, 2, 2, 2]))],
    "other norms": [Call(_IMAGE, lambda b, x: b.l2_pool2d(
        x, window_dimensions=[2, 2], padding=[1, 0, 1, 0]))],
    "corners": [
        Call(_IMAGE, lambda b, x, m=m, n=n: b.resample2d(x, mode=m, sizes=n, axes=[2, 3]))
        for m in ("nearest-neighbor", "linear") for n in ([7, 9], [3, 4], [10, 12])
    ],
}
