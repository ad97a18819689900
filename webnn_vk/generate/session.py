"""A conversation: its tokens, and their keys and values on the device."""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from itertools import takewhile
from typing import Any, TypeVar

import numpy as np

from webnn_vk.api.tensor import MLTensor
from webnn_vk.support.background import run_on_worker, waiting
from webnn_vk.support.errors import InvalidStateError, OperationError
from webnn_vk.support.promise import MLPromise, settle_in_background

from .chooser import UNDECIDED, Choice
from .engine import Engine, Messages
from .fields import whole
from .sampling import Sampling
from .scheduler import Run
from .tokens import StopFilter, TextGrowth, Tokenizer

T = TypeVar("T")


def collected(pieces: Iterator[T]) -> list[T]:
    """All pieces, as a list. For the main thread a worker collects them: after Ctrl-C it ends with
    the piece that it is making."""
    def collect() -> list[T]:
        is_wanted = waiting()
        return list(takewhile(lambda _: is_wanted(), pieces))

    return run_on_worker(collect)


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
        return run_on_worker(self._all_logits, self._checked(ids))

    def _all_logits(self, given: list[int]) -> np.ndarray:
        with self._lock:
            self._ids.clear()
            parts = [
                self._run(part, size, every=True)[: len(part)]
                for part, size in self._engine.chunks(given, every=True)
            ]
            found = np.concatenate(parts)
            if not np.isfinite(np.max(found[-1])):
                self._renew_cache()
            return found

    def tokens(
        self, ids: Sequence[int], max_new_tokens: int = 128, **sampling: Any
    ) -> Generator[int, None, str]:
        """The tokens that follow ``ids``, one by one, up to one that ends the text (which is left
        out) or the context's end. The generator returns "stop" or "length". For ``sampling`` see
        ``Model.generate``."""
        chosen, random = self._engine.sampling(sampling)
        given = self._checked(ids)
        count = whole("max_new_tokens", max_new_tokens)
        return self._generated(given, count, chosen, random)

    def _generated(
        self, given: list[int], count: int, chosen: Sampling, random: np.random.Generator
    ) -> Generator[int, None, str]:
        count = min(count, self._engine.context_length - len(given) + 1)
        for _ in range(count):
            # Other calls may come between two tokens: what the cache has is compared each time.
            token = run_on_worker(self._next, given, chosen, random)
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
        return "".join(collected(self.stream(prompt, max_new_tokens, stop=stop, **sampling)))

    def close(self) -> None:
        """Free the cache, after the token that is being computed. A second call does nothing."""
        run_on_worker(self._close)

    def _close(self) -> None:
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
        """The token that follows these. OperationError if the largest logit is not finite."""
        with self._lock:
            choice = None
            if not sampling.is_greedy:
                choice = Choice(sampling, given, random.integers(0, 1 << 32, 2, np.uint32))
            if self._engine.chooser.takes(choice):
                (token,) = self._feed(given, "choice" if choice else "token", choice)
                if token != UNDECIDED:
                    return int(token)
            (logits,) = self._feed(given, "logits")
            largest = np.max(logits)
            if not np.isfinite(largest):
                self._renew_cache()
                raise OperationError(
                    f"no token can be chosen after {len(given)}: the largest logit is {largest}"
                )
            return choice.on_host(logits) if choice else int(np.argmax(logits))

    def _feed(self, given: list[int], wants: str, choice: Choice | None = None) -> np.ndarray:
        """What follows these tokens: a token or the logits, with a row of its own."""
        # The last token is computed again, if need be, since its logits are wanted.
        limit = min(len(self._ids), len(given) - 1)
        common = next((n for n in range(limit) if self._ids[n] != given[n]), limit)
        del self._ids[common:]
        for part, size in self._engine.chunks(given[common:]):
            found = self._run(part, size, wants=wants, choice=choice)
        return found

    def _renew_cache(self) -> None:
        """Rows that are NaN would spread: ONNX Runtime multiplies those that are masked, too."""
        cache, self._cache = self._cache, None
        for tensor in (cache or {}).values():
            tensor.destroy()
        self._ids.clear()
        self._cache = self._engine.cache()

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
        self._is_closed = self._is_over = False
        # Pieces that were made for callers who were interrupted or cancelled before they received
        # them, and the error that ended the text.
        self._ready: deque[str] = deque()
        self._error: BaseException | None = None
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
        while True:
            run_on_worker(self._advance)
            try:
                return self._ready.popleft()  # last: an interrupt before it loses nothing
            except IndexError:
                pass
            self._check_end(StopIteration)

    def _advance(self) -> None:
        """Make a piece, unless one is ready."""
        with self._lock:
            if self._ready or self._is_over:
                return
            try:
                self._ready.append(next(self._pieces))
            except StopIteration:
                self._end()
            except BaseException as error:
                self._error = error
                self._end()

    def _check_end(self, end: type[Exception]) -> None:
        """Raise the error of the last piece, or ``end``. Nothing while there are more pieces:
        another caller has received this one."""
        if not self._is_over:
            return
        error, self._error = self._error, None
        raise error or end

    def _end(self) -> None:
        self._is_over = True
        self.at_end()

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        while True:
            made: MLPromise[None] = MLPromise("a piece of text")
            await settle_in_background(made, self._advance, "generation")
            try:
                return self._ready.popleft()
            except IndexError:
                pass
            self._check_end(StopAsyncIteration)

    def close(self) -> None:
        """End the text. A piece that another thread is making ends with its present token. A second
        call does nothing."""
        self._is_closed = True
        run_on_worker(self._close)

    def _close(self) -> None:
        with self._lock:
            self._pieces.close()
            self._ready.clear()
            self._end()
