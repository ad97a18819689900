"""Differences between operators of ONNX and WebNN: for the table in docs/onnx.md and for
tests/unit/onnx/test_differences.py, which shows each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: Operators that have the same definition, besides the ones in ``onnx_pairs``.
SAME = {
    "Concat": "concat", "Identity": "identity", "IsNaN": "is_nan", "Not": "logical_not",
    "Tile": "tile", "Transpose": "transpose",
}


@dataclass(frozen=True)
class Difference:
    """A difference between the definitions of ``onnx`` and ``webnn``; ``key`` names it and its
    test."""

    key: str
    onnx: str
    webnn: str
    says: str


DIFFERENCES = tuple(Difference(*row) for row in (
    ("peepholes", "LSTM", "lstm", "the output gate's peephole reads the new cell state; in WebNN "
     "the old one"),
    ("gates of LSTM", "LSTM", "lstm", "the gate order is always input, output, forget, cell; "
     "WebNN has two orders"),
    ("gates of GRU", "GRU", "gru", "the gate order is always update, reset, new; WebNN has two "
     "orders"),
    ("clip of cells", "LSTM", "lstm", "also `clip`, `input_forget`, sequence lengths and other "
     "activations"),
    ("one step", "LSTM", "lstm_cell", "only whole sequences"),
    ("one step of GRU", "GRU", "gru_cell", "only whole sequences"),
    ("attributes", "LeakyRelu", "leaky_relu", "attributes are float32; WebNN rounds them to the "
     "operand's type. The same for Elu, HardSigmoid and others"),
    ("elu", "Elu", "elu", "as LeakyRelu"),
    ("hard sigmoid", "HardSigmoid", "hard_sigmoid", "as LeakyRelu"),
    ("gelu", "Gelu", "gelu", "also `approximate`; WebNN has only the exact function"),
    ("unsigned", "Abs", "abs", "also unsigned integers. The same for Sign"),
    ("sign", "Sign", "sign", "as Abs"),
    ("neg", "Neg", "neg", "the smallest integer stays unchanged in both; also int8 in ONNX "
     "Runtime"),
    ("relu", "Relu", "relu", "also int16, which ONNX Runtime lacks"),
    ("bounds", "Clip", "clamp", "a lower bound above the upper one gives the upper one; WebNN "
     "refuses it. Bounds may be computed"),
    ("integer quotients", "Div", "div", "division by 0 is undefined; WebNN gives 0. In WebNN the "
     "smallest integer divided by −1 stays unchanged"),
    ("powers", "Pow", "pow", "types may differ; overflow is undefined, in WebNN integers wrap "
     "around"),
    ("many operands", "Max", "max", "any number of operands; also 16-bit types"),
    ("least of many", "Min", "min", "as Max"),
    ("slopes", "PRelu", "prelu", "the slope is broadcast to the input; in WebNN both are broadcast "
     "to each other"),
    ("casts", "Cast", "cast", "a float that doesn't fit the integer type is undefined; WebNN wraps "
     "it around. Both round towards zero"),
    ("infinities", "IsInf", "is_infinite", "can test for one sign only"),
    ("not equal", "Equal", "not_equal", "expressed as Not of Equal"),
    ("choice", "Where", "where", "the condition is bool; in WebNN uint8, where all but 0 is true"),
    ("affine", "Mul", "linear", "expressed as two operators"),
    ("no axes", "ReduceSum", "reduce_sum", "no axes means all axes, or none with "
     "`noop_with_empty_axes`; in WebNN an empty list means none"),
    ("integer means", "ReduceMean", "reduce_mean", "also integers, rounded towards zero; WebNN has "
     "only floats. The same for ReduceL2, ReduceLogSum, ReduceLogSumExp"),
    ("last index", "ArgMax", "arg_max", "also `select_last_index`; results are int64"),
    ("first least", "ArgMin", "arg_min", "as ArgMax"),
    ("unsigned sums", "CumSum", "cumulative_sum", "only signed integers in ONNX Runtime"),
    ("rows", "Softmax", "softmax", "before opset 13 over all axes from one axis on"),
    ("indices out of range", "Gather", "gather", "indices out of range are an error; WebNN clamps "
     "them"),
    ("fewer indices", "GatherElements", "gather_elements", "other dimensions may be shorter than "
     "the input's; out of range as Gather"),
    ("batches of indices", "GatherND", "gather_nd", "also `batch_dims`; out of range as Gather"),
    ("scattered sums", "ScatterElements", "scatter_elements", "also `reduction` and shorter "
     "dimensions"),
    ("scattered slices", "ScatterND", "scatter_nd", "also `reduction`"),
    ("steps back", "Slice", "slice", "also negative steps and ends beyond the input"),
    ("reversed", "Slice", "reverse", "expressed as a Slice with steps of −1"),
    ("padding cut off", "Pad", "pad", "also negative amounts and the mode `wrap`"),
    ("parts", "Split", "split", "also `num_outputs`: the last part may be shorter"),
    ("both expand", "Expand", "expand", "a 1 in the new shape keeps the input's size"),
    ("kept sizes", "Reshape", "reshape", "0 keeps a size, −1 infers it"),
    ("far diagonals", "Trilu", "triangular", "the diagonal is a 64-bit integer"),
    ("scales of an axis", "QuantizeLinear", "quantize_linear", "also a list of scales along an "
     "axis, and 4- and 16-bit types; NaN is undefined, in WebNN 0"),
    ("int32 zero points", "DequantizeLinear", "dequantize_linear", "no zero point for int32"),
    ("large means", "BatchNormalization", "batch_normalization", "runtimes reduce it to one factor "
     "and one addend, which loses digits, so the exporter writes it in parts. Also the inputs of "
     "training"),
    ("rows of channels", "InstanceNormalization", "instance_normalization", "any rank; in WebNN 4"),
    ("first axes", "LayerNormalization", "layer_normalization", "the last axes; in WebNN any axes "
     "or none. Scales are broadcast"),
    ("counted padding", "AveragePool", "average_pool2d", "also `count_include_pad` and 1 to 3 "
     "dimensions"),
    ("padding alone", "MaxPool", "max_pool2d", "a window that lies only in the padding is "
     "undefined; WebNN gives 0. Also indices"),
    ("other norms", "LpPool", "l2_pool2d", "any p; in WebNN 2"),
    ("vectors", "MatMul", "matmul", "also vectors and integers"),
    ("integer matrices", "Gemm", "gemm", "also integers"),
    ("same padding", "Conv", "conv2d", "also `auto_pad` and 1 to 3 dimensions"),
    ("upsampling", "ConvTranspose", "conv_transpose2d", "also `output_shape` and 1 to 3 "
     "dimensions"),
    ("corners", "Resize", "resample2d", "all coordinate transformations; WebNN has half_pixel. "
     "Integers are interpolated in float32 and rounded to the nearest"),
))


def all_records() -> list[Any]:
    """Every record of an ONNX operator, by domain, name and opset."""
    import webnn_vk.onnx  # noqa: F401  (fills the table of records)
    from webnn_vk.onnx.records import _RECORDS

    return sorted(
        (r for records in _RECORDS.values() for r in records),
        key=lambda r: (r.domain, r.name, r.first),
    )
