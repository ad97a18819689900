"""What kind of file some bytes are, by a trained network (magika) that runs as an ONNX model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from .weights import Weights

_PACKAGE = ("magika", "1.0.3")
MODEL = Weights(
    *_PACKAGE, "models/standard_v3_3/model.onnx",
    "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
)
CONFIG = Weights(
    *_PACKAGE, "models/standard_v3_3/config.min.json",
    "ae24c742205358f6ff6dfd5facb6743fb69743dbba8373e73da58ff0cbd695db",
)


class FileTypes:
    """Names the types of files, on one context. `WeightsError` where the weights are missing."""

    def __init__(self, context: Any) -> None:
        from webnn_vk.onnx import Session

        self.config = json.loads(CONFIG.path().read_text(encoding="utf-8"))
        self.session = Session(MODEL.path(), context)

    def of(self, contents: Sequence[bytes]) -> list[tuple[str, float]]:
        """The type of each file and the network's score for it, 0 to 1; "unknown" for bytes that
        look random, and "txt" for such text."""
        batch = np.stack([features(data, self.config) for data in contents])
        scores = self.session.run(None, {"bytes": batch})[0]
        labels = [self.config["target_labels_space"][i] for i in scores.argmax(axis=1)]
        renamed = self.config["overwrite_map"]
        return [
            (renamed.get(label, label), float(score))
            for label, score in zip(labels, scores.max(axis=1), strict=True)
        ]


def features(data: bytes, config: dict[str, Any]) -> np.ndarray:
    """What the network sees of a file, int32 [2048]: its first and its last bytes, blanks around
    them left out; what is missing is filled up with a number that is no byte."""
    block, first, last = config["block_size"], config["beg_size"], config["end_size"]
    made = np.full(first + last, config["padding_token"], np.int32)
    start = np.frombuffer(data[:block].lstrip()[:first], np.uint8)
    end = np.frombuffer(data[-block:].rstrip()[-last:], np.uint8)
    made[: len(start)] = start
    made[first + last - len(end) :] = end
    return made
