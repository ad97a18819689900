"""What a model's files say, whatever their format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Protocol

import numpy as np

from webnn_vk.support.dataclass import dataclass

from .blocks import Blocks
from .config import DecoderConfig
from .sampling import Sampling
from .tokens import Tokenizer


class WeightSource(Protocol):
    """The weights of a model by the names that Hugging Face's transformers gives them, without the
    first part ("layers.0.mlp.up_proj.weight", "h.0.attn.c_attn.weight")."""

    def array(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """A tensor's elements, read-only: float32, or float16 where they are stored so.
        InvalidModelError if it is missing or has another shape."""
        ...

    def blocks(self, name: str, shape: tuple[int, int]) -> Blocks | None:
        """A matrix as it is quantised in the file, [outputs, inputs] in every architecture; None
        for one of floats. ``shape`` and errors as for ``array``."""
        ...

    def release(self) -> None:
        """Take what was read of the files out of the resident memory: it is on the device."""
        ...

    def unused(self) -> Iterator[str]:
        """The tensors that nothing has read, although they could change the result."""
        ...


@dataclass(frozen=True)
class ModelSource:
    """``tokenizer``: None if the files have none. ``defaults`` of sampling; ``stop_tokens`` end a
    text."""

    config: DecoderConfig
    weights: WeightSource
    tokenizer: Tokenizer | None
    defaults: Sampling = field(default_factory=Sampling)
    stop_tokens: frozenset[int] = frozenset()
