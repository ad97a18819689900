"""The sweeps: models, the sizes that they are built in, and their multiply-adds at a size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..models import classic, mobilenet_v2

LAYERS = 2


@dataclass(frozen=True)
class Sweep:
    """``build``: context, size → promise of a graph; ``multiply_adds``: size → of one run."""

    title: str
    unit: str
    sizes: tuple[int, ...]
    build: Callable[[Any, int], Any]
    multiply_adds: Callable[[int], int]


def _bert(context: Any, tokens: int) -> Any:
    import webnn_vk

    builder = webnn_vk.MLGraphBuilder(context)
    return builder.build(classic.bert(LAYERS, tokens)(builder))


#: Between the powers of two are sizes that tiles and vectors don't divide.
SWEEPS: Mapping[str, Sweep] = {
    "tokens": Sweep(
        "BERT, 2 layers: sequence length", "tokens",
        (64, 100, 128, 197, 256, 384, 512, 768, 1000, 1024, 1536, 2048),
        _bert,
        lambda tokens: classic.bert_multiply_adds(LAYERS, tokens),
    ),
    "image": Sweep(
        "MobileNetV2: image size", "pixels a side",
        (128, 160, 192, 224, 256, 300, 384, 448, 512, 640, 768, 1000, 1024),
        lambda context, side: mobilenet_v2.build(context, shape=(1, 3, side, side)),
        lambda side: mobilenet_v2.multiply_adds(1, side),
    ),
    "batch": Sweep(
        "MobileNetV2, 224²: batch", "images",
        (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64),
        lambda context, batch: mobilenet_v2.build(context, shape=(batch, 3, 224, 224)),
        lambda batch: mobilenet_v2.multiply_adds(batch),
    ),
}
