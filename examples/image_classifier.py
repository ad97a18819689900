"""Classifies images with a convolutional network: drawn digits in colour.

The network has the usual form: convolution, ReLU and pooling twice, a linear layer, softmax. To
need no file with weights, its filters are random and the linear layer is fitted here, by least
squares on the features that the network computes.

    python examples/image_classifier.py
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import webnn_vk as webnn

Floats = npt.NDArray[np.float32]
Images = npt.NDArray[np.uint8]

SIZE, BATCH, DIGITS = 16, 50, 10
FEATURES = 32 * (SIZE // 4) ** 2
# Rows of five pixels, as bits.
FONT = (
    "0E 11 13 15 19 11 0E", "04 0C 04 04 04 04 0E", "0E 11 01 02 04 08 1F", "1F 02 04 02 01 11 0E",
    "02 06 0A 12 1F 02 02", "1F 10 1E 01 01 11 0E", "06 08 10 1E 11 11 0E", "1F 01 02 04 08 08 08",
    "0E 11 11 0E 11 11 0E", "0E 11 11 0F 01 02 0C",
)


def draw(labels: npt.NDArray[np.intp], random: np.random.Generator) -> Images:
    """Noisy images [count, height, width, 3] of digits, as image files are read: bytes, channels
    last."""
    images = random.integers(0, 90, (len(labels), SIZE, SIZE, 3), np.uint8)
    for image, label in zip(images, labels, strict=True):
        bits = np.array([[int(row, 16) >> 4 - x & 1 for x in range(5)]
                         for row in FONT[label].split()], bool)
        digit = bits.repeat(2, axis=0).repeat(2, axis=1)
        top, left = random.integers(0, 3), random.integers(0, 7)
        image[top : top + 14, left : left + 10][digit] = random.integers(120, 256, 3)
    return images


def normalised(images: Images) -> Floats:
    """What the network takes: channels first, numbers around 0."""
    return images.transpose(0, 3, 1, 2).astype(np.float32) / 127.5 - 1


class Classifier:
    """The network on one context, for batches of `BATCH` images."""

    def __init__(self, context: webnn.MLContext, random: np.random.Generator) -> None:
        self.context = context
        # Output channels, input channels, height, width, as PyTorch stores them.
        self.filters = [
            random.normal(0, 0.2, (16, 3, 5, 5)).astype(np.float32),
            random.normal(0, 0.1, (32, 16, 3, 3)).astype(np.float32),
        ]
        builder = webnn.MLGraphBuilder(context)
        self.network = builder.build({"features": self.features(builder)}).result()

    def features(self, builder: webnn.MLGraphBuilder) -> webnn.MLOperand:
        """The part of the network before the linear layer."""
        x = builder.input("images", {"data_type": "float32", "shape": [BATCH, 3, SIZE, SIZE]})
        for number, (filter, edge) in enumerate(zip(self.filters, (2, 1), strict=True)):
            x = builder.conv2d(
                x, builder.constant(filter), padding=[edge] * 4, label=f"conv{number}"
            )
            x = builder.max_pool2d(builder.relu(x), window_dimensions=[2, 2], strides=[2, 2])
        return builder.reshape(x, [BATCH, FEATURES])

    def fit(self, images: Images, labels: npt.NDArray[np.intp]) -> None:
        """Fit the linear layer, and build the network with it."""
        known = self._run("features", images)
        wanted = np.eye(DIGITS, dtype=np.float32)[labels] * 8
        damping = 50 * np.eye(FEATURES, dtype=np.float32)
        weights = np.linalg.solve(known.T @ known + damping, known.T @ wanted)
        builder = webnn.MLGraphBuilder(self.context)
        scores = self.features(builder) @ builder.constant(weights)
        self.network = builder.build({"digits": builder.softmax(scores, 1)}).result()

    def classify(self, images: Images) -> Floats:
        """The probability of each digit, [count, 10]."""
        return self._run("digits", images)

    def _run(self, output: str, images: Images) -> Floats:
        parts = [images[start : start + BATCH] for start in range(0, len(images), BATCH)]
        return np.concatenate([
            self.context.compute(self.network, {"images": normalised(part)})[output]
            for part in parts
        ])


def main() -> float:
    """Fit and try the classifier; returns the share of unseen images that it gets right."""
    random = np.random.default_rng(7)
    with webnn.ml.create_context().result() as context:
        classifier = Classifier(context, random)
        seen, unseen = random.integers(0, DIGITS, 600), random.integers(0, DIGITS, 200)
        classifier.fit(draw(seen, random), seen)
        found = classifier.classify(draw(unseen, random))
        right = float((found.argmax(axis=1) == unseen).mean())
        print(f"{right:.1%} of {len(unseen)} unseen images are right, on {context.device_info}")
        return right


if __name__ == "__main__":
    main()
