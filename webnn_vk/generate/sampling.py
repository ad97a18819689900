"""The choice of the next token from its logits."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from webnn_vk.support.dataclass import dataclass


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen.

    ``temperature`` 0: the most probable token. Else the logits, divided by it, give probabilities,
    of which the ``top_k`` largest are kept (0: all), then the fewest largest whose sum reaches
    ``top_p``, then those of at least ``min_p`` times the largest. ``repetition_penalty`` divides
    positive logits of tokens that occurred before, and multiplies negative ones. ValueError for
    numbers out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        for name, valid, wanted in (
            ("temperature", 0 <= self.temperature < np.inf, "a number ≥ 0"),
            ("top_k", self.top_k >= 0 and self.top_k == int(self.top_k), "an integer ≥ 0"),
            ("top_p", 0 < self.top_p <= 1, "a number in (0, 1]"),
            ("min_p", 0 <= self.min_p <= 1, "a number in [0, 1]"),
            ("repetition_penalty", 0 < self.repetition_penalty < np.inf, "a number > 0"),
        ):
            if not valid:
                raise ValueError(f"{name} is {getattr(self, name)}; {wanted} is expected")

    @property
    def is_greedy(self) -> bool:
        """Whether the largest logit alone decides."""
        return self.temperature == 0 and self.repetition_penalty == 1

    def choose(
        self, logits: np.ndarray, seen: Iterable[int], generator: np.random.Generator
    ) -> int:
        """The next token. ``logits`` [vocabulary]; ``seen``: the tokens so far."""
        scores = logits.astype(np.float64)
        if self.repetition_penalty != 1:
            tokens = np.unique(np.fromiter(seen, np.int64))
            known = scores[tokens]
            scores[tokens] = np.where(
                known > 0, known / self.repetition_penalty, known * self.repetition_penalty
            )
        if self.temperature == 0:
            return int(np.argmax(scores))
        probabilities = self.probabilities(scores)
        return int(generator.choice(len(probabilities), p=probabilities))

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """The probabilities of the tokens, float64, for a temperature above 0."""
        scores = scores / self.temperature
        if 0 < self.top_k < len(scores):
            least = np.partition(scores, -self.top_k)[-self.top_k]
            scores = np.where(scores < least, -np.inf, scores)
        weights = np.exp(scores - np.max(scores))
        weights /= np.sum(weights)
        if self.top_p < 1:
            order = np.argsort(-weights, kind="stable")
            # A token is kept if those before it have less than top_p.
            before = np.cumsum(weights[order]) - weights[order]
            weights[order[before >= self.top_p]] = 0
        if self.min_p > 0:
            weights[weights < self.min_p * np.max(weights)] = 0
        return weights / np.sum(weights)
