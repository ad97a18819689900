"""The graphs of several stages, with random weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .measured_graph import add_constant, add_input


def integer_product(b: Any, m: int, k: int, w: np.ndarray) -> dict[str, Any]:
    """A product of uint8 inputs with constant int8 weights, both dequantised."""
    scale = b.constant(np.full((1, 1), 0.01, np.float32))
    x = b.dequantize_linear(add_input(b, "a", "uint8", m, k), scale,
                            b.constant(np.full((1, 1), 128, np.uint8)))
    return {"y": b.matmul(x, b.dequantize_linear(b.constant(w), scale,
                                                 b.constant(np.zeros((1, 1), np.int8))))}


def attention(b: Any, dtype: str, heads: int, rows: int, keys: int) -> dict[str, Any]:
    """Attention by heads of 64 elements."""
    x, y, z = (add_input(b, name, dtype, heads, n, 64)
               for name, n in (("q", rows), ("k", keys), ("v", keys)))
    scores = b.mul(b.matmul(x, b.transpose(y, permutation=[0, 2, 1])),
                   b.constant(np.full((1,), 0.125, dtype)))
    return {"y": b.matmul(b.softmax(scores, 2), z)}


def encoder(b: Any, dtype: str, batch: int, tokens: int, width: int, layers: int, heads: int,
            inner: int) -> dict[str, Any]:
    """An encoder as BERT has it, from embeddings on."""
    size, x = width // heads, add_input(b, "x", dtype, batch * tokens, width)
    one, zero = np.ones(width, dtype), np.zeros(width, dtype)

    def dense(v: Any, i: int, o: int) -> Any:
        return b.gemm(v, add_constant(b, dtype, i, o, over=i), c=add_constant(b, dtype, o, over=99))

    def normal(v: Any) -> Any:
        return b.layer_normalization(v, scale=b.constant(one), bias=b.constant(zero), axes=[1])

    def split(v: Any) -> Any:
        return b.transpose(b.reshape(v, [batch, tokens, heads, size]), permutation=[0, 2, 1, 3])

    for _ in range(layers):
        q, k, v = (split(dense(x, width, width)) for _ in range(3))
        scores = b.mul(b.matmul(q, b.transpose(k, permutation=[0, 1, 3, 2])),
                       b.constant(np.full((1,), size**-0.5, dtype)))
        y = b.transpose(b.matmul(b.softmax(scores, 3), v), permutation=[0, 2, 1, 3])
        x = normal(b.add(x, dense(b.reshape(y, [batch * tokens, width]), width, width)))
        x = normal(b.add(x, dense(b.gelu(dense(x, width, inner)), inner, width)))
    return {"y": x}


def _conv(b: Any, dtype: str, x: Any, o: int, k: int, stride: int = 1, groups: int = 1) -> Any:
    c = x.shape[1] // groups
    return b.conv2d(x, add_constant(b, dtype, o, c, k, k, over=max(1, c * k * k * 2 // 3)),
                    bias=add_constant(b, dtype, o, over=99), padding=[k // 2] * 4,
                    strides=[stride] * 2, groups=groups)


def _classes(b: Any, dtype: str, x: Any) -> dict[str, Any]:
    c = x.shape[1]
    x = b.reshape(b.average_pool2d(x), [x.shape[0], c])
    return {"y": b.gemm(x, add_constant(b, dtype, c, 1000, over=c), c=add_constant(b, dtype, 1000))}


def resnet50(b: Any, dtype: str, batch: int) -> dict[str, Any]:
    conv = partial(_conv, b, dtype)
    x = b.relu(conv(add_input(b, "x", dtype, batch, 3, 224, 224), 64, 7, 2))
    x = b.max_pool2d(x, window_dimensions=[3, 3], padding=[1] * 4, strides=[2, 2])
    for stage, (c, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for number in range(count):
            stride = 2 if stage and not number else 1
            y = conv(b.relu(conv(b.relu(conv(x, c, 1)), c, 3, stride)), 4 * c, 1)
            short = x if number else conv(x, 4 * c, 1, stride)
            # A factor keeps random weights' sums in float16's range.
            x = b.relu(b.add(short, b.mul(y, b.constant(np.full((1,), 0.2, dtype)))))
    return _classes(b, dtype, x)


def mobilenet_v2(b: Any, dtype: str, batch: int) -> dict[str, Any]:
    def conv(x: Any, *arguments: int) -> Any:
        return b.clamp(_conv(b, dtype, x, *arguments), min_value=0, max_value=6)

    x = conv(add_input(b, "x", dtype, batch, 3, 224, 224), 32, 3, 2)
    for expand, o, count, first in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
                                    (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for number in range(count):
            stride, c = first if not number else 1, x.shape[1]
            y = conv(x, expand * c, 1) if expand > 1 else x
            y = _conv(b, dtype, conv(y, expand * c, 3, stride, expand * c), o, 1)
            x = b.add(x, y) if stride == 1 and c == o else y
    return _classes(b, dtype, conv(x, 1280, 1))
