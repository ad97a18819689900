"""A conversation: its tokens, and their keys and values on the device."""

from __future__ import annotations

import operator
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np

from webnn_vk.api.tensor import MLTensor
from webnn_vk.support.errors import InvalidStateError
from webnn_vk.support.promise import MLPromise, settle_in_background

from .chooser import UNDECIDED, Choice
from .engine import Engine, Messages
from .sampling import Sampling
from .scheduler import Run
from .tokens import StopFilter, TextGrowth, Tokenizer


class Session:
    """A conversation with a cache of its own. What a call's tokens have in common with those before
    is not computed again. Any thread may call; a token is computed at a time. A context manager;
    ``close()`` frees the cache."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._cache: dict[str, MLTensor] | None = engine.cache()
        # The tokens whose keys and values are in the cache, from its first row on.
        self._ids: list[int] = []

    @property
    def ids(self) -> list[int]:
        """The tokens in the cache."""
        return list(self._ids)

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """The logits after each of these tokens, float32 [tokens, vocabulary]. Nothing is taken
        from earlier calls."""
        with self._lock:
            given = self._checked(ids)
            self._ids.clear()
            parts = [
                self._run(part, size, every=True)[: len(part)]
                for part, size in self._engine.chunks(given, every=True)
            ]
            return np.concatenate(parts)

    def tokens(
        self, ids: Sequence[int], max_new_tokens: int = 128, **sampling: Any
    ) -> Generator[int, None, str]:
        """The tokens that follow ``ids``, one by one, up to one that ends the text (which is left
        out) or the context's end. The generator returns "stop" or "length". For ``sampling`` see
        ``Model.generate``."""
        chosen, random = self._engine.sampling(sampling)
        given = self._checked(ids)
        if max_new_tokens < 0:
            raise ValueError(f"max_new_tokens is {max_new_tokens}; a number ≥ 0 is expected")
        return self._generated(given, max_new_tokens, chosen, random)

    def _generated(
        self, given: list[int], count: int, chosen: Sampling, random: np.random.Generator
    ) -> Generator[int, None, str]:
        count = min(count, self._engine.context_length - len(given) + 1)
        for _ in range(count):
            # Other calls may come between two tokens: what the cache has is compared each time.
            with self._lock:
                token = self._next(given, chosen, random)
            if token in self._engine.stop_tokens:
                return "stop"
            yield token
            given = [*given, token]
        return "length"

    def stream(
        self, prompt: str | Messages, max_new_tokens: int = 128, *,
        stop: str | Sequence[str] = (), **sampling: Any,
    ) -> TextStream:
        """As ``Model.stream``. With messages, give the whole conversation each time: the tokens
        that it begins with are known already."""
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        if not all(isinstance(s, str) and s for s in stops):
            raise ValueError("stop is a text, or several, none of them empty")
        ids = self._engine.prompt_ids(prompt)
        return TextStream(
            self.tokens(ids, max_new_tokens, **sampling), self._engine.required_tokenizer(), stops,
            ids,
        )

    def generate(
        self, prompt: str | Messages, max_new_tokens: int = 128, *,
        stop: str | Sequence[str] = (), **sampling: Any,
    ) -> str:
        """As ``Model.generate``, in this conversation."""
        return "".join(self.stream(prompt, max_new_tokens, stop=stop, **sampling))

    def close(self) -> None:
        """Free the cache. A second call does nothing."""
        with self._lock:
            cache, self._cache = self._cache, None
            for tensor in (cache or {}).values():
                tensor.destroy()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- runs ----------------------------------------------------------------------------------
    def _checked(self, ids: Sequence[int]) -> list[int]:
        given = [operator.index(i) for i in ids]
        length, size = self._engine.context_length, self._engine.decoder.config.vocabulary
        if not given:
            raise ValueError("no tokens: at least one is needed")
        if len(given) > length:
            raise ValueError(f"{len(given)} tokens exceed the context of {length}")
        wrong = next((i for i in given if not 0 <= i < size), None)
        if wrong is not None:
            raise ValueError(f"token {wrong} is not in the vocabulary of {size}")
        return given

    def _next(self, given: list[int], sampling: Sampling, random: np.random.Generator) -> int:
        """The token that follows these."""
        if sampling.is_greedy:
            return int(self._feed(given, "token")[0])
        choice = Choice(sampling, given, random.integers(0, 1 << 32, 2, np.uint32))
        if self._engine.chooser.is_used and choice.is_exact:
            (token,) = self._feed(given, "choice", choice)
            if token != UNDECIDED:
                return int(token)
        return choice.on_host(self._feed(given, "logits")[0])

    def _feed(self, given: list[int], wants: str, choice: Choice | None = None) -> np.ndarray:
        """What follows these tokens: a token or the logits, with a row of its own."""
        # The last token is computed again, if need be, since its logits are wanted.
        limit = min(len(self._ids), len(given) - 1)
        common = next((n for n in range(limit) if self._ids[n] != given[n]), limit)
        del self._ids[common:]
        for part, size in self._engine.chunks(given[common:]):
            found = self._run(part, size, wants=wants, choice=choice)
        return found

    def _run(
        self, part: Sequence[int], size: int, every: bool = False, wants: str = "logits",
        choice: Choice | None = None,
    ) -> np.ndarray:
        """One run on ``size`` tokens, the first of them ``part``, behind those in the cache."""
        if self._cache is None:
            raise InvalidStateError("the session was closed")
        found = self._engine.scheduler.compute(
            Run(self._cache, part, len(self._ids), size, every, wants, choice)
        )
        self._ids.extend(part)
        return found


class TextStream:
    """Pieces of text as they come: an iterator, for ``async for`` too. ``prompt_token_count`` and
    ``token_count``: the tokens of the prompt, and those written so far. ``finish_reason``: "stop"
    after a token or a text that ends it, "length" after as many tokens as were wanted or have room,
    None before the end and where the stream was closed. Any thread may close it."""

    def __init__(
        self, tokens: Generator[int, None, str], tokenizer: Tokenizer, stop: Sequence[str],
        prompt: Sequence[int],
    ) -> None:
        self.prompt_token_count = len(prompt)
        self.token_count = 0
        self.finish_reason: str | None = None
        #: Called when the stream has ended.
        self.at_end: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._is_closed = False
        self._pieces = self._texts(tokens, TextGrowth(tokenizer, prompt), StopFilter(stop))

    def _texts(
        self, tokens: Generator[int, None, str], growth: TextGrowth, until: StopFilter
    ) -> Generator[str]:
        while True:
            try:
                token = next(tokens)
            except StopIteration as end:
                self.finish_reason = end.value
                break
            self.token_count += 1
            if piece := until.add(growth.add(token)):
                yield piece
            if self._is_closed:
                return
            if until.stopped:
                self.finish_reason = "stop"
                return
        rest = until.add(growth.finish()) + until.finish()
        if until.stopped:
            self.finish_reason = "stop"
        if rest:
            yield rest

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        with self._lock:
            try:
                return next(self._pieces)
            except BaseException:
                self.at_end()
                raise

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        waiting: MLPromise[str | None] = MLPromise("a piece of text")
        piece = await settle_in_background(waiting, lambda: next(self, None), "generation")
        if piece is None:
            raise StopAsyncIteration
        return piece

    def close(self) -> None:
        """End the text here, if another thread waits for a piece, with the token that is being
        computed. A second call does nothing."""
        self._is_closed = True
        with self._lock:
            self._pieces.close()
            self.at_end()
