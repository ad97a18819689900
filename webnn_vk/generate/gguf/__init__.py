"""A model's GGUF file, the format of llama.cpp."""

from __future__ import annotations

from pathlib import Path

from webnn_vk.generate.source import ModelSource
from webnn_vk.support import packages

from .config import decoder_config
from .file import GgufFile
from .tokenizer import tokenizer_of
from .weights import GgufWeights


def open_gguf(path: Path) -> ModelSource:
    """The model of a file. InvalidModelError if it is damaged; UnsupportedModelError for an
    architecture, an option or a type of tensor that is not implemented."""
    packages.require("GGUF files need", "gguf")
    file = GgufFile(path)
    config = decoder_config(file)
    tokenizer, stop_tokens = tokenizer_of(file.metadata, config.vocabulary)
    return ModelSource(
        config, GgufWeights(file, config), tokenizer, stop_tokens=stop_tokens
    )
