"""What the sessions of a model share: graphs, weights, tokenizer, defaults."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from webnn_vk.api.builder import MLGraphBuilder, SizedBuilder
from webnn_vk.api.context import MLContext
from webnn_vk.api.inspection import implements
from webnn_vk.api.ml_graph import MLGraph
from webnn_vk.api.tensor import MLTensor
from webnn_vk.compiler.types.dimensions import MLDynamicDimension
from webnn_vk.support.background import run_on_worker
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import OperationError, UnknownError

from .chooser import Chooser
from .decoder import Decoder
from .errors import InvalidModelError
from .fields import whole
from .sampling import Sampling
from .scheduler import Scheduler
from .tokens import Tokenizer

#: Tokens of a run: the graphs that are made, when they are first needed.
CHUNKS = (1, 16, 128)
#: And of a run that is full on GPUs, which fewer rows leave idle.
_FULL_CHUNK = 512

Messages = Sequence[Mapping[str, Any]]


@dataclass
class Engine:
    """A decoder on a context. ``context_length``: the most tokens of a conversation; ``defaults``
    of sampling; ``stop_tokens`` end a text."""

    context: MLContext
    decoder: Decoder
    context_length: int
    tokenizer: Tokenizer | None
    defaults: Sampling
    stop_tokens: frozenset[int]
    _graphs: dict[tuple[int, bool, int], MLGraph] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        info = self.context.device_info
        is_gpu = info.is_vulkan and info.type != "cpu"
        self._full = _FULL_CHUNK if is_gpu else CHUNKS[-1]
        self.chooser = Chooser(
            self.context, self.decoder.config.vocabulary, self.context_length, is_used=is_gpu
        )
        self.scheduler = Scheduler(self.context, self.graph, self.chooser)

    def graph(self, tokens: int, every: bool = False, sequences: int = 1) -> MLGraph:
        """The graph for a number of tokens, built when it is first needed; with ``every``, it has
        the logits of each of them. For several sequences, of one token each."""
        return run_on_worker(self._found_or_built, tokens, every, sequences)

    def build(self, tokens: int) -> None:
        """Build a graph in this thread, before others have the engine."""
        self._found_or_built(tokens, False, 1)

    def _found_or_built(self, tokens: int, every: bool, sequences: int) -> MLGraph:
        with self._lock:
            named = self.is_exact and tokens > 1 and not every
            key = 0 if named else tokens, every, sequences
            if key not in self._graphs:
                builder = SizedBuilder(self.context) if named else MLGraphBuilder(self.context)
                if sequences > 1:
                    outputs, donated = self.decoder.batch_outputs(builder, sequences)
                else:
                    length = MLDynamicDimension("step", self._full + 2, 4) if named else tokens
                    outputs, donated = self.decoder.outputs(builder, length, every)
                self._graphs[key] = builder.build(outputs, donate=donated).result()
            return self._graphs[key]

    @property
    def is_exact(self) -> bool:
        """Whether one graph takes any number of tokens, up to a full chunk: contexts with
        "dynamic-shapes" have it (experimental)."""
        return implements(self.context, "dynamic-shapes")

    def chunks(
        self, ids: Sequence[int], every: bool = False
    ) -> Iterator[tuple[Sequence[int], int]]:
        """Parts of the tokens, and the sizes of the runs that compute them, which may be larger."""
        start, is_exact = 0, self.is_exact and not every
        # The logits of each of 512 tokens take 262 MB with a vocabulary of 128,000.
        full = CHUNKS[-1] if every else self._full
        while start < len(ids):
            left = len(ids) - start
            part = ids[start : start + (full if is_exact or left >= full else CHUNKS[-1])]
            size = next(c for c in (*CHUNKS, full) if c >= len(part))
            yield part, len(part) if is_exact else size
            start += len(part)

    def prompt_ids(self, prompt: str | Messages) -> list[int]:
        """The tokens of a text or of messages."""
        tokenizer = self.required_tokenizer()
        if isinstance(prompt, str):
            return tokenizer.encode(prompt)
        text = tokenizer.apply_chat_template(prompt)
        return tokenizer.encode(text, add_special_tokens=False)

    def required_tokenizer(self) -> Tokenizer:
        """The tokenizer. InvalidModelError if the model has none."""
        if self.tokenizer is None:
            raise InvalidModelError("the model has no tokenizer")
        return self.tokenizer

    def sampling(self, given: Mapping[str, Any]) -> tuple[Sampling, np.random.Generator]:
        """How tokens are chosen: what the caller gave, else the model's defaults."""
        options = dict(given)
        seed = options.pop("seed", None)
        values = {name: getattr(self.defaults, name) for name in vars(self.defaults)}
        unknown = sorted(options.keys() - values.keys())
        if unknown:
            raise TypeError(f"unknown option {unknown[0]!r}; {', '.join(values)}, seed are known")
        values |= {name: value for name, value in options.items() if value is not None}
        chosen, seed = Sampling(**values), None if seed is None else whole("seed", seed)
        # NumPy ignores errors meanwhile, and after an interrupt would go on to ignore them.
        return chosen, run_on_worker(np.random.default_rng, seed)

    def cache(self) -> dict[str, MLTensor]:
        """New tensors for keys and values. OperationError, with the length of the context that the
        memory found would be enough for, when the device lacks memory."""
        shape = self.decoder.cache_shape()
        descriptor = {"data_type": self.decoder.activations, "shape": shape}
        names, made = self.decoder.names(), {}
        for number, name in enumerate(names):
            try:
                made[name] = self.context.create_tensor(descriptor).result()
            except UnknownError as error:
                fits = max(0, shape[0] * number // len(names) - max(CHUNKS) + 1)
                for tensor in made.values():
                    tensor.destroy()
                hint = f"; about {fits} would fit (context_length={fits})" if fits else ""
                raise OperationError(
                    f"no memory for a context of {self.context_length} tokens{hint}: {error}"
                ) from None
        return made
