"""Random graphs built from parts of networks, as exporters write them, so that passes find
patterns: weights large enough to be packed, convolutions and their epilogues, products of one
operand, attention, written-out normalisations and activations, dequantised weights, parts of a
concat. Floats stay within a few units and are only operands of continuous operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.conformance.differential.graphs import RandomGraph, Step
from webnn_vk.compiler.ir import Emitter, Value

_CHANNELS = (16, 24, 64, 64)
_ACTIVATIONS = ("relu", "tanh", "hard_swish", "gelu", "leaky_relu", "clamp", "sigmoid")


class _Drawing:
    """A graph being drawn. Values are numbers: sources ~0, ~1, …, results 0, 1, …; the emitter
    knows their shapes."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.data_type = self.choose(("float32", "float32", "float32", "float16"))
        self.emit = Emitter()
        self.known: dict[int, Value] = {}
        self.sources: list[np.ndarray] = []
        self.constant: set[int] = set()
        self.steps: list[Step] = []
        self.results = 0

    def choose(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def shape(self, value: int) -> tuple[int, ...]:
        return self.known[value].shape

    # -- sources
    def source(self, array: np.ndarray, constant: bool) -> int:
        number = len(self.sources)
        self.sources.append(array)
        if constant:
            self.constant.add(number)
        self.known[~number] = Value(self.emit.constant(array).descriptor, name=f"x{number}")
        return ~number

    def floats(self, shape: tuple[int, ...], size: float = 2.0, *, constant: bool = False) -> int:
        array = self.rng.uniform(-size, size, shape)
        return self.source(np.asarray(array).astype(self.data_type), constant)

    def weight(self, shape: tuple[int, ...], terms: int) -> int:
        """Weights for sums of this many terms, such that the sum is about as large as a term;
        sometimes an input."""
        constant = self.choose((True, True, True, False))
        return self.floats(shape, 1.5 / math.sqrt(terms), constant=constant)

    def number(self, number: float) -> int:
        return self.source(np.asarray(number, self.data_type), True)

    # -- results
    def step(self, operator: str, *operands: Any, named: dict[str, int] | None = None,
             **arguments: Any) -> Any:
        named = named or {}
        values = [
            [self.known[i] for i in x] if isinstance(x, tuple) else self.known[x] for x in operands
        ]
        made = getattr(self.emit, operator)(
            *values, **{name: self.known[i] for name, i in named.items()}, **arguments
        )
        made = made if isinstance(made, list) else [made]
        self.steps.append(Step(operator, operands, arguments, named, len(made)))
        numbers = list(range(self.results, self.results + len(made)))
        self.known |= zip(numbers, made, strict=True)
        self.results += len(made)
        return numbers if len(made) > 1 else numbers[0]

    def bounded(self, x: int) -> int:
        return self.step("clamp", x, min_value=-4, max_value=4)

    def reshaped(self, x: int, *shape: int) -> int:
        return self.step("reshape", x, new_shape=shape)

    def graph(self, outputs: Sequence[int]) -> RandomGraph:
        """The drawn graph, with values numbered as in `RandomGraph`."""
        count = len(self.sources)

        def numbered(x: Any) -> Any:
            if isinstance(x, tuple):
                return tuple(map(numbered, x))
            return ~x if x < 0 else x + count

        steps = tuple(
            Step(s.operator, numbered(s.operands), s.arguments,
                 {name: numbered(i) for name, i in s.named.items()}, s.results)
            for s in self.steps
        )
        return RandomGraph(
            tuple(self.sources), frozenset(self.constant), steps, numbered(tuple(outputs))
        )


# -- activations and normalisations, in one operator or as exporters write them
def _activation(d: _Drawing, x: int) -> int:
    match d.choose(("none", "one", "erf", "tanh", "swish", "scaled swish", "hard swish")):
        case "one":
            name = d.choose(_ACTIVATIONS)
            limits = {"min_value": 0, "max_value": 6} if name == "clamp" else {}
            return d.step(name, x, **limits)
        case "erf":
            inner = d.step("erf", d.step("div", x, d.number(math.sqrt(2))))
            half = d.step("mul", x, d.step("add", inner, d.number(1)))
            return d.step("mul", half, d.number(0.5))
        case "tanh":
            cubed = d.step("mul", x, d.step("mul", x, x))
            inner = d.step("add", x, d.step("mul", cubed, d.number(0.044715)))
            inner = d.step("tanh", d.step("mul", inner, d.number(math.sqrt(2 / math.pi))))
            half = d.step("mul", x, d.number(0.5))
            return d.step("mul", half, d.step("add", inner, d.number(1)))
        case "swish":
            return d.step("mul", x, d.step("sigmoid", x))
        case "scaled swish":
            return d.step("mul", x, d.step("sigmoid", d.step("mul", x, d.number(1.702))))
        case "hard swish":
            shifted = d.step("add", x, d.number(3))
            return d.step("div", d.step("mul", x, d.step(
                "clamp", shifted, min_value=0, max_value=6)), d.number(6))
    return x


def _normal(d: _Drawing, x: int) -> int:
    """A normalisation of rows; epsilon is large, since equal elements would magnify roundings."""
    last = len(d.shape(x)) - 1
    factor = d.floats(d.shape(x)[-1:], 1.0, constant=True)
    shift = d.floats(d.shape(x)[-1:], 1.0, constant=True)
    form = d.choose(("one", "written", "root mean square"))
    if form == "one":
        named = {name: v for name, v in (("scale", factor), ("bias", shift)) if d.flag()}
        return d.step("layer_normalization", x, named=named, axes=[last], epsilon=0.5)
    if form == "written":
        mean = d.step("reduce_mean", x, axes=[last], keep_dimensions=True)
        x = d.step("sub", x, mean)
    square = d.step("mul", x, x) if d.flag() else d.step("pow", x, d.number(2))
    variance = d.step("reduce_mean", square, axes=[last], keep_dimensions=True)
    deviation = d.step("sqrt", d.step("add", variance, d.number(0.5)))
    if d.flag():
        normal = d.step("div", x, deviation)
    else:
        normal = d.step("mul", x, d.step("reciprocal", deviation))
    normal = d.step("mul", normal, factor)
    return d.step("add", normal, shift) if d.flag() else normal


# -- rows: [.., T, C]
def _dense(d: _Drawing, x: int, columns: int, form: str | None = None) -> int:
    """A product with a matrix, sometimes with a bias."""
    inner = d.shape(x)[-1]
    form = form or d.choose(("matmul", "matmul", "turned", "gemm", "dequantised", "blocks"))
    bias = d.floats((columns,), 1.0, constant=True)
    if form == "gemm" and len(d.shape(x)) == 2:
        turned = d.flag()
        weight = d.weight((columns, inner) if turned else (inner, columns), inner)
        named = {"c": bias} if d.flag() else {}
        return d.step("gemm", x, weight, named=named, b_transpose=turned)
    if form in ("dequantised", "blocks"):
        weight = _dequantised(d, inner, columns, form == "blocks")
    elif form == "turned":
        weight = d.step("transpose", d.weight((columns, inner), inner))
    else:
        weight = d.weight((inner, columns), inner)
    product = d.step("matmul", x, weight)
    return d.step("add", product, bias) if d.flag() else product


def _dequantised(d: _Drawing, inner: int, columns: int, blocks: bool) -> int:
    kind, low = d.choose((("int8", -127), ("uint8", 0)))
    integers = d.source(d.rng.integers(low, low + 255, (inner, columns)).astype(kind), True)
    shape = (inner // 8, columns) if blocks and not inner % 8 else d.choose(((1, columns), (1, 1)))
    size = 1.5 / math.sqrt(inner) / 128
    scale = d.source(d.rng.uniform(size / 2, size, shape).astype(d.data_type), True)
    zero = d.source(np.full(shape, low + 127, kind), True)
    return d.step("dequantize_linear", integers, scale, zero)


def _from_integers(d: _Drawing, shape: tuple[int, ...]) -> int:
    """Rows given as integers, and their product with dequantised weights."""
    kind, low = d.choose((("int8", -128), ("uint8", 0)))
    integers = d.source(d.rng.integers(low, low + 256, shape).astype(kind), False)
    ones = (1,) * len(shape)
    scale = d.source(np.full(ones, 2 / 128, d.data_type), True)
    zero = d.source(np.full(ones, low + d.choose((0, 100, 128)), kind), True)
    rows = d.step("dequantize_linear", integers, scale, zero)
    return _dense(d, rows, d.choose(_CHANNELS), "dequantised")


def _attention(d: _Drawing, x: int) -> int:
    """Self-attention of the rows, in heads; keys may be shared by two heads each."""
    rows, channels = d.shape(x)
    heads = d.choose((1, 2, 4))
    depth = channels // heads
    shared = heads > 1 and d.flag()
    own = heads // 2 if shared else heads
    form = d.choose(("matmul", None))
    query, key, value = (
        d.step("transpose", d.reshaped(_dense(d, x, count * depth, form), rows, count, depth),
               permutation=[1, 0, 2])
        for count in (heads, own, own)
    )
    if shared:
        key, value = (
            d.reshaped(d.step("expand", d.reshaped(v, own, 1, rows, depth),
                              new_shape=[own, 2, rows, depth]), heads, rows, depth)
            for v in (key, value)
        )
    scale = 1 / math.sqrt(depth)
    before = d.flag()
    if before:
        query = d.step("mul", query, d.number(scale))
    scores = d.step("matmul", query, d.step("transpose", key, permutation=[0, 2, 1]))
    if not before:
        scores = d.step("mul", scores, d.number(scale))
    match d.choose(("none", "mask", "causal", "where")):
        case "mask":
            scores = d.step("add", scores, d.floats((rows, rows)))
        case "causal":
            hidden = np.triu(np.full((rows, rows), -1e4, d.data_type), 1)
            scores = d.step("add", scores, d.source(hidden, True))
        case "where":
            seen = d.rng.integers(0, 2, (rows, rows)).astype("uint8")
            seen[:, 0] = 1  # a row that sees nothing is the mean of what it doesn't see
            scores = d.step("where", d.source(seen, d.flag()), scores, d.number(-1e4))
    product = d.step("matmul", d.step("softmax", scores, axis=2), value)
    return _dense(d, d.reshaped(d.step("transpose", product, permutation=[1, 0, 2]),
                                rows, channels), channels)


def _rows_block(d: _Drawing, x: int) -> int:
    rows, channels = d.shape(x)[-2:]
    match d.choose(("dense", "dense", "feed forward", "attention", "gated", "softmax", "parts",
                    "turned", "mean")):
        case "dense":
            return _activation(d, _dense(d, x, d.choose(_CHANNELS)))
        case "feed forward":
            wide = _activation(d, _dense(d, _normal(d, x), 64))
            return d.step("add", x, _dense(d, wide, channels))
        case "attention" if len(d.shape(x)) == 2:
            return d.step("add", x, _attention(d, _normal(d, x) if d.flag() else x))
        case "gated":
            both = _dense(d, x, 2 * channels)
            one, other = d.step("split", both, splits=2, axis=len(d.shape(x)) - 1)
            return d.step("mul", one, d.step("sigmoid", other))
        case "softmax":
            return d.step("softmax", _dense(d, x, channels), axis=len(d.shape(x)) - 1)
        case "parts" if len(d.shape(x)) == 2:
            parts = tuple(_activation(d, _dense(d, x, channels)) for _ in range(2))
            return d.step("concat", parts, axis=d.choose((0, 1)))
        case "turned" if len(d.shape(x)) == 2:
            turned = d.step("transpose", x)
            return d.step("transpose", _activation(d, _dense(d, turned, rows)))
        case "mean":
            mean = d.step("reduce_mean", x, axes=[len(d.shape(x)) - 2], keep_dimensions=True)
            return d.step("sub", x, mean)
    return _normal(d, x)


# -- images: in the order of the layout
def _sizes(d: _Drawing, x: int, layout: str) -> dict[str, int]:
    return dict(zip(layout, d.shape(x), strict=True))


def _arranged(letters: str, **sizes: int) -> tuple[int, ...]:
    return tuple(sizes[letter] for letter in letters)


def _conv(d: _Drawing, x: int, layout: str) -> int:
    sizes = _sizes(d, x, layout)
    channels = sizes["c"]
    groups, outputs = d.choose(
        ((1, 16), (1, 16), (1, 24), (1, 64), (channels, channels), (2, 16))
    )
    taps = min(d.choose((1, 3, 3, 3, 5)), sizes["h"], sizes["w"])
    stride = d.choose((1, 1, 1, 2))
    pad = d.choose(("none", "same", "same", "operator"))
    padding = [taps // 2] * 4 if pad == "same" else [0] * 4
    if pad == "operator":
        around = [taps // 2 if letter in "hw" else 0 for letter in layout]
        x = d.step("pad", x, beginning_padding=around, ending_padding=around)
    inner = channels // groups
    filter_layout = d.choose(("oihw", "hwio", "ohwi", "ihwo"))
    weight = d.weight(_arranged(filter_layout, o=outputs, i=inner, h=taps, w=taps),
                      inner * taps * taps)
    named = {"bias": d.floats((outputs,), 1.0, constant=True)} if d.flag() else {}
    made = d.step(
        "conv2d", x, weight, named=named, padding=padding, strides=[stride, stride], groups=groups,
        input_layout=layout, filter_layout=filter_layout,
    )
    if d.flag():
        statistics = [d.floats((outputs,), 1.0, constant=True)]
        statistics.append(d.source(
            d.rng.uniform(0.5, 2, (outputs,)).astype(d.data_type), True
        ))
        factor = {"scale": d.floats((outputs,), 1.0, constant=True)} if d.flag() else {}
        made = d.step("batch_normalization", made, *statistics, named=factor,
                      axis=layout.index("c"))
    return _activation(d, made)


def _pointwise(d: _Drawing, x: int, layout: str, outputs: int, stride: int) -> int:
    channels = _sizes(d, x, layout)["c"]
    weight = d.weight(_arranged("oihw", o=outputs, i=channels, h=1, w=1), channels)
    return d.step("conv2d", x, weight, strides=[stride, stride], input_layout=layout,
                  filter_layout="oihw")


def _stages(d: _Drawing, x: int, layout: str) -> int:
    """The end of a stage of ResNet's first version, and the convolutions of the next that read
    every second of its pixels."""
    outputs = d.choose((16, 24))
    y = _pointwise(d, x, layout, outputs, 1)
    if d.flag():
        y = d.step("add", y, _pointwise(d, x, layout, outputs, 1))
    y = _activation(d, y)
    ends = [_pointwise(d, y, layout, 16, 2) for _ in range(d.choose((1, 2)))]
    return d.step("add", *ends) if len(ends) > 1 else ends[0]


def _transposed_conv(d: _Drawing, x: int, layout: str) -> int:
    channels = _sizes(d, x, layout)["c"]
    taps, filter_layout = d.choose((2, 3)), d.choose(("iohw", "hwoi", "ohwi"))
    weight = d.weight(_arranged(filter_layout, i=channels, o=16, h=taps, w=taps),
                      channels * taps)
    return _activation(d, d.step(
        "conv_transpose2d", x, weight, strides=[2, 2], input_layout=layout,
        filter_layout=filter_layout,
    ))


def _images_block(d: _Drawing, x: int, layout: str) -> int:
    sizes, axis = _sizes(d, x, layout), layout.index("c")
    room = sizes["h"] * sizes["w"]
    match d.choose(("conv", "conv", "conv", "residual", "dense", "pool", "excited", "shuffled",
                    "transposed", "resampled", "normal", "stages")):
        case "stages":
            return _stages(d, x, layout)
        case "residual":
            y = _conv(d, x, layout)
            return d.step("add", x, y) if d.shape(y) == d.shape(x) else y
        case "dense":
            return d.step("concat", (x, _conv_like(d, x, layout)), axis=axis)
        case "pool" if min(sizes["h"], sizes["w"]) > 2:
            name = d.choose(("max_pool2d", "average_pool2d", "l2_pool2d"))
            return d.step(name, x, window_dimensions=[2, 2], strides=[2, 2], layout=layout)
        case "excited":
            mean = d.step("average_pool2d", x, layout=layout)
            rows = d.reshaped(mean, sizes["n"], sizes["c"])
            gate = d.step("sigmoid", _dense(d, _activation(d, _dense(d, rows, 16)), sizes["c"]))
            shape = [sizes[letter] if letter in "nc" else 1 for letter in layout]
            return d.step("mul", x, d.reshaped(gate, *shape))
        case "shuffled" if layout == "nchw":
            n, c, h, w = d.shape(x)
            split = d.step("transpose", d.reshaped(x, n, 2, c // 2, h, w),
                           permutation=[0, 2, 1, 3, 4])
            return d.reshaped(split, n, c, h, w)
        case "transposed" if room < 80:
            return _transposed_conv(d, x, layout)
        case "resampled" if room < 80:
            mode = d.choose(("nearest-neighbor", "linear"))
            axes = [layout.index("h"), layout.index("w")]
            return d.step("resample2d", x, mode=mode, scales=[2, 2], axes=axes)
        case "normal" if room > 1:
            return d.step("instance_normalization", x, layout=layout, epsilon=0.5)
    return _conv(d, x, layout)


def _conv_like(d: _Drawing, x: int, layout: str) -> int:
    """A convolution that keeps height and width."""
    channels = _sizes(d, x, layout)["c"]
    weight = d.weight(_arranged("oihw", o=16, i=channels, h=3, w=3), 9 * channels)
    return _activation(d, d.step(
        "conv2d", x, weight, padding=[1, 1, 1, 1], input_layout=layout, filter_layout="oihw"
    ))


@st.composite
def networks(draw: Callable[[Any], Any]) -> RandomGraph:
    """Some blocks on images or rows, or on images that become rows."""
    d = _Drawing(draw)
    ends: list[int] = []

    def follow(x: int, block: Callable[..., int], *more: Any) -> int:
        for _ in range(d.choose((1, 2, 3))):
            made = block(d, x, *more)
            x = d.bounded(made) if d.flag() else made
            if math.prod(d.shape(x)) > 20_000:
                break
            if draw(st.integers(0, 5)) == 0:
                ends.append(x)
        return x

    if d.flag():
        layout = d.choose(("nchw", "nhwc"))
        size = {letter: d.choose(options) for letter, options in zip(
            "nchw", ((1, 2), (4, 16, 24), (5, 8, 13), (5, 8, 13)), strict=True
        )}
        x = follow(d.floats(_arranged(layout, **size)), _images_block, layout)
        if d.flag():
            sizes = _sizes(d, x, layout)
            if layout == "nchw":
                x = d.step("transpose", x, permutation=[0, 2, 3, 1])
            shape = (sizes["h"] * sizes["w"], sizes["c"])
            x = d.reshaped(x, *(shape if sizes["n"] == 1 else (sizes["n"], *shape)))
            x = follow(x, _rows_block)
    else:
        lead = d.choose(((), (), (2,)))
        shape = (*lead, d.choose((1, 5, 16, 33)), d.choose((16, 64, 64, 256)))
        x = _from_integers(d, shape) if draw(st.integers(0, 3)) == 0 else d.floats(shape)
        x = follow(x, _rows_block)
    if d.steps and x not in ends:
        ends.append(x)
    return d.graph([x for x in dict.fromkeys(ends) if x >= 0])
