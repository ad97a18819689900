"""A sentence encoder in the form that PyTorch's exporter gives it: open dimensions, and arithmetic
of shapes (Shape, Gather, Concat, Reshape, ConstantOfShape, Where, Expand, Range, Slice)."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

from tests.support.onnx_models import info, model

INT64 = TensorProto.INT64


def encoder(
    rng: np.random.Generator, layers: int = 1, width: int = 32, heads: int = 4,
    vocabulary: int = 100, longest: int = 512, inner: int | None = None,
) -> ModelProto:
    """``input_ids`` and ``attention_mask`` [batch, tokens] → ``sentence_embedding``
    [batch, width] of length 1, and ``last_hidden_state``."""
    made = _Encoder(rng)
    inner = inner or 2 * width
    ids, mask = "input_ids", "attention_mask"
    tokens = made.dimension(ids, 1)
    # Positions are a window of a table, kinds of tokens a table that is expanded.
    table = made.constant(np.arange(longest)[None])
    positions = made.node("Slice", table, made.vector(0), tokens, made.vector(1))
    both = made.node("Shape", ids)
    kinds = made.node("Expand", made.constant(np.zeros((1, 1), np.int64)), both)
    x = made.node("Gather", made.weight(vocabulary, width), ids)
    x = made.node("Add", x, made.node("Gather", made.weight(2, width), kinds))
    x = made.node("Add", x, made.node("Gather", made.weight(longest, width), positions))
    x = made.norm(x, width)
    bias = made.mask(ids, mask)
    for _ in range(layers):
        x = made.norm(made.node("Add", made.attention(x, bias, width, heads), x), width)
        y = made.linear(x, width, inner)
        erf = made.node("Erf", made.node("Div", y, made.constant(np.float32(2**0.5))))
        y = made.node("Mul", y, made.node("Add", erf, made.constant(np.float32(1))))
        y = made.node("Mul", y, made.constant(np.float32(0.5)))
        x = made.norm(made.node("Add", made.linear(y, inner, width), x), width)
    # Mean over the tokens that the mask has, as sentence-transformers computes it.
    wide = made.node("Unsqueeze", mask, made.vector(-1))
    shape = made.node("Shape", x)
    wide = made.node("Cast", made.node("Expand", wide, shape), to=TensorProto.FLOAT)
    total = made.node("ReduceSum", made.node("Mul", x, wide), made.vector(1), keepdims=0)
    count = made.node("ReduceSum", wide, made.vector(1), keepdims=0)
    mean = made.node("Div", total, made.node("Clip", count, made.constant(np.float32(1e-9))))
    length = made.node("ReduceL2", mean, made.vector(1), keepdims=1)
    length = made.node("Expand", made.node("Clip", length, made.constant(np.float32(1e-12))),
                       made.node("Shape", mean))
    made.nodes += [
        helper.make_node("Div", [mean, length], ["sentence_embedding"]),
        helper.make_node("Identity", [x], ["last_hidden_state"]),
    ]
    return model(
        made.nodes, [info(ids, ["batch", "tokens"], INT64), info(mask, ["batch", "tokens"], INT64)],
        [info("sentence_embedding", ["batch", width]),
         info("last_hidden_state", ["batch", "tokens", width])], made.stored,
    )


class _Encoder:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[Any] = []
        self.stored: dict[str, np.ndarray] = {}

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def constant(self, array: Any) -> str:
        name = f"c{len(self.stored)}"
        self.stored[name] = np.asarray(array)
        return name

    def vector(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def weight(self, *shape: int) -> str:
        return self.constant(self.rng.uniform(-0.1, 0.1, shape).astype(np.float32))

    def dimension(self, x: str, axis: int) -> str:
        """A dimension as a tensor of one element."""
        size = self.node("Gather", self.node("Shape", x), self.constant(np.int64(axis)))
        return self.node("Unsqueeze", size, self.vector(0))

    def norm(self, x: str, width: int) -> str:
        return self.node("LayerNormalization", x, self.weight(width), self.weight(width),
                         epsilon=1e-12)

    def linear(self, x: str, width: int, to: int) -> str:
        return self.node("Add", self.weight(to), self.node("MatMul", x, self.weight(width, to)))

    def mask(self, ids: str, mask: str) -> str:
        """0 where tokens are seen, and very low numbers elsewhere, [batch, 1, tokens, tokens]."""
        batch, tokens = self.dimension(ids, 0), self.dimension(ids, 1)
        wide = self.node("Unsqueeze", self.node("Unsqueeze", mask, self.vector(1)), self.vector(2))
        shape = self.node("Concat", batch, self.vector(1), tokens, tokens, axis=0)
        ones = self.node("ConstantOfShape", self.node("Shape", shape))
        ones = self.node("Cast", ones, to=INT64)
        ones = self.node("Add", ones, self.vector(1))
        given = self.node("Equal", shape, self.node("Mul", ones, self.constant(np.int64(-1))))
        shape = self.node("Where", given, ones, shape)
        seen = self.node("Cast", self.node("Expand", wide, shape), to=TensorProto.FLOAT)
        hidden = self.node("Sub", self.constant(np.float32(1)), seen)
        return self.node("Mul", hidden, self.constant(np.finfo(np.float32).min))

    def attention(self, x: str, bias: str, width: int, heads: int) -> str:
        batch, tokens = self.dimension(x, 0), self.dimension(x, 1)

        def split(y: str, *order: int) -> str:
            shape = self.node("Concat", batch, tokens, self.vector(heads), self.vector(-1), axis=0)
            return self.node("Transpose", self.node("Reshape", y, shape), perm=order)

        query = split(self.linear(x, width, width), 0, 2, 1, 3)
        key = split(self.linear(x, width, width), 0, 2, 3, 1)
        value = split(self.linear(x, width, width), 0, 2, 1, 3)
        scores = self.node("MatMul", query, key)
        scores = self.node("Div", scores, self.constant(np.float32((width // heads) ** 0.5)))
        weights = self.node("Softmax", self.node("Add", scores, bias), axis=-1)
        y = self.node("Transpose", self.node("MatMul", weights, value), perm=(0, 2, 1, 3))
        shape = self.node("Concat", batch, tokens, self.vector(width), axis=0)
        return self.linear(self.node("Reshape", y, shape), width, width)
