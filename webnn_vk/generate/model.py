"""A model that generates text."""

from __future__ import annotations

import operator
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import webnn_vk
from webnn_vk.api.context import MLContext
from webnn_vk.compiler.program import GraphReport
from webnn_vk.compiler.types.data_types import FLOAT_TYPES
from webnn_vk.support.errors import sanitize

from .config import DecoderConfig
from .decoder import Decoder
from .device_weights import DATA_TYPES, ROUNDED, DeviceWeights
from .engine import CHUNKS, Engine, Messages
from .errors import InvalidModelError
from .folder import open_folder
from .gguf import open_gguf
from .session import Session, TextStream, collected
from .source import ModelSource
from .tokens import Tokenizer

#: The context's length, if the caller gives none and the model was made for more.
DEFAULT_CONTEXT_LENGTH = 4096


class Model:
    """A decoder on a device, opened by ``Model.load``. Any thread may call. Texts that are written
    at the same time share runs on the device, up to 16 of them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # For calls without a session: its cache is reused. Empty while a call has it.
        self._kept: deque[Session] = deque(maxlen=1)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], context: MLContext | None = None,
        dtype: str | None = None, context_length: int | None = None, *,
        activations: str | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> Model:
        """The model of a GGUF file, or of a Hugging Face folder: ``config.json``,
        ``model.safetensors`` or its shards, ``tokenizer.json``, and if there are any
        ``tokenizer_config.json``, ``generation_config.json`` and ``chat_template.jinja``.

        ``context``: a context of its own by default. ``dtype`` of weights on the device: "float32"
        or "float16"; "int8" and "int4" round matrices to 8 or 4 bits, with a scale for each block
        of 32. By default the quantised matrices of a GGUF file stay as they are, and all else is
        float32. ``activations``: the data type of the cache and of what quantised matrices are
        multiplied by, "float32" by default beside weights of integers and of float32, and always
        "float16" beside float16 weights. ``context_length``: the most tokens of a
        conversation, for which a session reserves memory; by default what the model was made for,
        at most 4,096. ``progress`` is called while weights are uploaded, with the numbers of the
        files' tensors that were read and of all.

        Raises InvalidModelError for damaged files, UnsupportedModelError for an architecture or
        an option that is not implemented, both with one line; ValueError for wrong arguments,
        OperationError when the device lacks the memory."""
        source = _opened(Path(path))
        config = source.config
        if dtype is not None and dtype not in DATA_TYPES:
            raise ValueError(f"dtype is {dtype!r}; one of {', '.join(DATA_TYPES)} is expected")
        types = FLOAT_TYPES if dtype != "float16" else ("float16",)
        if activations is not None and activations not in types:
            raise ValueError(
                f"activations is {activations!r}; {' or '.join(types)} is expected"
                + (" beside float16 weights" if dtype == "float16" else "")
            )
        length = min(config.context_length, DEFAULT_CONTEXT_LENGTH)
        if context_length is not None:
            length = operator.index(context_length)
        if not 1 <= length <= config.context_length:
            raise ValueError(
                f"context_length is {length}; 1 to {config.context_length} are expected"
            )
        if context is None:
            context = webnn_vk.ml.create_context().result()
        # Chunks are padded: their last rows are written behind the context's end.
        capacity = length + max(CHUNKS) - 1
        bits = ROUNDED.get(dtype or "")
        kind = "float32" if dtype is None or bits else dtype
        weights = DeviceWeights(
            context, source.weights, kind, float(config.norm_offset),
            keeps=dtype is None or bits is not None, bits=bits,
        )
        if progress is not None:
            total = sum(1 for _ in source.weights.unused())
            weights.at_upload = lambda: progress(
                total - sum(1 for _ in source.weights.unused()), total
            )
        engine = Engine(
            context, Decoder(config, weights, capacity, activations or kind), length,
            source.tokenizer, source.defaults, source.stop_tokens,
        )
        engine.build(1)
        unused = next(source.weights.unused(), None)
        if unused is not None:
            raise InvalidModelError(
                f"the weights have a tensor that is not of a {config.architecture} model of this "
                f"configuration: {sanitize(unused)[:200]!r}"
            )
        return cls(engine)

    @property
    def config(self) -> DecoderConfig:
        """What the model computes."""
        return self._engine.decoder.config

    @property
    def context(self) -> MLContext:
        return self._engine.context

    @property
    def dtype(self) -> str:
        """What weights that the files don't quantise are stored as on the device."""
        weights = self._engine.decoder.weights
        return f"int{weights.bits}" if weights.bits else weights.data_type

    @property
    def context_length(self) -> int:
        """The most tokens of a conversation."""
        return self._engine.context_length

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. InvalidModelError if its files have none."""
        return self._engine.required_tokenizer()

    @property
    def stop_tokens(self) -> frozenset[int]:
        """The tokens that end a text."""
        return self._engine.stop_tokens

    def report(self) -> GraphReport:
        """The compiled steps of the graph for one token (``MLGraph.report``)."""
        return self._engine.graph(1).report()

    def session(self) -> Session:
        """A conversation with a cache of its own. OperationError when the device lacks the memory.
        """
        return Session(self._engine)

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """The logits after each of these tokens, float32 [tokens, vocabulary]."""
        with self._session() as session:
            return session.logits(ids)

    def generate_tokens(
        self, ids: Sequence[int], max_new_tokens: int = 128, **sampling: Any
    ) -> list[int]:
        """The tokens that follow ``ids``, up to one that ends the text (which is left out). For
        ``sampling`` see ``generate``."""
        with self._session() as session:
            return collected(session.tokens(ids, max_new_tokens, **sampling))

    def generate(
        self, prompt: str | Messages, max_new_tokens: int = 128, *,
        stop: str | Sequence[str] = (), **sampling: Any,
    ) -> str:
        """The text that follows ``prompt``: a text, or the messages of a conversation, which the
        model's chat template renders.

        ``stop``: texts that end the result, which is without them. ``temperature``, ``top_k``,
        ``top_p``, ``min_p``, ``repetition_penalty``: see ``Sampling``. The defaults
        come from ``generation_config.json``; without it each token is the most probable one.
        ``seed``: of the random numbers.
        Raises ValueError for numbers out of range and for a prompt that leaves no room in the
        context."""
        with self._session() as session:
            return session.generate(prompt, max_new_tokens, stop=stop, **sampling)

    def stream(
        self, prompt: str | Messages, max_new_tokens: int = 128, *,
        stop: str | Sequence[str] = (), **sampling: Any,
    ) -> TextStream:
        """As ``generate``, in pieces of whole characters as they come: an iterator, for ``async
        for`` too. ``close()`` ends it early."""
        session = self.session()
        try:
            stream = session.stream(prompt, max_new_tokens, stop=stop, **sampling)
        except BaseException:
            session.close()
            raise
        stream.at_end = session.close
        return stream

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """The session that is kept, or a new one beside other calls."""
        try:
            session = self._kept.pop()
        except IndexError:
            session = self.session()
        try:
            yield session
        finally:
            # It lost its cache if there was no memory for a new one.
            if self._kept or session._cache is None:
                session.close()
            else:
                self._kept.append(session)

    def __repr__(self) -> str:
        c = self.config
        return (
            f"<Model {c.architecture}: {c.layers} layers, width {c.width}, vocabulary "
            f"{c.vocabulary}, {self.dtype}, context {self.context_length}>"
        )


def _opened(path: Path) -> ModelSource:
    if path.is_dir():
        return open_folder(path)
    if path.is_file():
        return open_gguf(path)
    raise InvalidModelError(f"{sanitize(str(path))} is neither a folder nor a GGUF file")
