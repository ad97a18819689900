"""Random nodes of ONNX's operators, with random attributes, computed here and by ONNX Runtime.

    python -m tests.conformance.onnx.random_nodes --seed 1 --count 10000 --device vulkan

Prints each difference, and counts at the end. Left out is what ONNX Runtime doesn't compute as the
specification says, or refuses: dilated windows with automatic padding, windows shorter than their
strides with such padding, products of integers that overflow.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.onnx import random_windows
from tests.conformance.onnx.drawing import Draw, node, whole
from tests.support.contexts import open_context
from tests.support.onnx_nodes import Node, runtime


def resize(d: Draw) -> Node:
    rank = d.choice([1, 2, 3, 4])
    shape = [1, 2, d.up_to(6), d.up_to(6)] if rank == 4 else [d.up_to(6) for _ in range(rank)]
    new = shape[: max(0, rank - 2)] + [d.up_to(12) for _ in shape[max(0, rank - 2) :]]
    modes = {1: ["nearest"], 2: ["nearest", "linear"], 3: ["nearest"]}
    mode = d.choice(modes.get(rank, ["nearest", "linear", "cubic"]))
    ways = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    attributes: dict[str, Any] = {"mode": mode}
    if mode == "nearest":
        attributes["nearest_mode"] = d.choice(
            ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        )
    else:
        ways.append("half_pixel_symmetric")
        if rank == 4:
            attributes |= d.some(antialias=1)
    if mode == "cubic":
        attributes |= d.some(cubic_coeff_a=-0.5, exclude_outside=1)
    attributes["coordinate_transformation_mode"] = d.choice(ways)
    scales = np.array([b / a for a, b in zip(shape, new, strict=True)], np.float32)
    if d.coin():  # lengths that are rounded down
        scales[-2:] += np.float32(0.4) / np.array(shape[-2:], np.float32)
    sizes = [scales] if d.coin() else [None, whole(*new)]
    return node("Resize", [d.floats(shape), None, *sizes], attributes, opset=19)


def pad(d: Draw) -> Node:
    shape, mode = d.shape(1, 4), d.choice(["constant", "reflect", "edge", "wrap"])
    most = [2 if mode in ("constant", "edge") else min(2, n - 1) for n in shape] * 2
    low = -1 if mode == "constant" else 0
    amounts = [d.between(low, n) for n in most]
    rank = len(shape)
    if any(n + amounts[i] + amounts[i + rank] < 1 or n < -amounts[i] - amounts[i + rank]
           for i, n in enumerate(shape)):
        amounts = [abs(a) for a in amounts]
    value = [np.float32(2.5)] if mode == "constant" and d.coin() else []
    return node("Pad", [d.floats(shape), whole(*amounts), *value], {"mode": mode},
                opset=19)


def slices(d: Draw) -> Node:
    shape = d.shape(1, 4)
    axes = d.some_axes(shape)
    starts, ends, steps = [], [], []
    for axis in axes:
        n, step = shape[axis], d.choice([1, 2, 3, -1, -2])
        start, end = d.between(-n - 1, n + 1), d.between(-n - 1, n + 1)
        if not range(*slice(start, end, step).indices(n)):
            start, end = (0, 2**40) if step > 0 else (2**40, -(2**40))
        starts.append(start)
        ends.append(end)
        steps.append(step)
    return node("Slice", [d.floats(shape), *(whole(*v) for v in (starts, ends, axes, steps))])


def gather(d: Draw) -> Node:
    shape, operator = d.shape(2, 4), d.choice(["Gather", "GatherElements", "GatherND"])
    if operator == "GatherND":
        batches = d.between(0, 1)
        lead = shape[:batches] + d.shape(1, 2)
        columns = d.between(1, len(shape) - batches)
        indices = np.stack([
            d.integers(-shape[batches + i], shape[batches + i], lead) for i in range(columns)
        ], -1)
        return node(operator, [d.floats(shape), indices], {"batch_dims": batches})
    axis = d.axis(shape)
    wanted = d.shape(0, 3) if operator == "Gather" else [d.up_to(n) for n in shape]
    indices = d.integers(-shape[axis], shape[axis], wanted)
    return node(operator, [d.floats(shape), indices], {"axis": axis})


def scatter(d: Draw) -> Node:
    shape, reduction = d.shape(1, 3), d.choice(["none", "add", "mul", "min", "max"])
    if d.coin():
        axis, part = d.axis(shape), [d.up_to(n) for n in shape]
        indices = d.integers(-shape[axis], shape[axis], part)
        if reduction == "none":  # no index twice
            indices = np.argsort(d.floats(shape), axis)[tuple(slice(0, n) for n in part)]
        return node("ScatterElements", [d.floats(shape), indices, d.floats(part)],
                    {"axis": axis, "reduction": reduction}, opset=18)
    columns, rows = d.up_to(len(shape)), 1 if reduction == "none" else d.up_to(4)
    indices = np.stack([d.integers(-shape[i], shape[i], [rows]) for i in range(columns)], -1)
    return node("ScatterND", [d.floats(shape), indices, d.floats([rows, *shape[columns:]])],
                {"reduction": reduction}, opset=18)


def reduction(d: Draw) -> Node:
    shape = d.shape(1, 4)
    names = ["Sum", "Mean", "Max", "Min", "Prod", "SumSquare", "L1", "L2", "LogSumExp", "LogSum"]
    operator = f"Reduce{d.choice(names)}"
    x = d.floats(shape)
    if operator == "ReduceLogSum":
        x = np.abs(x)
    if operator not in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp") and d.coin():
        x = d.integers(-2, 3, shape, d.choice(["int32", "int64"]))
    axes = [whole(*d.some_axes(shape))] if d.chance(0.8) else []
    attributes = {"keepdims": d.between(0, 1), **d.some(noop_with_empty_axes=1)}
    return node(operator, [x, *axes], attributes, opset=18)


def best(d: Draw) -> Node:
    shape = d.shape(1, 4)
    axis = d.axis(shape)
    ties = d.integers(-3, 4, shape, "float32")
    if d.coin():
        return node(d.choice(["ArgMax", "ArgMin"]), [ties], {
            "axis": axis, "keepdims": d.between(0, 1), "select_last_index": d.between(0, 1),
        })
    return node("TopK", [ties, whole(d.up_to(shape[axis]))],
                {"axis": axis, "largest": d.between(0, 1)}, 2)


def split(d: Draw) -> Node:
    shape = d.shape(1, 4)
    axis = d.axis(shape)
    length = shape[axis]
    parts = d.up_to(length)
    if d.coin():
        ends = [0, *sorted(d.sample(range(1, length), parts - 1)), length]
        return node("Split", [d.floats(shape), np.diff(ends)], {"axis": axis}, parts,
                    opset=18)
    parts = -(-length // -(-length // parts))
    return node("Split", [d.floats(shape)], {"axis": axis, "num_outputs": parts}, parts,
                opset=18)


def norm(d: Draw) -> Node:
    epsilon = 10 ** d.uniform(-6, -1)
    kind = d.choice(["layer", "instance", "group", "batch", "response", "p", "skip"])
    if kind == "layer":
        shape = d.shape(2, 4)
        axis = d.between(0, len(shape) - 1)
        more = [d.floats(shape[axis:]) for _ in range(d.between(1, 2))]
        return node("LayerNormalization", [d.floats(shape), *more],
                    {"axis": axis, "epsilon": epsilon}, d.choice([1, 3]))
    if kind == "instance":
        n = d.up_to(4)
        return node("InstanceNormalization", [
            d.floats([2, n, 3, *d.shape(0, 2)]), d.floats([n]), d.floats([n])
        ], {"epsilon": epsilon})
    if kind == "group":
        groups = d.up_to(3)
        n = groups * d.up_to(3)
        return node("GroupNormalization", [
            d.floats([2, n, 3, *d.shape(0, 2)]), d.floats([n]), d.floats([n])
        ], {"num_groups": groups, "epsilon": epsilon}, opset=21)
    if kind == "batch":
        n, training = d.up_to(4), d.between(0, 1)
        parameters = [d.floats([n]) for _ in range(3)]
        return node("BatchNormalization", [
            d.floats([3, n, *d.shape(0, 3)]), *parameters, d.floats([n]) ** 2
        ], {"epsilon": max(epsilon, 1e-3), "training_mode": training}, 1 + 2 * training)
    if kind == "response":
        return node("LRN", [d.floats([1, d.up_to(7), *d.shape(2, 2)])], {
            "size": d.choice([1, 3, 5]), "alpha": d.uniform(0.01, 1), "beta": d.uniform(0.2, 1),
            "bias": d.uniform(0.5, 2),
        })
    if kind == "p":
        shape = d.shape(1, 4)
        return node("LpNormalization", [d.floats(shape)],
                    {"p": d.up_to(2), "axis": d.axis(shape)})
    size = 1 + d.up_to(8)
    more = [d.floats([size]) for _ in range(d.between(1, 3))]
    return Node("SkipLayerNormalization", [d.floats([2, 3, size]), d.floats([2, 3, size]), *more],
                {"epsilon": epsilon})


def recurrent(d: Draw) -> Node:
    operator = d.choice(["LSTM", "GRU", "RNN"])
    gates, functions = {"LSTM": (4, 3), "GRU": (3, 2), "RNN": (1, 1)}[operator]
    direction = d.choice(["forward", "reverse", "bidirectional"])
    ways = 2 if direction == "bidirectional" else 1
    steps, batch, size, hidden = (d.up_to(4) for _ in range(4))
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    inputs = [d.floats([steps, batch, size]), d.floats([ways, gates * hidden, size]),
              d.floats([ways, gates * hidden, hidden]),
              d.maybe(d.floats([ways, 2 * gates * hidden])),
              d.maybe(d.integers(1, steps + 1, [batch], "int32")),
              d.maybe(d.floats([ways, batch, hidden]))]
    if operator == "LSTM":
        inputs += [d.maybe(d.floats([ways, batch, hidden])), d.maybe(d.floats([ways, 3 * hidden]))]
        attributes |= d.some(input_forget=1)
    if operator == "GRU":
        attributes |= d.some(linear_before_reset=1)
    attributes |= d.some(clip=d.uniform(0.2, 2), activations=[
        d.choice(["Tanh", "Sigmoid", "HardSigmoid", "Softsign"]) for _ in range(functions * ways)
    ])
    while inputs[-1] is None:
        inputs.pop()
    return node(operator, inputs, attributes, 3 if operator == "LSTM" else 2)


def movement(d: Draw) -> Node:
    shape = d.shape(1, 4)
    x, axis, rank = d.floats(shape), d.axis(shape), len(shape)
    block, length, batch = d.up_to(3), d.up_to(5), d.up_to(4)
    first = d.between(0, 1)
    mask = d.integers(0, 2, [shape[axis]], "bool")
    mask[0] = True
    other = [d.up_to(4) if i == axis % rank else n for i, n in enumerate(shape)]
    return d.choice([
        node("DepthToSpace", [d.floats([1, 2 * block**2, *d.shape(2, 2)])],
             {"blocksize": block, "mode": d.choice(["DCR", "CRD"])}),
        node("SpaceToDepth", [d.floats([1, 2, block * d.up_to(3), block * d.up_to(3)])],
             {"blocksize": block}),
        node("ReverseSequence", [
            d.floats([batch, length, 2] if first else [length, batch, 2]),
            d.integers(1, length + 1, [batch]),
        ], {"time_axis": first, "batch_axis": 1 - first}),
        node("Trilu", [d.floats([2, *d.shape(2, 2)]), np.array(d.between(-5, 5))],
             {"upper": first}),
        node("OneHot", [d.integers(-length, length + 1, shape), np.array(length), d.floats([2])],
             {"axis": d.between(-rank - 1, rank)}),
        node("CumSum", [x, np.array(axis)], {"exclusive": first, "reverse": d.between(0, 1)}),
        node("Transpose", [x], {"perm": d.sample(range(rank), rank)}),
        node("Tile", [x, whole(*(d.up_to(3) for _ in shape))]),
        node("Expand", [d.floats([d.choice([1, n]) for n in shape]), whole(2, *shape)]),
        node("Concat", [x, d.floats(other), x], {"axis": axis}),
        node("Compress", [x, mask], {"axis": axis}),
        node("EyeLike", [d.floats(d.shape(2, 2))], {"k": d.between(-3, 3)}),
        node("Flatten", [x], {"axis": d.between(-rank, rank)}),
    ])


def product(d: Draw) -> Node:
    m, k, n = d.up_to(5), d.up_to(9), d.up_to(5)
    a, b = [m, k], [k, n]
    turned = {"transA": d.between(0, 1), "transB": d.between(0, 1)}
    left, right = (v[::-1] if t else v for v, t in zip((a, b), turned.values(), strict=True))
    kind = d.choice(["MatMul", "Gemm", "FusedMatMul", "Det", "Einsum"])
    if kind == "MatMul":
        lead = d.shape(0, 2)
        left, right = ([*(d.choice([1, v]) for v in lead), *v] for v in (a, b))
        vectors = d.choice([(left, right), (left, right), ([k], right), (left, [k])])
        return node(kind, [d.floats(v) for v in vectors])
    if kind == "Gemm":
        bias = [d.floats(d.choice([[n], [1, n], [m, 1], [m, n], [1]]))] if d.coin() else []
        return node(kind, [d.floats(left), d.floats(right), *bias], {
            **turned, "alpha": d.uniform(-2, 2), "beta": d.uniform(-2, 2)
        })
    if kind == "FusedMatMul":
        return Node(kind, [d.floats([2, *left]), d.floats([2, *right])],
                    {**turned, "alpha": d.uniform(-2, 2)})
    if kind == "Det":
        return node(kind, [d.floats([2, min(m, 4), min(m, 4)])])
    equation = d.choice([
        "ij,jk->ik", "bij,bjk->bik", "ij,ij->", "ij->ji", "ii->i", "bhid,bhjd->bhij", "i,j->ij",
        "ij,jk", "...ij,...jk->...ik", "bij,jk->bik", "iji->j", "abc,cd,de->abe", "ij,kj->ik",
    ])
    sizes = {letter: d.up_to(4) for letter in "abcdehijk"}
    terms = equation.split("->")[0].split(",")
    inputs = [
        d.floats([*[2] * ("." in term), *(sizes[v] for v in term.replace(".", ""))])
        for term in terms
    ]
    return node(kind, inputs, {"equation": equation})


def attention(d: Draw) -> Node:
    batch, steps, keys, size = d.up_to(2), d.up_to(4), d.up_to(5), 2 * d.up_to(4)
    heads = d.choice([1, 2, 4])
    width = heads * size
    kind = d.choice(["MultiHeadAttention", "Attention", "standard", "RotaryEmbedding"])
    attributes = {"num_heads": heads, **d.some(unidirectional=1)}
    if kind == "MultiHeadAttention":
        mask = d.integers(0, 2, [batch, keys], "int32")
        mask[:, 0] = 1
        bias = d.maybe(d.floats([3 * width]))
        inputs = [d.floats([batch, n, width]) for n in (steps, keys, keys)]
        more = [bias, mask] if d.coin() else [bias] if bias is not None else []
        return Node(kind, inputs + more, attributes | d.some(scale=d.uniform(0.1, 1)), bound=1e-4)
    if kind == "Attention":
        return Node(kind, [d.floats([batch, steps, width]), d.floats([width, 3 * width]),
                           d.floats([3 * width])], attributes, bound=1e-4)
    if kind == "RotaryEmbedding":
        angles = [d.floats([5, size // 2]) for _ in range(2)]
        return Node(kind, [d.floats([batch, heads, steps, size]),
                           d.integers(0, 5, [batch, steps]), *angles], d.some(interleaved=1))
    fewer = d.choice([n for n in (1, 2, 4) if heads % n == 0])
    inputs = [d.floats([batch, n, m, size])
              for n, m in ((heads, steps), (fewer, keys), (fewer, keys))]
    if d.coin():
        seen = d.integers(0, 2, [steps, keys], "bool") | (np.arange(keys) == 0)
        inputs.append(d.choice([seen, d.floats([steps, keys])]))
    return node("Attention", inputs, d.some(is_causal=1, softcap=3.0, scale=0.3),
                bound=1e-4, opset=23)


def elementwise(d: Draw) -> Node:
    shape = d.shape(1, 3)
    other = [d.choice([1, n]) for n in shape]
    signed, unsigned = d.choice(["int32", "int64"]), d.choice(["uint8", "uint32"])
    x, y = d.floats(shape), d.floats(other)
    ints, divisors = d.integers(-99, 99, shape, signed), d.integers(1, 9, other, signed)
    divisors = divisors * d.choice([1, -1])
    bits = [d.integers(0, 200, s, unsigned) for s in (shape, other)]
    infinite = np.where(np.abs(x) > 1, np.inf * x, x)
    limits = d.maybe(np.float32(-0.5)), np.float32(d.choice([0.7, -1]))
    axis = {"axis": d.axis(shape)}
    return d.choice([
        node("Div", [ints, divisors]), node("Mod", [ints, divisors], {"fmod": d.between(0, 1)}),
        node("Mod", [9 * x, y], {"fmod": 1}), node("Pow", [np.abs(x), y]),
        node("Pow", [ints // 33, np.abs(divisors) // 2]), node("Pow", [x, divisors // 4]),
        node("BitShift", [bits[0], bits[1] % 7], {"direction": d.choice(["LEFT", "RIGHT"])}),
        node(d.choice(["BitwiseAnd", "BitwiseOr", "BitwiseXor"]), bits, opset=18),
        node("PRelu", [x, y]), node("Clip", [x, *limits]),
        node("Shrink", [x], {"bias": d.uniform(0, 1), "lambd": d.uniform(0, 1)}),
        node("Where", [y > 0, x, -x]), node(d.choice(["Max", "Min", "Sum", "Mean"]), [x, y, -x]),
        node(d.choice(["And", "Or", "Xor"]), [x > 0, y > 0]),
        node("IsInf", [infinite], d.some(detect_negative=0, detect_positive=0)),
        node(d.choice(["Round", "Floor", "Ceil"]), [np.round(x * 4) / 2]),
        node("Cast", [d.choice([50 * x, ints])], {"to": d.choice([1, 6, 7])}),
        node("Gelu", [3 * x], {"approximate": d.choice(["none", "tanh"])}, opset=20),
        node(d.choice(["Softmax", "LogSoftmax", "Hardmax"]), [x], axis, opset=d.choice([11, 13])),
        node("Sign", [d.choice([x, ints])]),
    ])


KINDS: dict[str, Callable[[Draw], Node]] = {
    f.__name__: f for f in (
        resize, pad, slices, gather, scatter, reduction, best, split, norm, recurrent, movement,
        product, attention, elementwise, *random_windows.KINDS,
    )
}


def draw(rng: random.Random, kind: str | None = None) -> Node:
    """A node of a kind, which is drawn if none is given: each kind is as frequent."""
    return KINDS[kind or rng.choice(list(KINDS))](Draw(rng))


def difference(node: Node, context: Any) -> str | None:
    """The difference from ONNX Runtime; None if there is none."""
    try:
        expected = runtime(node.model(), 1).run(None, {"i0": node.inputs[0]})
    except Exception as error:
        return f"ONNX Runtime refuses it: {error}"
    try:
        got = node.here(context)
    except Exception as error:
        return f"refused: {error}"
    for at, (a, b) in enumerate(zip(got, expected, strict=True)):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"output {at}: {a.dtype}{list(a.shape)} for {b.dtype}{list(b.shape)}"
        with np.errstate(invalid="ignore"):
            error = np.abs(a.astype(np.float64) - b.astype(np.float64))
        largest = np.abs(b[np.isfinite(b)]).max(initial=1e-3) if b.dtype.kind == "f" else 1
        bound = max(node.bound, 2e-5) * largest if b.dtype.kind == "f" else (
            node.bound if node.bound >= 1 and b.itemsize == 1 else 0
        )
        wrong = ~((a == b) | (error <= bound) | ((a != a) & (b != b)))
        if wrong.any():
            place = tuple(np.argwhere(wrong)[0])
            return f"output {at}{list(map(int, place))}: {a[place]} for {b[place]}"
    return None


def described(node: Node) -> str:
    """The node in one line."""
    inputs = [None if x is None else f"{x.dtype}{list(x.shape)}" for x in node.inputs]
    return f"{node.operator} {inputs} {dict(node.attributes)} opset {node.opset}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="the first node's number")
    parser.add_argument("--count", type=int, default=10000, help="how many nodes")
    parser.add_argument("--device", default="cpu", help="cpu, vulkan or an index")
    given = parser.parse_args(arguments)
    found: Counter[str] = Counter()
    with open_context(given.device) as context:
        for number in range(given.seed, given.seed + given.count):
            node = draw(random.Random(number))
            wrong = difference(node, context)
            found[node.operator if wrong is None else "differences"] += 1
            if wrong:
                print(f"{number}: {described(node)}\n  {wrong}", flush=True)
    print(dict(found.most_common()))
    return 1 if found["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())
