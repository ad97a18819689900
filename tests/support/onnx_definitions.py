"""Differences between operators of ONNX and WebNN: for the table in docs/onnx.md and for
tests/device/onnx/test_differences.py, which shows each of them."""

from __future__ import annotations

from dataclasses import dataclass

#: Operators besides those of ``onnx_pairs`` that have one definition.
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
    ("peepholes", "LSTM", "lstm", "the output gate sees the new state of the cell; WebNN's the "
     "old one"),
    ("gates of LSTM", "LSTM", "lstm", "the order is input, output, forget, cell; WebNN has two"),
    ("gates of GRU", "GRU", "gru", "the order is update, reset, new; WebNN has two"),
    ("clip of cells", "LSTM", "lstm", "`clip`, `input_forget`, lengths and other activations, "
     "which WebNN lacks"),
    ("one step", "LSTM", "lstm_cell", "ONNX has sequences only"),
    ("one step of GRU", "GRU", "gru_cell", "ONNX has sequences only"),
    ("attributes", "LeakyRelu", "leaky_relu", "numbers are float32; WebNN's are rounded to the "
     "operand's type. So are those of Elu, HardSigmoid and others"),
    ("elu", "Elu", "elu", "as LeakyRelu"),
    ("hard sigmoid", "HardSigmoid", "hard_sigmoid", "as LeakyRelu"),
    ("gelu", "Gelu", "gelu", "`approximate`: WebNN has the exact one only"),
    ("unsigned", "Abs", "abs", "unsigned integers, which WebNN lacks; Sign and Relu too"),
    ("sign", "Sign", "sign", "as Abs"),
    ("neg", "Neg", "neg", "the least integer stays what it is in both; ONNX Runtime's int8 too"),
    ("relu", "Relu", "relu", "as Abs; ONNX's integers are few"),
    ("bounds", "Clip", "clamp", "a lower bound above the upper one gives the upper one; WebNN "
     "refuses it. Bounds may be computed"),
    ("integer quotients", "Div", "div", "by 0 nothing is said; WebNN gives 0. The least number by "
     "−1 stays what it is in WebNN"),
    ("powers", "Pow", "pow", "types may differ; what overflows is left open, in WebNN integers "
     "wrap around"),
    ("many operands", "Max", "max", "any number of operands, and types of 16 bits"),
    ("least of many", "Min", "min", "as Max"),
    ("slopes", "PRelu", "prelu", "the slope broadcasts to the input; WebNN's one to the other"),
    ("casts", "Cast", "cast", "a float that the integer type can't hold is left open; WebNN wraps "
     "it around. Both round to zero"),
    ("infinities", "IsInf", "is_infinite", "one sign alone may be asked for"),
    ("not equal", "Equal", "not_equal", "ONNX has it as Not of Equal"),
    ("choice", "Where", "where", "the condition is bool; WebNN's uint8, of which all but 0 hold"),
    ("affine", "Mul", "linear", "ONNX has two operators"),
    ("no axes", "ReduceSum", "reduce_sum", "no axes are all axes, or with `noop_with_empty_axes` "
     "none; WebNN's empty list is none"),
    ("integer means", "ReduceMean", "reduce_mean", "integers, rounded to zero; WebNN has floats "
     "only. So ReduceL2, ReduceLogSum, ReduceLogSumExp"),
    ("last index", "ArgMax", "arg_max", "`select_last_index`; results are int64"),
    ("first least", "ArgMin", "arg_min", "as ArgMax"),
    ("unsigned sums", "CumSum", "cumulative_sum", "ONNX Runtime has signed ones only"),
    ("rows", "Softmax", "softmax", "before opset 13 along all axes from one on"),
    ("indices out of range", "Gather", "gather", "an error; WebNN clamps them"),
    ("fewer indices", "GatherElements", "gather_elements", "other dimensions may be shorter than "
     "the input's; out of range as Gather"),
    ("batches of indices", "GatherND", "gather_nd", "`batch_dims`; out of range as Gather"),
    ("scattered sums", "ScatterElements", "scatter_elements", "`reduction`; shorter dimensions"),
    ("scattered slices", "ScatterND", "scatter_nd", "`reduction`"),
    ("steps back", "Slice", "slice", "negative steps, ends beyond the input"),
    ("reversed", "Slice", "reverse", "ONNX has a Slice with steps of −1"),
    ("padding cut off", "Pad", "pad", "negative amounts and `wrap`"),
    ("parts", "Split", "split", "`num_outputs`: the last part may be shorter"),
    ("both expand", "Expand", "expand", "a new dimension of 1 keeps the input's"),
    ("kept sizes", "Reshape", "reshape", "0 keeps a size, −1 infers it"),
    ("far diagonals", "Trilu", "triangular", "diagonals of 64 bits"),
    ("scales of an axis", "QuantizeLinear", "quantize_linear", "a list of scales for an axis, "
     "types of 4 and 16 bits; NaN is left open, in WebNN 0"),
    ("int32 zero points", "DequantizeLinear", "dequantize_linear", "int32 has no zero point"),
    ("large means", "BatchNormalization", "batch_normalization", "runtimes make it one factor "
     "and one addend, which loses digits: the exporter writes it in parts. Inputs of training"),
    ("rows of channels", "InstanceNormalization", "instance_normalization", "any rank; WebNN: 4"),
    ("first axes", "LayerNormalization", "layer_normalization", "the last axes; WebNN's are any, "
     "or none. Scales broadcast"),
    ("counted padding", "AveragePool", "average_pool2d", "`count_include_pad`, 1 to 3 dimensions"),
    ("padding alone", "MaxPool", "max_pool2d", "a window in the padding alone is left open; WebNN "
     "gives 0. Indices, which WebNN lacks"),
    ("other norms", "LpPool", "l2_pool2d", "any p; WebNN has 2"),
    ("vectors", "MatMul", "matmul", "vectors and integers"),
    ("integer matrices", "Gemm", "gemm", "integers"),
    ("same padding", "Conv", "conv2d", "`auto_pad`, 1 to 3 dimensions"),
    ("upsampling", "ConvTranspose", "conv_transpose2d", "`output_shape`, 1 to 3 dimensions"),
    ("corners", "Resize", "resample2d", "all ways of counting positions, WebNN's being half_pixel; "
     "integers are interpolated in float32, as ONNX Runtime does"),
))
