"""Decoders with a cache of keys and values, as exporters of language models write them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.support.onnx_models import info


def decoder(
    layers: int, width: int, heads: int, words: int, seed: int = 0
) -> onnx.ModelProto:
    """Inputs ``ids`` [batch, n], ``past_k0``, ``past_v0`` … [batch, heads, past, width / heads];
    outputs ``logits``, and ``k0``, ``v0`` … with the new rows after the past. The word table,
    transposed, is also the matrix of the last product."""
    rng = np.random.default_rng(seed)
    size = width // heads
    nodes: list[onnx.NodeProto] = []
    stored: dict[str, np.ndarray] = {}

    def weight(name: str, *shape: int) -> str:
        stored[name] = rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0]))
        return name

    def given(name: str, values: object, kind: type = np.int64) -> str:
        stored[name] = np.array(values, kind)
        return name

    def add(operator: str, inputs: list[str], *outputs: str, **attributes: object) -> str:
        names = list(outputs) or [f"{operator}_{len(nodes)}"]
        nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names[0]

    def norm(x: str, name: str) -> str:
        scale = given(f"{name}.scale", rng.uniform(0.5, 1.5, width), np.float32)
        return add("LayerNormalization", [x, scale, given(f"{name}.bias", np.zeros(width),
                                                          np.float32)])

    zero, one = given("zero", 0), given("one", 1)
    table = weight("table", words, width)
    x = add("Gather", [table, "ids"])
    shape = add("Shape", ["ids"])
    length = add("Gather", [shape, one])
    old = add("Gather", [add("Shape", ["past_k0"]), given("two", 2)])
    total = add("Add", [old, length])
    # The position of each new row, and the rows that it sees: those up to itself.
    rows = add("Range", [old, total, one])
    columns = add("Range", [zero, total, one])
    seen = add("LessOrEqual", [add("Unsqueeze", [columns, given("axis0", [0])]),
                               add("Unsqueeze", [rows, given("axis1", [1])])])
    angles = add("Mul", [add("Cast", [rows], to=TensorProto.FLOAT), given("rate", 0.1, np.float32)])
    x = add("Add", [x, add("Unsqueeze", [add("Sin", [angles]), "axis1"])])
    split = add("Concat", [add("Unsqueeze", [add("Gather", [shape, zero]), "axis0"]),
                           add("Unsqueeze", [length, "axis0"]),
                           given("split", [heads, size])], axis=0)
    joined = add("Concat", [add("Unsqueeze", [add("Gather", [shape, zero]), "axis0"]),
                            add("Unsqueeze", [length, "axis0"]),
                            given("joined", [width])], axis=0)
    caches = []
    for i in range(layers):
        y = norm(x, f"{i}.before")
        parts = []
        for part in "qkv":
            p = add("MatMul", [y, weight(f"{i}.{part}", width, width)])
            p = add("Transpose", [add("Reshape", [p, split])], perm=[0, 2, 1, 3])
            if part != "q":
                p = add("Concat", [f"past_{part}{i}", p], f"{part}{i}", axis=2)
                caches.append(p)
            parts.append(p)
        keys = add("Transpose", [parts[1]], perm=[0, 1, 3, 2])
        scores = add("Div", [add("MatMul", [parts[0], keys]),
                             given("root", np.sqrt(size), np.float32)])
        scores = add("Where", [seen, scores, given("nothing", -1e9, np.float32)])
        y = add("MatMul", [add("Softmax", [scores], axis=-1), parts[2]])
        y = add("Reshape", [add("Transpose", [y], perm=[0, 2, 1, 3]), joined])
        x = add("Add", [x, add("MatMul", [y, weight(f"{i}.o", width, width)])])
        y = add("MatMul", [norm(x, f"{i}.after"), weight(f"{i}.up", width, 4 * width)])
        y = add("Mul", [y, add("Sigmoid", [y])])
        x = add("Add", [x, add("MatMul", [y, weight(f"{i}.down", 4 * width, width)])])
    add("MatMul", [norm(x, "end"), add("Transpose", [table], perm=[1, 0])], "logits")

    inputs = [info("ids", ["batch", "n"], TensorProto.INT64)]
    inputs += [info(f"past_{c}", ["batch", heads, "past", size]) for c in caches]
    outputs = [info("logits", ["batch", "n", words])]
    outputs += [info(c, ["batch", heads, "total", size]) for c in caches]
    graph = helper.make_graph(
        nodes, "decoder", inputs, outputs,
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
