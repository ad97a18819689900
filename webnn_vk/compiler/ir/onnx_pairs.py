"""Operators with one definition in ONNX and in WebNN, under both names: importer and exporter use
these tables."""

from __future__ import annotations

#: One operand, the same function: WebNN's name by ONNX's.
UNARY = {
    "Ceil": "ceil", "Cos": "cos", "Erf": "erf", "Exp": "exp", "Floor": "floor", "HardSwish":
    "hard_swish", "Log": "log", "Reciprocal": "reciprocal", "Round": "round_even", "Sigmoid":
    "sigmoid", "Sin": "sin", "Softplus": "softplus", "Softsign": "softsign", "Sqrt": "sqrt",
    "Tan": "tan", "Tanh": "tanh",
}
#: Two operands, the same function of elements.
ARITHMETIC = {"Add": "add", "Sub": "sub", "Mul": "mul"}
COMPARISONS = {
    "Equal": "equal", "Greater": "greater", "GreaterOrEqual": "greater_or_equal",
    "Less": "lesser", "LessOrEqual": "lesser_or_equal",
}
LOGIC = {"And": "logical_and", "Or": "logical_or", "Xor": "logical_xor"}
#: Reductions along axes that are given, of floats.
REDUCTIONS = {
    "ReduceL1": "reduce_l1", "ReduceL2": "reduce_l2", "ReduceLogSum": "reduce_log_sum",
    "ReduceLogSumExp": "reduce_log_sum_exp", "ReduceMax": "reduce_max", "ReduceMean": "reduce_mean",
    "ReduceMin": "reduce_min", "ReduceProd": "reduce_product", "ReduceSum": "reduce_sum",
    "ReduceSumSquare": "reduce_sum_square",
}
#: Directions of recurrent networks, and their activations that WebNN has.
DIRECTIONS = {"forward": "forward", "reverse": "backward", "bidirectional": "both"}
ACTIVATIONS = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh"}
