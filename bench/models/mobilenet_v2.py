"""MobileNetV2 (1.0, 224×224) with He-scaled random weights, batch normalisation folded in."""

from __future__ import annotations

from typing import Any

import numpy as np

import webnn_vk

INPUT_SHAPE = (1, 3, 224, 224)
CLASSES = 1000
# Expansion, output channels, repetitions, stride of the first: table 2 of the MobileNetV2 paper.
BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def image(seed: int = 1) -> np.ndarray:
    """A random float32 image of `INPUT_SHAPE`, normally distributed as normalised photos are."""
    return np.random.default_rng(seed).standard_normal(INPUT_SHAPE, np.float32)


def multiply_adds(batch: int = 1, side: int = 224) -> int:
    """The multiply-adds of one run on `batch` square images, of convolutions and the last product
    alone."""
    side = -(-side // 2)
    count, channels = 3 * 9 * 32 * side**2, 32
    for expansion, outputs, repetitions, first_stride in BLOCKS:
        for repetition in range(repetitions):
            inner = channels * expansion
            if expansion > 1:
                count += channels * inner * side**2
            side = -(-side // (first_stride if repetition == 0 else 1))
            count += (9 + outputs) * inner * side**2
            channels = outputs
    return batch * (count + channels * 1280 * side**2 + 1280 * CLASSES)


def build(context: Any, seed: int = 0, shape: tuple[int, int, int, int] = INPUT_SHAPE) -> Any:
    """Promise of the graph that `describe` describes."""
    b = webnn_vk.MLGraphBuilder(context)
    return b.build(describe(b, seed, shape))


def describe(
    b: Any, seed: int = 0, shape: tuple[int, int, int, int] = INPUT_SHAPE
) -> dict[str, Any]:
    """Outputs of a builder: "image" float32 of ``shape`` → "logits" float32 [shape[0], 1000]."""
    random = np.random.default_rng(seed)

    def weights(shape: tuple[int, ...], fan_in: int, gain: float) -> Any:
        scale = np.float32(np.sqrt(gain / fan_in))
        return b.constant(random.standard_normal(shape, np.float32) * scale)

    def conv(
        x: Any,
        channels: int,
        size: int,
        *,
        stride: int = 1,
        groups: int = 1,
        relu: bool,
        label: str,
    ) -> Any:
        per_group = x.shape[1] // groups
        # Gain 2 makes up for what the activation cuts off, so that the signal keeps its scale.
        w = weights((channels, per_group, size, size), per_group * size * size, 2 if relu else 1)
        bias = b.constant(random.standard_normal(channels, np.float32) * np.float32(0.1))
        pad = size // 2
        x = b.conv2d(
            x,
            w,
            bias=bias,
            padding=[pad, pad, pad, pad],
            strides=[stride, stride],
            groups=groups,
            label=label,
        )
        return b.clamp(x, min_value=0, max_value=6) if relu else x

    x = b.input("image", {"data_type": "float32", "shape": list(shape)})
    x = conv(x, 32, 3, stride=2, relu=True, label="stem")
    number = 0
    for expansion, channels, repetitions, first_stride in BLOCKS:
        for repetition in range(repetitions):
            stride = first_stride if repetition == 0 else 1
            block, y, inner = f"block{number}", x, x.shape[1] * expansion
            if expansion > 1:
                y = conv(y, inner, 1, relu=True, label=f"{block}.expand")
            y = conv(
                y, inner, 3, stride=stride, groups=inner, relu=True, label=f"{block}.depthwise"
            )
            y = conv(y, channels, 1, relu=False, label=f"{block}.project")
            same = stride == 1 and x.shape[1] == channels
            x = b.add(x, y, label=f"{block}.add") if same else y
            number += 1
    x = conv(x, 1280, 1, relu=True, label="head")
    x = b.reshape(b.average_pool2d(x), [shape[0], 1280])
    logits = b.gemm(
        x, weights((1280, CLASSES), 1280, 1), c=b.constant(np.zeros(CLASSES, np.float32))
    )
    return {"logits": logits}
