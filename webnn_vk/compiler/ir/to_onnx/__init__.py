"""One rule per operator that writes it in ONNX, by families: see ``writer.rule``."""

from . import (
    elementwise,
    gather,
    movement,
    normalization,
    pooling,
    product,
    quantization,
    recurrent,
    reduction,
    repeat,
    resample,
)
from .writer import RULES, Fragment, Inexpressible, Tensor, write

__all__ = [
    "RULES",
    "Fragment",
    "Inexpressible",
    "Tensor",
    "elementwise",
    "gather",
    "movement",
    "normalization",
    "pooling",
    "product",
    "quantization",
    "recurrent",
    "reduction",
    "repeat",
    "resample",
    "write",
]
