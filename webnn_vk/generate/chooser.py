"""The choice of tokens on the device, from logits that stay there: as ``Sampling.choose``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from webnn_vk.api.builder import MLGraphBuilder, MLOperand
from webnn_vk.api.context import MLContext
from webnn_vk.api.ml_graph import MLGraph
from webnn_vk.api.tensor import MLTensor
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.promise import MLPromise

from .sampling import ALMOST_ONE, MULTIPLE, ROUNDS, SMALL, TINY, Sampling

#: How often a token is drawn until one that ``top_p`` keeps is found.
DRAWS = 4
#: In the place of a token where none was found.
UNDECIDED = -1
#: Above this temperature the search for the k-th logit is too coarse: see ``_least_of``.
MAX_TEMPERATURE = 100
#: Of a row of "choice", without tokens.
NUMBERS = 10
#: Below all sums of scores and noise that are chosen.
NEVER = np.float32(-3e38)


@dataclass(frozen=True, eq=False)
class Choice:
    """How the next token of a sequence is chosen: see ``Sampling.choose``."""

    sampling: Sampling
    seen: Sequence[int]
    keys: np.ndarray

    def kind(self) -> tuple[bool, bool, bool]:
        """Whether ``top_k``, ``top_p`` and ``repetition_penalty`` are in use."""
        s = self.sampling
        return s.top_k > 0, s.top_p < 1, s.repetition_penalty != 1

    @property
    def is_exact(self) -> bool:
        """Whether the device chooses as the host does."""
        return not self.sampling.top_k or self.sampling.temperature <= MAX_TEMPERATURE

    def on_host(self, logits: np.ndarray) -> int:
        return self.sampling.choose(logits, self.seen, self.keys)

    def row(self, seen: int) -> np.ndarray:
        """The row of the input "choice", whose numbers except the scale are exact as float32: the
        options, the halves of both words, and ``seen`` tokens, which are the distinct ones so far,
        padded by the last of them."""
        s = self.sampling
        numbers = (
            s._scale, s._least_score, s.temperature > 0, min(s.top_k or 3e38, 3e38),
            s.top_p if s.top_p < 1 else 3e30, s._penalty, *self.keys >> 16,
            *self.keys & 0xFFFF,
        )
        if not seen:
            return np.array(numbers, np.float32)
        tokens = np.unique(np.array(self.seen or [0]))
        tokens = np.pad(tokens, (0, seen - len(tokens)), "edge")
        return np.concatenate([numbers, tokens], dtype=np.float32)


#: For rows whose sequence wants no choice.
_NO_CHOICE = Choice(Sampling(), (), np.zeros(2, np.uint32))


@dataclass(frozen=True, eq=False)
class Prepared:
    """Choices that only lack the logits."""

    context: MLContext
    graph: MLGraph
    tensors: dict[str, MLTensor]

    def start(self, logits: MLTensor) -> MLPromise[np.ndarray]:
        """The tokens, int32 [rows], from logits [rows, vocabulary]; any number in rows without a
        choice. `UNDECIDED` where ``top_p`` keeps none of `DRAWS` tokens: the host decides then."""
        inputs, token = {"logits": logits, "choice": self.tensors["choice"]}, self.tensors["token"]
        self.context.dispatch(self.graph, inputs, {"token": token})
        return self.context.read_tensor(token)


@dataclass
class Chooser:
    """Chooses among ``vocabulary`` tokens on a context, after at most ``length`` tokens.
    ``is_used``: whether the host leaves the choice to the device. A device that is the processor
    would only compute what the host does, which sorts and doesn't compare with all tokens."""

    context: MLContext
    vocabulary: int
    length: int
    is_used: bool
    _graphs: dict[tuple[int, tuple[bool, ...]], MLGraph] = field(default_factory=dict)
    _tensors: dict[MLGraph, dict[str, MLTensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # ONNX Runtime's ArgMax ignores NaN, so there the host looks for the largest logit.
        self._finds_nan = self.context.device_info.is_vulkan

    def takes(self, choice: Choice | None) -> bool:
        """Whether the device makes the choice; None stands for the most probable token."""
        return self._finds_nan if choice is None else self.is_used and choice.is_exact

    def prepare(self, choices: Sequence[Choice | None]) -> Prepared:
        """Write what the choices for rows of logits depend on."""
        made = [choice or _NO_CHOICE for choice in choices]
        key = len(made), tuple(map(any, zip(*(c.kind() for c in made), strict=True)))
        if key not in self._graphs:
            self._graphs[key] = self._graph(*key)
        graph = self._graphs[key]
        if graph not in self._tensors:
            self._tensors[graph] = {
                name: self.context.create_tensor({
                    "data_type": found.data_type, "shape": found.shape,
                    "readable": name == "token", "writable": name != "token",
                }).result()
                for name, found in {**graph.inputs, **graph.outputs}.items() if name != "logits"
            }
        tensors = self._tensors[graph]
        seen = graph.inputs["choice"].shape[1] - NUMBERS
        self.context.write_tensor(tensors["choice"], np.stack([c.row(seen) for c in made]))
        return Prepared(self.context, graph, tensors)

    # -- the graph -----------------------------------------------------------------------------
    def _graph(self, rows: int, kind: tuple[bool, ...]) -> MLGraph:
        b = MLGraphBuilder(self.context)
        cuts_count, cuts_sum, penalises = kind
        logits = b.input("logits", {"data_type": "float32", "shape": (rows, self.vocabulary)})
        size = min(self.length, self.vocabulary) if penalises else 0
        choice = b.input("choice", {"data_type": "float32", "shape": (rows, NUMBERS + size)})
        scale, least, chance, top_k, top_p, penalty, *halves = b.split(
            b.slice(choice, [0, 0], [rows, NUMBERS]), NUMBERS, axis=1
        )
        halves = [b.cast(half, "uint32") for half in halves]
        if penalises:
            seen = b.cast(b.slice(choice, [0, NUMBERS], [rows, size]), "uint32")
            known = b.gather_elements(logits, seen, axis=1)
            less = b.where(
                b.greater(known, _number(b, 0)), b.div(known, penalty), b.mul(known, penalty)
            )
            logits = b.scatter_elements(logits, seen, less, axis=1)
        largest = b.reduce_max(logits, axes=[1], keep_dimensions=True)
        scores = b.mul(b.sub(logits, largest), scale)
        sums = b.add(scores, b.mul(self._noise(b, halves), chance))
        sums = b.where(b.lesser(scores, least), _number(b, NEVER), sums)
        weights = b.exp(scores)
        if cuts_count:
            others = b.lesser(scores, self._least_of(b, scores, top_k))
            sums = b.where(others, _number(b, NEVER), sums)
            weights = b.where(others, _number(b, 0), weights)
        if not cuts_sum:
            return b.build({"token": most_probable(b, sums)}).result()
        enough = b.mul(b.reduce_sum(weights, axes=[1], keep_dimensions=True), top_p)
        bound, token = _number(b, NEVER), b.constant(np.array([UNDECIDED], np.int32))
        undecided = token
        for _ in range(DRAWS):
            # The token before is not kept, so the tokens below it are not kept either.
            left = b.where(b.greater(scores, bound), sums, _number(b, NEVER))
            drawn = b.arg_max(left, 1, keep_dimensions=True, output_data_type="int32")
            bound = b.gather_elements(scores, drawn, axis=1)
            above = b.where(b.greater(scores, bound), weights, _number(b, 0))
            above = b.reduce_sum(above, axes=[1], keep_dimensions=True)
            drawn = b.where(b.lesser(above, enough), drawn, undecided)
            token = b.where(b.equal(token, undecided), drawn, token)
        return b.build({"token": b.reshape(token, (rows,))}).result()

    def _least_of(self, b: MLGraphBuilder, scores: MLOperand, count: MLOperand) -> MLOperand:
        """The least of the ``count`` largest scores, rounded down to a multiple of 2⁻¹⁹ from
        -32 on: an interval of 32, of which a quarter remains in each step."""
        rows, width, parts = scores.shape[0], 32.0, 4
        scores = b.reshape(scores, (rows, 1, self.vocabulary))
        count = b.reshape(count, (rows, 1, 1))
        bound = _number(b, -width)
        while width > 2.0**-19:
            width /= parts
            starts = np.arange(parts, dtype=np.float32).reshape(1, parts, 1) * np.float32(width)
            found = b.greater_or_equal(scores, b.add(bound, b.constant(starts)))
            found = b.where(found, _number(b, 1), _number(b, 0))
            found = b.reduce_sum(found, axes=[2], keep_dimensions=True)
            found = b.where(b.greater_or_equal(found, count), _number(b, 1), _number(b, 0))
            found = b.reduce_sum(found, axes=[1], keep_dimensions=True)
            part = b.max(b.sub(found, _number(b, 1)), _number(b, 0))
            bound = b.add(bound, b.mul(part, _number(b, width)))
        return b.reshape(bound, (rows, 1))

    def _noise(self, b: MLGraphBuilder, halves: Sequence[MLOperand]) -> MLOperand:
        """`sampling.noise` of all tokens, [rows, vocabulary]. ``halves``: the upper ones of both
        words, then the lower ones."""
        def word(number: int) -> MLOperand:
            return b.constant(np.array([number], np.uint32))

        half = word(1 << 16)
        key = [b.add(b.mul(halves[n], half), halves[n + 2]) for n in range(2)]
        tokens = np.arange(self.vocabulary, dtype=np.uint32) * np.uint32(MULTIPLE)
        x = b.add(b.constant(tokens), key[0])
        for number in ROUNDS:
            x = b.add(b.mul(x, b.add(b.add(x, x), word(1))), key[number])
            x = b.add(b.mul(x, half), b.div(x, half))
        uniform = b.add(b.mul(b.cast(x, "float32"), _number(b, 2.0**-32)), _number(b, TINY))
        uniform = b.min(uniform, _number(b, ALMOST_ONE))
        series = _number(b, 1 / 3)
        for factor in (1 / 2, 1):
            series = b.add(_number(b, factor), b.mul(uniform, series))
        logarithm = b.neg(b.log(b.sub(_number(b, 1), uniform)))
        small = b.lesser(uniform, _number(b, SMALL))
        return b.neg(b.log(b.where(small, b.mul(uniform, series), logarithm)))


def most_probable(b: MLGraphBuilder, scores: MLOperand) -> MLOperand:
    """The places of the largest scores, int32 [rows]. `UNDECIDED` where that is not finite."""
    token = b.arg_max(scores, 1, keep_dimensions=True, output_data_type="int32")
    largest = b.gather_elements(scores, token, axis=1)
    is_lost = b.logical_or(b.is_nan(largest), b.is_infinite(largest))
    token = b.where(is_lost, b.constant(np.array([UNDECIDED], np.int32)), token)
    return b.reshape(token, scores.shape[:1])


def _number(b: MLGraphBuilder, number: float | np.float32) -> MLOperand:
    return b.constant(np.array([number], np.float32))
