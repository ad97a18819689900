"""ResNet-50 and BERT with random weights, and single operators, as graphs' outputs by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

#: A model: a function of the builder that returns its outputs by name.
Describe = Callable[[Any], dict[str, Any]]


def _input(b: Any, name: str, *shape: int) -> Any:
    return b.input(name, {"data_type": "float32", "shape": list(shape)})


class _Weights:
    """Random constants of a builder, scaled by the number of terms in a sum."""

    def __init__(self, b: Any) -> None:
        self.b, self.random = b, np.random.default_rng(0)

    def __call__(self, *shape: int, over: int = 1) -> Any:
        scale = np.float32(np.sqrt(1 / over))
        return self.b.constant(self.random.standard_normal(shape, np.float32) * scale)


def matmul(size: int) -> Describe:
    return lambda b: {"y": b.matmul(_input(b, "x", size, size), _input(b, "z", size, size))}


def convolution(channels: int, size: int, outputs: int, kernel: int, groups: int = 1) -> Describe:
    def describe(b: Any) -> dict[str, Any]:
        w, pad, inputs = _Weights(b), kernel // 2, channels // groups
        weight = w(outputs, inputs, kernel, kernel, over=inputs * kernel**2)
        x = _input(b, "x", 1, channels, size, size)
        return {"y": b.conv2d(x, weight, bias=w(outputs), padding=[pad] * 4, groups=groups)}

    return describe


def layer_norm(b: Any) -> dict[str, Any]:
    w = _Weights(b)
    return {"y": b.layer_normalization(_input(b, "x", 128, 768), scale=w(768), bias=w(768))}


def softmax(b: Any) -> dict[str, Any]:
    return {"y": b.softmax(_input(b, "x", 12, 128, 128), 2)}


def chain(b: Any) -> dict[str, Any]:
    x, z = _input(b, "x", 1024, 1024), _input(b, "z", 1024, 1024)
    y = x
    for other in (z, x, z):
        y = b.relu(b.add(y, other))
    return {"y": y}


def resnet50(b: Any) -> dict[str, Any]:
    w = _Weights(b)

    def conv(x: Any, channels: int, size: int, stride: int = 1, relu: bool = True) -> Any:
        inputs, pad = x.shape[1], size // 2
        weight = w(channels, inputs, size, size, over=inputs * size**2)
        y = b.conv2d(x, weight, bias=w(channels, over=9), padding=[pad] * 4,
                     strides=[stride] * 2)
        return b.relu(y) if relu else y

    x = conv(_input(b, "x", 1, 3, 224, 224), 64, 7, 2)
    x = b.max_pool2d(x, window_dimensions=[3, 3], padding=[1] * 4, strides=[2, 2])
    for stage, (channels, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for number in range(count):
            stride = 2 if stage and not number else 1
            y = conv(conv(conv(x, channels, 1, stride), channels, 3), 4 * channels, 1, relu=False)
            short = x if number else conv(x, 4 * channels, 1, stride, relu=False)
            x = b.relu(b.add(short, y))
    x = b.reshape(b.average_pool2d(x), [1, 2048])
    return {"y": b.gemm(x, w(2048, 1000, over=2048), c=w(1000))}


def bert(layers: int, tokens: int = 128, width: int = 768, heads: int = 12) -> Describe:
    def describe(b: Any) -> dict[str, Any]:
        w, size = _Weights(b), width // heads

        def linear(x: Any, outputs: int) -> Any:
            inputs = x.shape[-1]
            return b.add(b.matmul(x, w(inputs, outputs, over=inputs)), w(outputs, over=99))

        def norm(x: Any) -> Any:
            return b.layer_normalization(x, scale=w(width), bias=w(width), axes=[2])

        def split(x: Any, order: list[int]) -> Any:
            return b.transpose(b.reshape(x, [1, tokens, heads, size]), permutation=order)

        x = norm(_input(b, "x", 1, tokens, width))
        for _ in range(layers):
            q, k, v = (
                split(linear(x, width), order)
                for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
            )
            scores = b.softmax(b.div(b.matmul(q, k), b.constant("float32", size**0.5)), 3)
            y = b.transpose(b.matmul(scores, v), permutation=[0, 2, 1, 3])
            x = norm(b.add(x, linear(b.reshape(y, [1, tokens, width]), width)))
            x = norm(b.add(x, linear(b.gelu(linear(x, 4 * width)), width)))
        return {"y": x}

    return describe


def bert_multiply_adds(layers: int, tokens: int = 128, width: int = 768) -> int:
    """The multiply-adds of one run of `bert`, of its products alone."""
    return layers * (12 * width**2 * tokens + 2 * width * tokens**2)


WORKLOADS: dict[str, Describe] = {
    "matmul 512": matmul(512),
    "conv 3×3, 64 → 64, 56²": convolution(64, 56, 64, 3),
    "conv 1×1, 128 → 512, 28²": convolution(128, 28, 512, 1),
    "depthwise 3×3, 32, 112²": convolution(32, 112, 32, 3, 32),
    "layer norm 128 × 768": layer_norm,
    "softmax 12 × 128 × 128": softmax,
    "add and relu, 1024²": chain,
    "BERT, 2 layers, 128 tokens": bert(2),
    "ResNet-50": resnet50,
}
