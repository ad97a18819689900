"""Text generation: decoder models of Hugging Face folders and GGUF files, with their cache on the
device.

Needs the extra ``generate``. ``Model.load`` opens a model; ``generate``, ``stream`` and
``session`` write text with it (docs/generation.md). Imports `onnx/` and the folders below it.
"""

from __future__ import annotations

from webnn_vk.support import packages

if _missing := packages.problem("webnn_vk.generate needs", "generation"):
    raise packages.MissingPackages(_missing)

from .errors import InvalidModelError, UnsupportedModelError
from .model import Model
from .sampling import Sampling
from .session import Session, TextStream
from .tokens import Tokenizer

__all__ = [
    "InvalidModelError",
    "Model",
    "Sampling",
    "Session",
    "TextStream",
    "Tokenizer",
    "UnsupportedModelError",
]
