"""Text ↔ tokens: the tokenizer of a folder, and text that grows token by token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from webnn_vk.support.errors import sanitize

from .chat import checked_messages, rendered
from .errors import InvalidModelError
from .weights import MAX_JSON_BYTES, read_json

#: What a decoder writes for bytes that are not, or not yet, a character.
_INCOMPLETE = "\ufffd"
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


class Tokenizer:
    """The tokenizer of a model, from ``tokenizer.json``."""

    def __init__(self, folder: Path) -> None:
        import tokenizers

        path = folder / "tokenizer.json"
        try:
            if path.stat().st_size > MAX_JSON_BYTES:
                raise InvalidModelError(f"tokenizer.json has more than {MAX_JSON_BYTES} bytes")
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except OSError as error:
            raise InvalidModelError(f"tokenizer.json can't be read: {error.strerror}") from None
        except InvalidModelError:
            raise
        except Exception as error:  # the package raises plain Exceptions
            raise InvalidModelError(
                f"tokenizer.json is not valid: {sanitize(' '.join(str(error).split()))[:200]}"
            ) from None
        described = folder / "tokenizer_config.json"
        config = read_json(described) if described.exists() else {}
        self._config: dict[str, Any] = config if isinstance(config, dict) else {}
        self._template = self._chat_template(folder)

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens, added ones included."""
        return int(self._tokenizer.get_vocab_size())

    @property
    def has_chat_template(self) -> bool:
        return self._template is not None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text's tokens. ``add_special_tokens``: with those that the tokenizer puts
        before and after a text."""
        encoded = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return list(encoded.ids)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of tokens."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)
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
        mappings with "role" and "content"; ``values``: others that the template reads. Raises
        InvalidModelError if the folder has no template, or if the template fails or exceeds its
        limits of time, memory and output; TypeError for other messages."""
        checked = checked_messages(messages)
        if self._template is None:
            raise InvalidModelError(
                "the model has no chat template (tokenizer_config.json, chat_template.jinja); "
                "give a text instead of messages"
            )
        given = {name: self._token(name) for name in _SPECIAL}
        known = {name: token for name, token in given.items() if token is not None}
        return rendered(self._template, {
            **known, **values, "messages": checked, "add_generation_prompt": add_generation_prompt,
        })

    def _token(self, name: str) -> str | None:
        token = self._config.get(name)
        if isinstance(token, dict):
            token = token.get("content")
        return token if isinstance(token, str) else None

    def _chat_template(self, folder: Path) -> str | None:
        beside = folder / "chat_template.jinja"
        if beside.exists():
            if beside.stat().st_size > MAX_JSON_BYTES:
                raise InvalidModelError("chat_template.jinja is too large")
            try:
                return beside.read_text("utf-8")
            except (OSError, ValueError):
                raise InvalidModelError("chat_template.jinja can't be read") from None
        template = self._config.get("chat_template")
        if isinstance(template, list):  # several, by name
            named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
            template = named.get("default")
        return template if isinstance(template, str) else None


class TextGrowth:
    """The text of tokens that come one by one, in pieces of whole characters."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        # Text of the tokens before ``_read`` was returned. Those from ``_prefix`` on are decoded
        # with it, since what a token adds depends on the tokens before.
        self._prefix = self._read = 0

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
