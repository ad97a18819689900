"""A transformer's encoder over batches of token ids, with weights that several graphs share.

    python examples/transformer_encoder.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import webnn_vk as webnn

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS = 100, 12, 64, 4, 2
DEPTH = WIDTH // HEADS

Arrays = dict[str, npt.NDArray[np.float32]]


def random_weights(random: np.random.Generator) -> Arrays:
    """Weights by name; a trained model's would come from a file."""

    def matrix(rows: int, columns: int) -> npt.NDArray[np.float32]:
        return random.normal(0, rows**-0.5, (rows, columns)).astype(np.float32)

    weights = {"words": matrix(VOCABULARY, WIDTH), "positions": matrix(LENGTH, WIDTH)}
    for layer in range(LAYERS):
        for name in ("query", "key", "value", "output"):
            weights[f"{layer}.{name}"] = matrix(WIDTH, WIDTH)
        weights[f"{layer}.up"] = matrix(WIDTH, 4 * WIDTH)
        weights[f"{layer}.down"] = matrix(4 * WIDTH, WIDTH)
    return weights


@dataclass
class Encoder:
    """Weights as constant tensors: on the device once, however many graphs use them."""

    context: webnn.MLContext
    weights: dict[str, webnn.MLTensor]

    @classmethod
    def of(cls, context: webnn.MLContext, weights: Arrays) -> Encoder:
        """The encoder with these weights."""
        tensors = {
            name: context.create_constant_tensor(
                {"data_type": "float32", "shape": array.shape}, array
            ).result()
            for name, array in weights.items()
        }
        return cls(context, tensors)

    def build(self, batch: int) -> webnn.MLGraph:
        """The graph for a batch: "ids" int32 [batch, LENGTH] and "mask" float32 [batch, LENGTH], 1
        for a token and 0 for padding, to "sentences" float32 [batch, WIDTH]."""
        b = webnn.MLGraphBuilder(self.context)
        weight = {name: b.constant(tensor) for name, tensor in self.weights.items()}
        ids = b.input("ids", {"data_type": "int32", "shape": [batch, LENGTH]})
        mask = b.input("mask", {"data_type": "float32", "shape": [batch, LENGTH]})
        hidden = (b.reshape(mask, [batch, 1, 1, LENGTH]) - 1) * 1e9

        def heads(x: webnn.MLOperand, permutation: list[int]) -> webnn.MLOperand:
            split = b.reshape(x, [batch, LENGTH, HEADS, DEPTH])
            return b.transpose(split, permutation=permutation)

        x = b.gather(weight["words"], ids, axis=0) + weight["positions"]
        for layer in range(LAYERS):
            normal = b.layer_normalization(x, axes=[2])
            query = heads(normal @ weight[f"{layer}.query"], [0, 2, 1, 3])
            key = heads(normal @ weight[f"{layer}.key"], [0, 2, 3, 1])
            value = heads(normal @ weight[f"{layer}.value"], [0, 2, 1, 3])
            scores = query @ key / math.sqrt(DEPTH) + hidden
            attended = b.softmax(scores, 3, label=f"attention {layer}") @ value
            attended = b.transpose(attended, permutation=[0, 2, 1, 3])
            attended = b.reshape(attended, [batch, LENGTH, WIDTH])
            x = x + attended @ weight[f"{layer}.output"]
            inner = b.gelu(b.layer_normalization(x, axes=[2]) @ weight[f"{layer}.up"])
            x = x + inner @ weight[f"{layer}.down"]
        kept = b.reshape(mask, [batch, LENGTH, 1])
        mean = b.reduce_sum(x * kept, axes=[1]) / b.reduce_sum(kept, axes=[1])
        return b.build({"sentences": mean}).result()


def padded(sentences: list[list[int]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Token ids and mask of sentences."""
    ids = np.zeros((len(sentences), LENGTH), np.int32)
    mask = np.zeros((len(sentences), LENGTH), np.float32)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)] = sentence
        mask[row, : len(sentence)] = 1
    return ids, mask


def main() -> npt.NDArray[np.float32]:
    """Encode three sentences at once, and one of them alone; returns the three."""
    sentences = [[3, 14, 15, 92, 65], [35, 89, 79, 32, 38, 46, 26, 43], [3, 14]]
    with webnn.ml.create_context().result() as context:
        encoder = Encoder.of(context, random_weights(np.random.default_rng(1)))
        ids, mask = padded(sentences)
        together = context.compute(encoder.build(3), {"ids": ids, "mask": mask})["sentences"]
        one = context.compute(encoder.build(1), {"ids": ids[:1], "mask": mask[:1]})["sentences"]
        apart = float(np.abs(together[0] - one[0]).max())
        print(f"alone or in a batch: {apart:.1e} apart, on {context.device_info}")
        return together


if __name__ == "__main__":
    main()
