"""Random shapes, arrays and attributes of nodes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from tests.support.onnx_nodes import Node

T = TypeVar("T")


def node(
    operator: str, inputs: Sequence[np.ndarray | None], attributes: dict[str, Any] | None = None,
    outputs: int = 1, **more: Any,
) -> Node:
    """A node of ONNX's own operators."""
    return Node(operator, inputs, attributes or {}, outputs, "", **more)


def whole(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


class Draw:
    """Draws from ``rng``. Arrays are of ordinary numbers: what is compared are definitions."""

    def __init__(self, rng: random.Random) -> None:
        self.choice, self.sample, self.uniform = rng.choice, rng.sample, rng.uniform
        self.between = rng.randint
        self._numbers = np.random.default_rng(rng.randrange(2**32))

    def up_to(self, most: int) -> int:
        """A number from 1 on."""
        return self.between(1, most)

    def chance(self, share: float) -> bool:
        return self.uniform(0, 1) < share

    def coin(self) -> bool:
        return self.chance(0.5)

    def maybe(self, value: T) -> T | None:
        """The value, or nothing."""
        return value if self.chance(0.4) else None

    def some(self, **attributes: Any) -> dict[str, Any]:
        """Some of the attributes; the others are left at their defaults."""
        return {name: value for name, value in attributes.items() if self.chance(0.3)}

    def shape(self, least: int, most: int) -> list[int]:
        """Dimensions, ``least`` to ``most`` of them."""
        return [self.up_to(6) for _ in range(self.between(least, most))]

    def axis(self, shape: Sequence[int]) -> int:
        """One of the axes, counted from either end."""
        return self.between(-len(shape), len(shape) - 1)

    def some_axes(self, shape: Sequence[int]) -> list[int]:
        """One or more of the axes, counted from either end."""
        rank = len(shape)
        chosen = self.sample(range(rank), self.up_to(rank))
        return [axis - rank if self.chance(0.3) else axis for axis in chosen]

    def floats(self, shape: Sequence[int]) -> np.ndarray:
        return self._numbers.normal(size=tuple(shape)).astype(np.float32)

    def integers(
        self, low: int, high: int, shape: Sequence[int], data_type: str = "int64"
    ) -> np.ndarray:
        """From ``low`` on, below ``high``."""
        return np.asarray(self._numbers.integers(low, high, tuple(shape))).astype(data_type)
