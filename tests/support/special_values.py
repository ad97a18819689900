"""What is promised of infinities, NaN and huge values, by operator: the section of
``docs/operators.md``, and what ``conformance/differential/test_special_values.py`` holds the
devices to."""

from __future__ import annotations

from enum import Enum

from webnn_vk.compiler.ops import ALL_OPERATORS, Operator


class Promise(Enum):
    """(what it is called, what comes out)."""

    ELEMENTS = "element by element", (
        "as IEEE 754 arithmetic has it for the formula. A NaN stays one, in `max`, `min`, `clamp` "
        "and `relu` too; maxima and minima over windows and dimensions are NaN where an element "
        "is. What is only moved keeps its bits"
    )
    SUMS = "sums and products", (
        "of a NaN or an infinity what the sum has: NaN, or the infinity. The sum is in float32 and "
        "in any order: where a part of it passes 3.4e38, an infinity or NaN comes out, though the "
        "exact result may be smaller"
    )
    CONVOLUTIONS = "convolutions", (
        "as for sums. An infinite or NaN tap of the filter over the padding counts as 0 · ∞ = NaN "
        "or is left out. 3×3 convolutions by Winograd's tiles: see below"
    )
    ROWS = "normalised rows", (
        "a NaN or an infinity makes all of its row NaN (by the root mean square, an infinity makes "
        "the others 0). A row whose sum of squares passes 3.4e38 (numbers beyond ±1.8e19) is 0 "
        "before scale and bias, as x / √∞ is, and NaN where its sum does. No other number comes "
        "out, and none above √n. Rows in float16 have no such limit"
    )
    SOFTMAX = "softmax", (
        "−∞ gives 0. A NaN, a +∞, or nothing but −∞ makes all of the row NaN. Attention, which has "
        "a softmax inside, may leave out values whose weight is 0, NaN and infinities too"
    )
    RECURRENT = "recurrent networks", (
        "as the sums and element-wise operators of the draft's formula, in float32"
    )


_SUMS = frozenset({
    "average_pool2d", "l2_pool2d", "cumulative_sum", "gemm", "matmul", "quantized_matmul",
    "reduce_l1", "reduce_l2", "reduce_log_sum", "reduce_log_sum_exp", "reduce_mean",
    "reduce_product", "reduce_sum", "reduce_sum_square", "resample2d",
})
_BY_LOWERING = {
    "Convolution": Promise.CONVOLUTIONS, "QuantizedConvolution": Promise.CONVOLUTIONS,
    "Normalize": Promise.ROWS, "Softmax": Promise.SOFTMAX, "Attention": Promise.SOFTMAX,
    "Decompose": Promise.RECURRENT,
}


def takes_floats(operator: Operator) -> bool:
    return any(
        set(operator.limit(p.name).types) & {"float32", "float16"} for p in operator.operands
    )


def promise_of(operator: Operator) -> Promise:
    if operator.name in _SUMS:
        return Promise.SUMS
    return _BY_LOWERING.get(type(operator.lowering).__name__, Promise.ELEMENTS)


def section(names: list[str]) -> list[str]:
    """The section's lines, of the operators called ``names``."""
    lines = [
        "## Infinities, NaN and huge values", "",
        "On Vulkan, fused or not; `tests/conformance/differential/test_special_values.py` holds "
        "every operator to it. Denormal float32 numbers (below 1.2e-38) may be taken and given as "
        "0, float16's are kept.", "",
        "| | what comes out | operators |", "| --- | --- | --- |",
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
        "Winograd's tiles compute `conv2d` of constant float32 filters with 3×3 taps, stride 1, "
        "no dilation, one group and 16 channels or more (tiles of 2×2 outputs; of 4×4 from 64 "
        "input channels on). A tile's outputs share their inputs, a square two pixels wider than "
        "the tile, so what one output of it sees reaches the others: an infinity or a NaN makes "
        "all outputs of a tile infinite or NaN, also those whose window doesn't hold it, and so "
        "may a number above 1e35. A huge number takes digits from its neighbours: an output's "
        "error is at most 2·n·ε·Σ|w|·max|x|, the largest |x| of its tile's inputs counting for "
        "all n of its products, so beside 3e38 a 1 comes out as anything, mostly 0. Other tiles "
        "are not touched. With a filter that is an input of the graph nothing is computed so.",
    ]
    return lines
