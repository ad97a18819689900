"""What is checked in a tokenizer.json before the package ``tokenizers`` gets it. The package
allocates all that a file makes of a text, and a failed allocation ends the process.

Steps are known by their fields, as the package knows those without a right type."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from webnn_vk.support.errors import sanitize

from .errors import InvalidModelError

#: The most steps of a part, and bytes that one of a text becomes by all of them. Of published files
#: SentencePiece's normalisation makes 33 of one.
MOST_STEPS, MOST_GROWTH = 100, 512
#: The most tokens around a text.
MOST_TOKENS = 1000
#: Fields of steps and models: numbers up to this, and texts of as many characters.
_LIMITS = {
    "max_input_chars_per_word": 1000, "start": 64, "stop": 64, "prepend": 64, "prefix": 64,
    "suffix": 64, "continuing_subword_prefix": 64, "end_of_word_suffix": 64, "Regex": 10_000,
}
#: What a part of several steps calls them.
_PARTS = {
    "normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors",
    "decoder": "decoders",
}


def check_tokenizer(described: Any) -> None:
    """InvalidModelError, with the field, for a file that no tokenizer is published with. Other
    mistakes are left to the package."""
    if not isinstance(described, Mapping):
        return
    growth = 1.0
    for part, inner in _PARTS.items():
        # What is normalised is split; the others get something else.
        growth = growth if part == "pre_tokenizer" else 1.0
        first, count = described.get(part), 0
        waiting = [] if first is None else [first]
        while waiting:
            step, count = waiting.pop(), count + 1
            if not isinstance(step, Mapping):
                raise InvalidModelError(f"tokenizer.json: {part}: a step is no JSON object")
            _at_most(count, MOST_STEPS, part, "the number of steps")
            _check_fields(step, part)
            _check_fields(step.get("pattern"), part)
            growth *= _growth(step, part)
            more = step.get(inner)
            waiting += more if isinstance(more, list) else ()
        _at_most(growth, MOST_GROWTH, part, "what the length of a text is multiplied by")
    _check_fields(described.get("model"), "model")


def _check_fields(step: Any, part: str) -> None:
    for name, most in _LIMITS.items():
        value = step.get(name) if isinstance(step, Mapping) else None
        if isinstance(value, str):
            _at_most(len(value), most, part, f"the length of {name}")
        elif isinstance(value, (int, float)):
            _at_most(value, most, part, name)


def _growth(step: Mapping[str, Any], part: str) -> float:
    """How many times as long the step can make a text, in bytes or tokens."""
    pattern, content = step.get("pattern"), step.get("content")
    if isinstance(step.get("single"), list):
        return _copies(step, part)
    if isinstance(pattern, Mapping) and isinstance(content, str):
        # A regular expression may find nothing, before any byte.
        found, size = pattern.get("String"), _bytes(content)
        return max(1.0, size / _bytes(found)) if found and isinstance(found, str) else size + 1.0
    if isinstance(stored := step.get("precompiled_charsmap"), str):
        try:
            data = base64.b64decode(stored, validate=True)
        except ValueError:
            raise InvalidModelError(
                f"tokenizer.json: {part}: precompiled_charsmap is not base64"
            ) from None
        # The length of a trie, the trie, and texts that end with 0.
        texts = data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")
        return max(1.0, *(float(len(text)) for text in texts))
    doubles = step.get("type") == "ByteLevel" or "trim_offsets" in step
    # An empty text is found between all characters.
    return 1.0 + (doubles or "" in (step.get("suffix"), step.get("word_delimiter_token")))


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _copies(step: Mapping[str, Any], part: str) -> float:
    """How often a template has the text. Its own tokens are counted."""
    known, copies, tokens = step.get("special_tokens"), 0, 0
    for piece in step["single"]:
        if not isinstance(piece, Mapping) or "SpecialToken" not in piece:
            copies += 1
            continue
        try:
            tokens += len(known[piece["SpecialToken"]["id"]]["ids"])  # type: ignore[index]
        except (TypeError, LookupError):
            shown = sanitize(repr(piece["SpecialToken"]))[:80]
            raise InvalidModelError(
                f"tokenizer.json: {part}: special_tokens lacks the template's {shown}"
            ) from None
    _at_most(tokens, MOST_TOKENS, part, "the number of a template's tokens")
    return float(copies)


def _at_most(value: float, most: int, part: str, what: str) -> None:
    if not value <= most:
        shown = f"{value}" if value < 1e30 else "too large"
        raise InvalidModelError(
            f"tokenizer.json: {part}: {what} is {shown}; at most {most} is expected"
        )
