"""Values of a model while it is imported."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from webnn_vk.api.builder import MLOperand
from webnn_vk.support.dataclass import dataclass

from .errors import NeedsValue


@dataclass(slots=True, eq=False, repr=False)
class Tensor:
    """A tensor of the model: known at import (``array``) or computed by the graph.

    ``type`` is its ONNX data type by NumPy's name. ``made`` is the MLOperand, for a known tensor a
    constant that ``make`` makes on first use. ``sources`` names the model inputs that a computed
    one's values depend on. ``sizes``: its elements, where some are known only at dispatch.
    """

    type: str
    shape: tuple[int, ...]
    array: np.ndarray | None = None
    made: MLOperand | None = None
    make: Callable[[Tensor], MLOperand] | None = None
    sources: frozenset[str] = frozenset()
    sizes: np.ndarray | None = None

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def known(self) -> bool:
        """Whether the value is known at import."""
        return self.array is not None

    @property
    def operand(self) -> MLOperand:
        """The operand on the builder; Unsupported when WebNN has no such constant."""
        if self.made is None:
            assert self.make is not None
            self.made = self.make(self)
        return self.made

    def value(self, what: str) -> np.ndarray:
        """The array, or NeedsValue. Sizes that are known at dispatch are fixed by this."""
        if self.sizes is not None:
            fixed = [int(size) for size in self.sizes.reshape(-1).tolist()]
            return np.array(fixed, self.type).reshape(self.shape)
        if self.array is None:
            raise NeedsValue(self, what)
        return self.array

    def elements(self, what: str) -> list[Any]:
        """The elements of the array, sizes that are known at dispatch among them, or NeedsValue."""
        return (self.value(what) if self.sizes is None else self.sizes).reshape(-1).tolist()

    def __repr__(self) -> str:
        return f"<{'known' if self.known else 'computed'} {self.type}{list(self.shape)}>"


@dataclass(frozen=True)
class TensorList:
    """A sequence (or, with at most one item, an optional), its length known at import."""

    items: tuple[Tensor, ...]


@dataclass(frozen=True)
class Text:
    """A tensor of strings: which of the ``words`` each is."""

    codes: Tensor
    words: tuple[str, ...]


@dataclass(frozen=True)
class Maps:
    """A sequence of maps, one for each row of ``values``, from ``keys`` to its elements; ``source``
    is what the model calls these."""

    values: Tensor
    keys: tuple[int | str, ...]
    source: str


@dataclass(frozen=True)
class Missing:
    """The output of a node that failed: what uses it is passed over without a word of its own."""


Value = Tensor | TensorList | Text | Maps | Missing
