"""Promised results for infinities, NaN and huge values, by operator: the section of
``docs/operators.md``, checked on the devices by
``conformance/differential/test_special_values.py``."""

from __future__ import annotations

from enum import Enum

from webnn_vk.compiler.ops import ALL_OPERATORS, Operator


class Promise(Enum):
    """(name of the group, result)."""

    ELEMENTS = "element-wise", (
        "The formula in IEEE 754 arithmetic. NaN propagates, also through `max`, `min`, `clamp` "
        "and `relu`. A maximum or minimum over a window or dimension is NaN if an element is NaN. "
        "Elements that are only moved keep their bits, but what `where` selects in float16 may be "
        "another NaN"
    )
    SUMS = "sums and products", (
        "A NaN or an infinity makes the result NaN or infinite, as in the sum. The sum is computed "
        "in float32 and in any order. If a partial sum exceeds 3.4e38, the result is an infinity "
        "or NaN, even if the exact result is smaller"
    )
    CONVOLUTIONS = "convolutions", (
        "As for sums. An infinite or NaN tap of the filter over the padding either counts as "
        "0 · ∞ = NaN or is left out. For 3×3 convolutions by Winograd, see below"
    )
    ROWS = "normalised rows", (
        "A NaN or an infinity makes its whole row NaN. In a root mean square normalisation, an "
        "infinity makes the other elements 0. If the sum of squares of a row exceeds 3.4e38 "
        "(numbers beyond ±1.8e19), the row is 0 before scale and bias, as x / √∞ is. It is NaN if "
        "its sum exceeds 3.4e38 too. No other wrong result occurs, and none exceeds √n. Rows in "
        "float16 have no such limit"
    )
    SOFTMAX = "softmax", (
        "−∞ gives 0. A NaN, a +∞, or a row of −∞ alone makes the whole row NaN. Attention contains "
        "a softmax. It may skip values whose weight is 0, even if they are NaN or infinite"
    )
    RECURRENT = "recurrent networks", (
        "As the sums and element-wise operators in the draft's formula, in float32"
    )


_SUMS = frozenset({
    "average_pool2d", "l2_pool2d", "cumulative_sum", "gemm", "matmul", "quantized_matmul",
    "block_matmul",
    "reduce_l1", "reduce_l2", "reduce_log_sum", "reduce_log_sum_exp", "reduce_mean",
    "reduce_product", "reduce_sum", "reduce_sum_square", "resample2d",
})
_BY_LOWERING = {
    "Convolution": Promise.CONVOLUTIONS, "QuantizedConvolution": Promise.CONVOLUTIONS,
    "Normalize": Promise.ROWS, "Attention": Promise.SOFTMAX,
    "Decompose": Promise.RECURRENT, "Recurrence": Promise.RECURRENT,
}


def takes_floats(operator: Operator) -> bool:
    return any(
        set(operator.limit(p.name).types) & {"float32", "float16"} for p in operator.operands
    )


def promise_of(operator: Operator) -> Promise:
    if operator.name in _SUMS:
        return Promise.SUMS
    if operator.name == "softmax":
        return Promise.SOFTMAX
    return _BY_LOWERING.get(type(operator.lowering).__name__, Promise.ELEMENTS)


def section(names: list[str]) -> list[str]:
    """The lines of the section, for the operators called ``names``."""
    lines = [
        "## Infinities, NaN and huge values", "",
        "These results hold on Vulkan, in fused and unfused kernels. "
        "`tests/conformance/differential/test_special_values.py` checks them for every operator. "
        "A device may take denormal float32 numbers (below 1.2e-38) for 0, also between the steps "
        "of a formula: `x · sigmoid(x)` of −88 is then −0. NVIDIA's GPUs do, with driver 580. "
        "Denormal float16 numbers are kept.", "",
        "| | result | operators |", "| --- | --- | --- |",
    ]
    for promise in Promise:
        title, text = promise.value
        operators = [
            f"`{n}`" for n in names
            if takes_floats(ALL_OPERATORS[n]) and promise_of(ALL_OPERATORS[n]) is promise
        ]
        if promise is Promise.ELEMENTS:
            operators = ["all others"]
        lines.append(f"| {title} | {text} | {', '.join(operators)} |")
    lines += [
        "",
        "**Winograd convolution** may be used for `conv2d` with a constant float32 filter of 3×3 "
        "taps, stride 1, no dilation, one group and at least 16 channels. It computes tiles of 2×2 "
        "outputs, or of 4×4 outputs from 64 input channels on. All outputs of a tile are computed "
        "from the same inputs, a square two pixels wider than the tile. Special values in it "
        "therefore affect the whole tile:", "",
        "- An infinity or a NaN makes all outputs of the tile infinite or NaN, even those whose "
        "window doesn't contain it. A number above 1e35 may do the same.",
        "- A huge number costs its neighbours digits. The error of an output is at most "
        "2·n·ε·Σ|w|·max|x| for n products, where max|x| is the largest input of the tile. Beside "
        "3e38, a 1 can become any value, usually 0.",
        "- Other tiles are not affected.", "",
        "Filters that are inputs of the graph never use Winograd convolution.",
    ]
    return lines
