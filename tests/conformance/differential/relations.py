"""Operators whose validity relates shapes and arguments: operator → how an example is drawn.

Everything that the record itself says (types, ranks, annotations) comes from ``Draft``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.conformance.differential.drafting import Draft
from tests.conformance.differential.example import Example
from webnn_vk.data_types import MAX_RANK

RELATIONS: dict[str, Callable[[Draft], Example]] = {}


def relation(*operators: str) -> Callable[[Any], Any]:
    def record(function: Callable[[Draft], Example]) -> Callable[[Draft], Example]:
        RELATIONS.update(dict.fromkeys(operators, function))
        return function

    return record


def _permutation(d: Draft, items: list[Any]) -> list[Any]:
    return d.draw(st.permutations(items)) if len(items) > 1 else items


# -- element-wise
@relation("clamp")
def _(d: Draft) -> Example:
    bounds = sorted([d.number(), d.number()])
    if d.flag():
        bounds = [math.floor(bounds[0]), math.ceil(bounds[1])]
    given: dict[str, Any] = {}
    for name, value in zip(("min_value", "max_value"), bounds, strict=True):
        kind = d.choose(("value", "absent", "nan", "infinite"))
        if kind == "value":
            given[name] = value
        elif kind == "nan":
            given[name] = math.nan
        elif kind == "infinite":
            given[name] = -math.inf if name == "min_value" else math.inf
    return d.example({"input": d.shape_of("input")}, given)


@relation("quantize_linear", "dequantize_linear")
def _(d: Draft) -> Example:
    shape = d.shape()
    blocks = tuple(d.choose([n for n in range(1, s + 1) if s % n == 0]) for s in shape)
    return d.example({"input": shape, "scale": blocks, "zero_point": blocks}, {})


# -- normalisation
@relation("batch_normalization")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    axis = d.integer(0, len(shape) - 1)
    channels = (shape[axis],)
    shapes = {"input": shape, "mean": channels, "variance": channels}
    shapes |= {name: channels if d.flag() else None for name in ("scale", "bias")}
    given = {} if axis == 1 and d.flag() else {"axis": axis}
    return d.example(shapes, given | {"epsilon": _epsilon(d)})


def _epsilon(d: Draft) -> float:
    return d.choose((1e-5, 1e-3, 0.25))


@relation("instance_normalization")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    layout = d.choose(("nchw", "nhwc"))
    channels = (shape[1 if layout == "nchw" else 3],)
    shapes = {"input": shape}
    shapes |= {name: channels if d.flag() else None for name in ("scale", "bias")}
    return d.example(shapes, {"layout": layout, "epsilon": _epsilon(d)})


@relation("layer_normalization")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    axes = d.axes(len(shape))
    given = {"axes": axes} if d.flag() else {}
    spread = tuple(shape[a] for a in axes) if given else shape[1:]
    shapes = {"input": shape}
    shapes |= {name: spread if d.flag() else None for name in ("scale", "bias")}
    return d.example(shapes, given | {"epsilon": _epsilon(d)})


@relation("rms_normalization")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    axes = d.axes(len(shape))
    return d.example({"input": shape}, {"axes": axes, "epsilon": _epsilon(d)})


# -- movement
@relation("reshape")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    factors = [f for n in shape for f in _prime_factors(n)]
    new = [1] * d.integer(0 if not factors else 1, MAX_RANK)
    for factor in factors:
        new[d.integer(0, len(new) - 1)] *= factor
    return d.example({"input": shape}, {"new_shape": new})


def _prime_factors(n: int) -> list[int]:
    found, p = [], 2
    while n > 1:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return found


@relation("transpose")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    permutation = _permutation(d, list(range(len(shape))))
    return d.example({"input": shape}, {"permutation": permutation} if d.flag() else {})


@relation("slice")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    starts = [d.integer(0, n - 1) for n in shape]
    sizes = [d.integer(1, n - s) for n, s in zip(shape, starts, strict=True)]
    given: dict[str, Any] = {"starts": starts, "sizes": sizes}
    if d.flag():
        given["strides"] = [d.integer(1, n) for n in sizes]
    return d.example({"input": shape}, given)


@relation("concat")
def _(d: Draft) -> Example:
    shape = list(d.shape(*d.record.limit("inputs").rank))
    axis = d.integer(0, len(shape) - 1)
    shapes = []
    for _ in range(d.integer(1, 4)):
        shape[axis] = d.choose((1, 2, 3, 4, 5, 8))
        shapes.append(tuple(shape))
    return d.example({"inputs": shapes}, {"axis": axis})


@relation("split")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    axis = d.integer(0, len(shape) - 1)
    size = shape[axis]
    splits: int | list[int]
    if d.flag():
        splits = d.choose([n for n in range(1, min(size, 9) + 1) if size % n == 0])
    else:
        cuts = sorted({d.integer(1, size) for _ in range(3)} | {size})
        splits = [b - a for a, b in zip([0, *cuts], cuts, strict=False)]
    given = {} if axis == 0 and d.flag() else {"axis": axis}
    return d.example({"input": shape}, {"splits": splits, **given})


@relation("expand")
def _(d: Draft) -> Example:
    target = d.shape()
    return d.example({"input": d.broadcast(target)}, {"new_shape": target})


@relation("tile")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    room = 20_000 // math.prod(shape)
    repetitions = []
    for _ in shape:
        repetitions.append(d.integer(1, max(1, min(3, room))))
        room //= repetitions[-1]
    return d.example({"input": shape}, {"repetitions": repetitions})


@relation("pad")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    given: dict[str, Any] = {"mode": d.choose(("constant", "edge", "reflection"))}
    room = 20_000 // math.prod(shape)
    ends: list[list[int]] = [[], []]
    for n in shape:
        most = 3 if len(shape) < 5 else 1
        most = min(most, n - 1) if given["mode"] == "reflection" else most
        for padding in ends:
            padding.append(d.integer(0, most if room > 1 else 0))
        room = room * n // (n + ends[0][-1] + ends[1][-1])
    if d.flag():
        given["value"] = d.draw(
            st.sampled_from([0, 1, -1, 7, 300, 2.5, math.inf, -math.inf])
        )
    return d.example(
        {"input": shape}, {"beginning_padding": ends[0], "ending_padding": ends[1], **given}
    )


@relation("triangular")
def _(d: Draft) -> Example:
    shape = d.shape_of("input")
    given: dict[str, Any] = {"upper": d.flag()} if d.flag() else {}
    if d.flag():
        given["diagonal"] = d.integer(-shape[-2] - 1, shape[-1] + 1)
    return d.example({"input": shape}, given)


# -- gather and scatter
@relation("gather")
def _(d: Draft) -> Example:
    shape = d.shape(1, 5)
    axis = d.integer(0, len(shape) - 1)
    indices = d.shape(0, MAX_RANK + 1 - len(shape))
    while math.prod(indices) * math.prod(shape) // shape[axis] > 50_000:
        indices = tuple(min(n, 3) for n in indices[1:])
    given = {} if axis == 0 and d.flag() else {"axis": axis}
    return d.example({"input": shape, "indices": indices}, given)


def _along_axis(d: Draft) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    shape = d.shape_of("input")
    axis = d.integer(0, len(shape) - 1)
    count = d.choose((1, 2, 3, 5, shape[axis]))
    given = {} if axis == 0 and d.flag() else {"axis": axis}
    return shape, (*shape[:axis], count, *shape[axis + 1 :]), given


@relation("gather_elements")
def _(d: Draft) -> Example:
    shape, indices, given = _along_axis(d)
    return d.example({"input": shape, "indices": indices}, given)


@relation("scatter_elements")
def _(d: Draft) -> Example:
    shape, indices, given = _along_axis(d)
    return d.example({"input": shape, "indices": indices, "updates": indices}, given)


def _coordinates(d: Draft) -> tuple[tuple[int, ...], ...]:
    """Shapes of the input, of indices and of what they select."""
    shape = d.shape_of("input")
    count = d.integer(1, len(shape))
    kept = shape[count:]
    leading = tuple(
        d.choose((1, 2, 3, 5)) for _ in range(d.integer(0, min(3, MAX_RANK - len(kept))))
    )
    return shape, (*leading, count), (*leading, *kept)


@relation("gather_nd")
def _(d: Draft) -> Example:
    shape, indices, _ = _coordinates(d)
    return d.example({"input": shape, "indices": indices}, {})


@relation("scatter_nd")
def _(d: Draft) -> Example:
    shape, indices, updates = _coordinates(d)
    return d.example({"input": shape, "indices": indices, "updates": updates}, {})


# -- products
_LENGTHS = (1, 2, 3, 4, 5, 8, 16, 17, 33, 64, 100)


@relation("matmul")
def _(d: Draft) -> Example:
    m, k, n = (d.choose(_LENGTHS) for _ in range(3))
    batch = tuple(d.choose((1, 2, 3)) for _ in range(d.integer(0, 6)))
    if math.prod(batch) > 27:
        m, k, n = (min(x, 5) for x in (m, k, n))
    a, b = (*d.broadcast(batch), m, k), (*d.broadcast(batch), k, n)
    return d.example({"a": a, "b": b}, {})


@relation("gemm")
def _(d: Draft) -> Example:
    m, k, n = (d.choose(_LENGTHS) for _ in range(3))
    given = d.arguments(2)
    a = (k, m) if given.get("a_transpose") else (m, k)
    b = (n, k) if given.get("b_transpose") else (k, n)
    return d.example({"a": a, "b": b, "c": d.broadcast((m, n)) if d.flag() else None}, given)


@relation("quantized_matmul")
def _(d: Draft) -> Example:
    m, k, n = (d.choose(_LENGTHS) for _ in range(3))
    given = {"zero_point": float(d.integer(-128, 255)), "b_transpose": d.flag()}
    batch = tuple(d.choose((1, 2, 3)) for _ in range(d.integer(0, 3)))
    b = (n, k) if given["b_transpose"] else (k, n)
    block = d.choose((4, 16, 32))
    scale = None
    if given["b_transpose"] and not k % block and d.flag():
        scale = (n, k // block)
    return d.example({"a": (*batch, m, k), "b": b, "scale": scale}, given)


@relation("attention")
def _(d: Draft) -> Example:
    rows, keys, depth = (d.choose(_LENGTHS) for _ in range(3))
    width = d.choose((1, 4, 7, 16, 32))  # wider ones are other pipelines
    batch = tuple(d.choose((1, 2, 3)) for _ in range(d.integer(0, 3)))
    given = d.arguments(2)
    if given.get("causal"):
        rows = min(rows, keys)
    scores = (*batch, rows, keys)
    return d.example(
        {
            # Without the others' dimensions, the query has those of the scores.
            "query": (*batch, rows, depth),
            "key": (*d.broadcast(batch), keys, depth),
            "value": (*d.broadcast(batch), keys, width),
            "mask": d.broadcast(scores) if d.flag() else None,
            "seen": d.broadcast(scores) if d.flag() else None,
        },
        given,
    )


# -- convolution and pooling
def _arranged(layout: str, **sizes: int) -> tuple[int, ...]:
    return tuple(sizes[letter] for letter in layout)


def _pair(d: Draft, most: int) -> list[int]:
    return [d.integer(1, most), d.integer(1, most)]


@relation("conv2d", "quantized_conv2d")
def _(d: Draft) -> Example:
    given: dict[str, Any] = {}
    # Ordinary, depthwise and grouped; 1 × 1 is a kernel of its own.
    groups = d.choose((1, 1, 2, 3))
    per_group = 1 if d.flag() else d.choose((1, 2, 3, 5, 8))
    outputs = groups * d.choose((1, 2, 4, 5))
    taps = [1, 1] if d.flag() else _pair(d, 4)
    strides = _pair(d, 3) if d.flag() else [1, 1]
    dilations = _pair(d, 3) if d.flag() else [1, 1]
    padding = [d.integer(0, 3) for _ in range(4)] if d.flag() else [0] * 4
    sizes = []
    for i in range(2):
        reach = (taps[i] - 1) * dilations[i] + 1
        least = max(1, reach - padding[2 * i] - padding[2 * i + 1])
        sizes.append(least + d.choose((0, 1, 2, 3, 5, 8, 13)))
    for name, value, default in (
        ("strides", strides, [1, 1]), ("dilations", dilations, [1, 1]),
        ("padding", padding, [0] * 4), ("groups", groups, 1),
    ):
        if value != default or d.flag():
            given[name] = value
    given["input_layout"] = d.choose(("nchw", "nhwc"))
    given["filter_layout"] = d.choose(("oihw", "hwio", "ohwi", "ihwo"))
    shapes: dict[str, Any] = {
        "input": _arranged(
            given["input_layout"], n=d.integer(1, 2), c=per_group * groups, h=sizes[0], w=sizes[1]
        ),
        "filter": _arranged(given["filter_layout"], o=outputs, i=per_group, h=taps[0], w=taps[1]),
    }
    if d.record.name == "quantized_conv2d":
        given["zero_point"] = float(d.integer(-128, 255))
    else:
        shapes["bias"] = (outputs,) if d.flag() else None
    return d.example(shapes, given)


@relation("conv_transpose2d")
def _(d: Draft) -> Example:
    groups = d.choose((1, 1, 2, 3))
    inputs = groups * d.choose((1, 2, 3))
    per_group = d.choose((1, 2, 3, 5))
    taps, strides = _pair(d, 4), _pair(d, 3)
    dilations = _pair(d, 3) if d.flag() else [1, 1]
    sizes = [d.choose((1, 2, 3, 5, 8)) for _ in range(2)]
    padding, smallest = [], []
    for i in range(2):
        full = (sizes[i] - 1) * strides[i] + (taps[i] - 1) * dilations[i] + 1
        begin = d.integer(0, min(2, full - 1))
        end = d.integer(0, min(2, full - 1 - begin))
        padding += [begin, end]
        smallest.append(full - begin - end)
    given: dict[str, Any] = {"strides": strides, "padding": padding, "groups": groups}
    if dilations != [1, 1]:
        given["dilations"] = dilations
    extra = [d.integer(0, s - 1) for s in strides]
    match d.choose(("plain", "output_padding", "output_sizes")):
        case "output_padding":
            given["output_padding"] = extra
        case "output_sizes":
            given["output_sizes"] = [s + e for s, e in zip(smallest, extra, strict=True)]
    given["input_layout"] = d.choose(("nchw", "nhwc"))
    given["filter_layout"] = d.choose(("iohw", "hwoi", "ohwi"))
    shapes: dict[str, Any] = {
        "input": _arranged(
            given["input_layout"], n=d.integer(1, 2), c=inputs, h=sizes[0], w=sizes[1]
        ),
        "filter": _arranged(given["filter_layout"], i=inputs, o=per_group, h=taps[0], w=taps[1]),
        "bias": (per_group * groups,) if d.flag() else None,
    }
    return d.example(shapes, given)


@relation("average_pool2d", "l2_pool2d", "max_pool2d")
def _(d: Draft) -> Example:
    given: dict[str, Any] = {"layout": d.choose(("nchw", "nhwc"))}
    sizes = [d.choose((1, 2, 3, 4, 7, 12)) for _ in range(2)]
    window = list(sizes)
    dilations, padding, strides = [1, 1], [0] * 4, [1, 1]
    if d.flag():
        padding = given["padding"] = [d.integer(0, 2) for _ in range(4)]
    if d.flag():
        strides = given["strides"] = _pair(d, 3)
    if d.flag():
        window, dilations = [], []
        for i in range(2):
            room = sizes[i] + padding[2 * i] + padding[2 * i + 1]
            window.append(d.integer(1, min(room, 5)))
            dilations.append(d.integer(1, max(1, min(3, (room - 1) // max(1, window[i] - 1)))))
        given |= {"window_dimensions": window, "dilations": dilations}
    rounding = d.choose(("floor", "ceil"))
    match d.choose(("absent", "rounding", "sizes")):
        case "rounding":
            given["output_shape_rounding"] = rounding
        case "sizes":
            rooms = [
                sizes[i] + padding[2 * i] + padding[2 * i + 1] - (window[i] - 1) * dilations[i] - 1
                for i in range(2)
            ]
            up = rounding == "ceil"
            given["output_sizes"] = [
                (-(-room // s) if up else room // s) + 1
                for room, s in zip(rooms, strides, strict=True)
            ]
    shape = _arranged(
        given["layout"], n=d.integer(1, 2), c=d.choose((1, 2, 3, 4, 5, 8)), h=sizes[0], w=sizes[1]
    )
    return d.example({"input": shape}, given)


@relation("resample2d")
def _(d: Draft) -> Example:
    shape = d.shape(4, 4)
    axes = d.choose([(i, j) for i in range(4) for j in range(4) if i != j])
    given: dict[str, Any] = {}
    if axes != (2, 3) or d.flag():
        given["axes"] = axes
    if d.flag():
        given["mode"] = d.choose(("nearest-neighbor", "linear"))
    match d.choose(("sizes", "scales", "absent")):
        case "sizes":
            given["sizes"] = [d.integer(1, 12) for _ in axes]
        case "scales":
            given["scales"] = [
                max(s, 1 / shape[a]) for a, s in
                zip(axes, (d.choose((0.5, 1.0, 1.5, 2.0, 2.7)) for _ in axes), strict=True)
            ]
    return d.example({"input": shape}, given)


# -- recurrent
def _activations(d: Draft, count: int) -> dict[str, Any]:
    kinds = ("relu", "sigmoid", "tanh")
    return {"activations": [d.choose(kinds) for _ in range(count)]} if d.flag() else {}


def _recurrent(d: Draft, gates: int, layouts: tuple[str, ...], states: tuple[str, ...]) -> Example:
    steps, batch, inputs, size = (d.integer(1, n) for n in (4, 3, 5, 5))
    given: dict[str, Any] = {"steps": steps, "hidden_size": size}
    given |= _activations(d, gates - 1)
    if d.flag():
        given["layout"] = d.choose(layouts)
    for name, options in (
        ("direction", ("forward", "backward", "both")), ("return_sequence", (False, True)),
        ("reset_after", (False, True)),
    ):
        if any(p.name == name for p in d.record.arguments) and d.flag():
            given[name] = d.choose(options)
    directions = 2 if given.get("direction") == "both" else 1
    shapes: dict[str, Any] = {
        "input": (steps, batch, inputs),
        "weight": (directions, gates * size, inputs),
        "recurrent_weight": (directions, gates * size, size),
    }
    for name in ("bias", "recurrent_bias"):
        shapes[name] = (directions, gates * size) if d.flag() else None
    if gates == 4:
        shapes["peephole_weight"] = (directions, 3 * size) if d.flag() else None
    for name in states:
        shapes[name] = (directions, batch, size) if d.flag() else None
    return d.example(shapes, given)


@relation("gru")
def _(d: Draft) -> Example:
    return _recurrent(d, 3, ("zrn", "rzn"), ("initial_hidden_state",))


@relation("lstm")
def _(d: Draft) -> Example:
    return _recurrent(d, 4, ("iofg", "ifgo"), ("initial_hidden_state", "initial_cell_state"))


def _cell(d: Draft, gates: int, layouts: tuple[str, ...], states: tuple[str, ...]) -> Example:
    batch, inputs, size = (d.integer(1, n) for n in (4, 6, 6))
    given: dict[str, Any] = {"hidden_size": size} | _activations(d, gates - 1)
    if d.flag():
        given["layout"] = d.choose(layouts)
    if gates == 3 and d.flag():
        given["reset_after"] = d.flag()
    shapes: dict[str, Any] = {
        "input": (batch, inputs),
        "weight": (gates * size, inputs),
        "recurrent_weight": (gates * size, size),
    }
    shapes |= dict.fromkeys(states, (batch, size))
    for name in ("bias", "recurrent_bias"):
        shapes[name] = (gates * size,) if d.flag() else None
    if gates == 4:
        shapes["peephole_weight"] = (3 * size,) if d.flag() else None
    return d.example(shapes, given)


@relation("gru_cell")
def _(d: Draft) -> Example:
    return _cell(d, 3, ("zrn", "rzn"), ("hidden_state",))


@relation("lstm_cell")
def _(d: Draft) -> Example:
    return _cell(d, 4, ("iofg", "ifgo"), ("hidden_state", "cell_state"))

