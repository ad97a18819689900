"""Text ↔ tokens: the tokenizer of a model, and text that grows token by token."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from webnn_vk.support.errors import sanitize

from .chat import checked_messages, rendered
from .errors import InvalidModelError, UnsupportedModelError

#: What a decoder writes for bytes that are not, or not yet, a character.
_INCOMPLETE = "\ufffd"
#: As many tokens of a prompt are decoded with what follows it.
_BEFORE = 8
#: Tokens that chat templates name.
SPECIAL_TOKENS = (
    "bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token",
)
#: Names of templates: of all conversations, and of those with tools.
DEFAULT, TOOL_USE = "default", "tool_use"


@contextmanager
def package_errors(what: str) -> Iterator[None]:
    """The errors of the package ``tokenizers``, which raises plain Exceptions, and PanicException
    that is none, as InvalidModelError."""
    try:
        yield
    except (InvalidModelError, UnsupportedModelError, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        text = sanitize(" ".join(str(error).split()))[:200]
        raise InvalidModelError(f"{what}: {text or type(error).__name__}") from None


class Tokenizer:
    """The tokenizer of a model: one of the package ``tokenizers``, with the model's chat templates
    by name and the tokens that templates name ("bos_token"). ``merge`` makes the model's
    tokens of the package's; its second argument has a 1 for each token that was put before or after
    the text."""

    def __init__(
        self, tokenizer: Any, templates: Mapping[str, str] | None = None,
        special: Mapping[str, str] | None = None,
        merge: Callable[[Sequence[int], Sequence[int]], list[int]] | None = None,
    ) -> None:
        self._tokenizer, self._merge = tokenizer, merge
        self._templates = dict(templates or {})
        self._special = dict(special or {})

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens, added ones included."""
        return int(self._tokenizer.get_vocab_size())

    @property
    def has_chat_template(self) -> bool:
        return DEFAULT in self._templates

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text's tokens. ``add_special_tokens``: with those that the tokenizer puts
        before and after a text. InvalidModelError if the model's tokenizer fails."""
        if not isinstance(text, str):
            raise TypeError(f"text is {type(text).__name__}; a str is expected")
        with package_errors("the model's tokenizer can't encode the text"):
            encoded = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        if self._merge is not None:
            return self._merge(encoded.ids, encoded.special_tokens_mask)
        return list(encoded.ids)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of tokens. TypeError for what is no integer, ValueError for a number that no
        token can have; InvalidModelError if the model's tokenizer fails."""
        numbers = [operator.index(number) for number in ids]
        for number in numbers:
            if not 0 <= number < 2**32:
                raise ValueError(f"token {number}; a number from 0 to {2**32 - 1} is expected")
        with package_errors("the model's tokenizer can't decode the tokens"):
            text: str = self._tokenizer.decode(numbers, skip_special_tokens=skip_special_tokens)
        return text

    def token_id(self, token: str) -> int | None:
        """The id of a token; None if there is no such token."""
        found = self._tokenizer.token_to_id(token)
        return None if found is None else int(found)

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True,
        **values: Any,
    ) -> str:
        """The text of a conversation, with the beginning of the model's answer. ``messages``:
        mappings with "role" and "content"; ``values``: others that the template reads, such as
        ``tools``, for which a model may have a template of its own. Raises InvalidModelError if
        the model has no template, or if the template fails or exceeds its limits of time, memory
        and output; TypeError for other messages."""
        checked = checked_messages(messages)
        tools = values.get("tools") is not None and TOOL_USE in self._templates
        template = self._templates.get(TOOL_USE if tools else DEFAULT)
        if template is None:
            raise InvalidModelError(
                "the model has no chat template; give a text instead of messages"
            )
        return rendered(template, {
            "tools": None, "documents": None, **self._special, **values, "messages": checked,
            "add_generation_prompt": add_generation_prompt,
        })


class TextGrowth:
    """The text of tokens that come one by one, in pieces of whole characters. ``prompt``: the
    tokens before them, whose text is not returned."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._ids = list(prompt[-_BEFORE:])
        # Text of the tokens before ``_read`` was returned. Those from ``_prefix`` on are decoded
        # with it, since what a token adds depends on the tokens before: SentencePiece's first one
        # loses its space.
        self._prefix, self._read = 0, len(self._ids)

    def add(self, token: int) -> str:
        """The characters that are complete with this token; "" if there are none."""
        self._ids.append(token)
        return self._grown(final=False)

    def finish(self) -> str:
        """The rest, which may end with an incomplete character."""
        return self._grown(final=True)

    def _grown(self, final: bool) -> str:
        before = self._tokenizer.decode(self._ids[self._prefix : self._read])
        text = self._tokenizer.decode(self._ids[self._prefix :])
        if len(text) <= len(before) or (text.endswith(_INCOMPLETE) and not final):
            return ""
        self._prefix, self._read = self._read, len(self._ids)
        return text[len(before) :]


class StopFilter:
    """Ends a text before the first of some stop texts. What may become one is held back."""

    def __init__(self, stop: Iterable[str]) -> None:
        self._stop = tuple(stop)
        self._held = ""
        self.stopped = False

    def add(self, piece: str) -> str:
        """The text that is certain not to belong to a stop text."""
        self._held += piece
        found = [at for s in self._stop if (at := self._held.find(s)) >= 0]
        if found:
            self.stopped = True
            text, self._held = self._held[: min(found)], ""
            return text
        keep = max(
            (n for s in self._stop for n in range(1, len(s)) if self._held.endswith(s[:n])),
            default=0,
        )
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def finish(self) -> str:
        """What was held back."""
        text, self._held = self._held, ""
        return "" if self.stopped else text
