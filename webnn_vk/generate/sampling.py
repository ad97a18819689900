"""The choice of the next token from its logits.

A token is drawn by adding noise to the logits, divided by the temperature: the largest sum wins,
which each token does with its probability (the Gumbel-max trick). The noise of a token is a
function of its number and of two random words, so that a device can choose as the host does
(``chooser``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from webnn_vk.support.dataclass import dataclass

from .fields import real, whole

#: Noise: the words are mixed in this order, after each multiple of the token's number.
MULTIPLE, ROUNDS = 0x9E3779B1, (1, 0, 1, 0)
#: Uniform numbers are between these; of numbers below SMALL a series is the exponential variable,
#: since the logarithm of 1 - w would lose digits.
TINY, SMALL, ALMOST_ONE = (np.float32(n) for n in (2.0**-33, 2.0**-8, 1 - 2.0**-24))
#: Factors and divisors of logits are at most this, and at least its inverse.
LARGE = 1e18


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen.

    ``temperature`` 0: the most probable token. Else the logits, divided by it, give probabilities,
    of which the ``top_k`` largest are kept (0: all), then the fewest largest whose sum reaches
    ``top_p``, then all of at least ``min_p`` times the largest. Equal probabilities are kept or
    dropped together. ``repetition_penalty`` divides positive logits of tokens that occurred
    before, and multiplies negative ones. ValueError for numbers out of range, TypeError for what
    is no number.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "top_k", whole("top_k", self.top_k))
        # The least number above 0, and the largest.
        above, large = 5e-324, np.finfo(np.float64).max
        for name, least, most, wanted in (
            ("temperature", 0, large, "a number ≥ 0"), ("top_p", above, 1, "a number in (0, 1]"),
            ("min_p", 0, 1, "a number in [0, 1]"),
            ("repetition_penalty", above, large, "a number > 0"),
        ):
            number = real(name, getattr(self, name), wanted)
            if not least <= number <= most:
                raise ValueError(f"{name} is {number}; {wanted} is expected")
            object.__setattr__(self, name, number)

    @property
    def is_greedy(self) -> bool:
        """Whether the largest logit alone decides."""
        return self.temperature == 0 and self.repetition_penalty == 1

    @property
    def _scale(self) -> np.float32:
        """The factor of differences of logits."""
        return _factor(1 / max(self.temperature, 1 / LARGE) if self.temperature else 1)

    @property
    def _penalty(self) -> np.float32:
        """The factor of logits of tokens that occurred."""
        return _factor(self.repetition_penalty)

    @property
    def _least_score(self) -> np.float32:
        """The logarithm of ``min_p``: no score is less than that of 0."""
        return np.float32(np.log(self.min_p) if self.min_p else -np.inf)

    def choose(self, logits: np.ndarray, seen: Sequence[int], keys: np.ndarray) -> int:
        """The next token. ``logits`` [vocabulary]; ``seen``: the tokens so far; ``keys``: two
        random words, uint32 [2]."""
        logits = logits.astype(np.float32)
        if self.repetition_penalty != 1:
            tokens = np.unique(np.array(seen, np.int64))
            known, penalty = logits[tokens], self._penalty
            logits[tokens] = np.where(known > 0, known / penalty, known * penalty)
        if self.temperature == 0:
            return int(np.argmax(logits))
        scores = self._scores(logits)
        kept = np.flatnonzero(scores >= self._least_kept(scores))
        return int(kept[np.argmax(scores[kept] + noise(kept, keys))])

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """The probabilities of the tokens, float64, for a temperature above 0."""
        scores = self._scores(logits.astype(np.float64))
        weights = np.exp(scores)
        weights[scores < self._least_kept(scores)] = 0
        return weights / np.sum(weights)

    def _scores(self, logits: np.ndarray) -> np.ndarray:
        """The logarithms of the tokens' weights beside the largest."""
        return (logits - np.max(logits)) * self._scale

    def _least_kept(self, scores: np.ndarray) -> float:
        """The least score of the tokens that can be chosen."""
        kept = scores
        if 0 < self.top_k < len(scores):
            kept = scores[scores >= np.partition(scores, -self.top_k)[-self.top_k]]
        if self.top_p < 1:
            kept = np.sort(kept)[::-1]
            weights = np.exp(kept.astype(np.float64))
            # A token is kept if those before it have less than top_p.
            kept = kept[np.cumsum(weights) - weights < self.top_p * np.sum(weights)]
        return float(max(self._least_score, np.min(kept)))


def _factor(number: float) -> np.float32:
    """The number within bounds, so that what it multiplies or divides stays finite."""
    return np.float32(min(max(number, 1 / LARGE), LARGE))


def noise(tokens: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The noise of tokens, float32: minus the logarithm of an exponential variable, which depends
    on the token's number and on two random words ``keys``."""
    word = tokens.astype(np.uint32) * np.uint32(MULTIPLE) + keys[0]
    for key in ROUNDS:
        # RC6's permutation, and the exchange of the halves.
        word = word * (word + word + np.uint32(1)) + keys[key]
        word = (word << np.uint32(16)) + (word >> np.uint32(16))
    uniform = np.minimum(word.astype(np.float32) * np.float32(2.0**-32) + TINY, ALMOST_ONE)
    series = uniform * (1 + uniform * (np.float32(1 / 2) + uniform * np.float32(1 / 3)))
    return -np.log(np.where(uniform < SMALL, series, -np.log(1 - uniform)))
