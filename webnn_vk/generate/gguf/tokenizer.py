"""The tokenizer that a GGUF file's metadata describe, as one of the package ``tokenizers``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from webnn_vk.generate.errors import InvalidModelError, UnsupportedModelError
from webnn_vk.generate.fields import Fields
from webnn_vk.generate.tokens import DEFAULT, TOOL_USE, Tokenizer, package_errors
from webnn_vk.support.errors import sanitize

#: Types of tokens.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5
#: Tokens of models of the kind "llama" are shorter; those of spaces are the longest.
_MAX_CHARACTERS = 1024
#: Bytes of all tokens that are found in texts, and eight more for each: the automaton that looks
#: for them takes 80 times as much. Gemma's 6,400 tokens have a third of it.
_MAX_FOUND = 1 << 19
#: Where words begin in texts of Llama 3, and of Qwen 2, which splits digits one by one.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
#: What ``tokenizer.ggml.pre`` calls the rules by which a text is split into words.
_LLAMA3 = ("llama-bpe", "llama3", "llama-v3")
PRE_TOKENIZERS = (*_LLAMA3, "qwen2", "gpt-2", "smollm")
#: Fields without influence on the tokens of a text.
_IGNORED = frozenset((
    "seperator_token_id", "mask_token_id", "cls_token_id", "token_type_count",
    "fim_pre_token_id", "fim_suf_token_id", "fim_mid_token_id", "fim_pad_token_id",
    "fim_rep_token_id", "fim_sep_token_id", "prefix_token_id", "suffix_token_id",
    "middle_token_id",
))
#: Control tokens that end a text or a turn, whether a field names them or not: files from before
#: these fields, and of models with several such tokens.
_ENDS = (
    "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
    "<|end_of_text|>", "<end_of_utterance>", "<EOT>",
)
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}


def tokenizer_of(
    metadata: Mapping[str, Any], vocabulary: int
) -> tuple[Tokenizer | None, frozenset[int]]:
    """The tokenizer, and the tokens that end a text. None if the file has none. InvalidModelError
    if the metadata are damaged or name a token that a ``vocabulary`` of this size lacks;
    UnsupportedModelError, with the name, for rules that are not implemented."""
    fields = Fields(metadata, "metadata: ", "tokenizer.ggml.")
    kind = fields.text("model")
    if kind in (None, "none", "no_vocab"):
        return None, frozenset()
    if kind not in ("gpt2", "llama"):
        raise UnsupportedModelError(
            f"metadata: tokenizer.ggml.model {sanitize(kind)[:80]!r} is not supported; one of "
            "gpt2, llama is expected"
        )
    tokens = _texts(fields, "tokens")
    if not 0 < len(tokens) <= vocabulary:
        raise InvalidModelError(
            f"metadata: {len(tokens)} tokens don't fit a vocabulary of {vocabulary}"
        )
    vocab = {token: number for number, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise InvalidModelError("metadata: tokenizer.ggml.tokens has a token twice")
    types = _numbers(fields, "token_type", "iu", len(tokens))
    ids = _special_ids(fields, len(tokens), kind)
    pre = fields.text("pre")
    for number in np.flatnonzero(types == _UNUSED).tolist():
        # The converter's names for rows of the embedding that no token has.
        if tokens[number] == f"[PAD{number}]":
            del vocab[tokens[number]]
    # As llama.cpp finds them in texts by their type, and transformers the unknown one by its field.
    found = {*np.flatnonzero(np.isin(types, (_UNKNOWN, _CONTROL, _USER_DEFINED))).tolist()}
    if "tokenizer.ggml.unknown_token_id" in metadata:
        found.add(ids["unknown"])
    size = sum(len(tokens[number].encode()) + 8 for number in found)
    if size > _MAX_FOUND:
        raise InvalidModelError(
            f"metadata: {len(found)} tokens that are found in texts have {size - 8 * len(found)} "
            f"bytes; less than {_MAX_FOUND} are expected, eight more for each counted"
        )
    merge = None
    with package_errors("metadata: the tokenizer is not valid"):
        if kind == "gpt2":
            made = _byte_level(fields, tokens, vocab, pre)
        else:
            made = _sentence_piece(fields, tokens, vocab, pre, ids.get("unknown"))
            scores = _numbers(fields, "scores", "f", len(tokens), required=True)
            costs = np.where(types == _NORMAL, -scores.astype(np.float64), np.inf)
            merge = PieceMerges(tokens, vocab, costs, found)
        _add_special(made, fields, tokens, types, ids, sorted(found),
                     kind == "llama" or pre in _LLAMA3)
    fields.finish(f"a tokenizer of the model {kind}", _IGNORED)
    chat = Fields(metadata, "metadata: ", "tokenizer.")
    named = {
        DEFAULT: chat.text("chat_template"), TOOL_USE: chat.text(f"chat_template.{TOOL_USE}"),
    }
    templates = {name: text for name, text in named.items() if text is not None}
    special = {name: tokens[ids[role]] for name, role in _SPECIAL.items() if role in ids}
    ends = {ids[role] for role in ("eos", "eot", "eom") if role in ids}
    ends.update(
        vocab[token] for token in _ENDS if token in vocab and types[vocab[token]] == _CONTROL
    )
    return Tokenizer(made, templates, special, merge), frozenset(ends)


def _byte_level(
    fields: Fields, tokens: list[str], vocab: dict[str, int], pre: str | None
) -> Any:
    """Byte-pair encoding of the bytes of words, as GPT-2's."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    if pre not in PRE_TOKENIZERS:
        shown = "missing" if pre is None else repr(sanitize(pre)[:80])
        raise UnsupportedModelError(
            f"metadata: tokenizer.ggml.pre is {shown}; one of {', '.join(PRE_TOKENIZERS)} is "
            "expected"
        )
    merges = []
    for text in dict.fromkeys(_texts(fields, "merges")):
        left, space, right = text.partition(" ")
        if not (left and space and right):
            raise InvalidModelError("metadata: tokenizer.ggml.merges has one without two parts")
        # The vocabulary's own strings: there may be twice as many merges as tokens.
        merges.append((
            tokens[vocab[left]] if left in vocab else left,
            tokens[vocab[right]] if right in vocab else right,
        ))
    fields.take("scores")
    fields.only("add_space_prefix", False)
    made = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre in _LLAMA3))
    words: list[Any] = []
    if pre in (*_LLAMA3, "qwen2"):
        pattern = Regex(_WORDS % ("" if pre == "qwen2" else "{1,3}"))
        words.append(pre_tokenizers.Split(pattern, "isolated"))
    elif pre == "smollm":
        words.append(pre_tokenizers.Digits(individual_digits=True))
    own = pre in ("gpt-2", "smollm")  # the package's own pattern is GPT-2's
    words.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=own))
    made.pre_tokenizer = pre_tokenizers.Sequence(words)
    if pre == "qwen2":
        made.normalizer = normalizers.NFC()
    made.decoder = decoders.ByteLevel()
    return made


def _sentence_piece(
    fields: Fields, tokens: list[str], vocab: dict[str, int], pre: str | None,
    unknown: int | None,
) -> Any:
    """The characters of SentencePiece's byte-pair encoding, which `PieceMerges` merges; those
    without a token are spelled in bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    if pre not in (None, "default"):
        raise UnsupportedModelError(
            f"metadata: tokenizer.ggml.pre is {sanitize(pre)[:80]!r}; default is expected for the "
            "model llama"
        )
    fields.take("merges")
    fields.only("remove_extra_whitespaces", False)
    number, length = max(enumerate(map(len, tokens)), key=lambda item: item[1])
    if length > _MAX_CHARACTERS:
        raise InvalidModelError(
            f"metadata: token {number} has {length} characters; at most {_MAX_CHARACTERS} are "
            "expected"
        )
    made = Tokenizer(models.BPE(
        vocab=vocab, merges=[], fuse_unk=True, byte_fallback=True,
        unk_token=None if unknown is None else tokens[unknown],
    ))
    spaced = fields.flag("add_space_prefix", True)
    made.normalizer = normalizers.Sequence([
        *([normalizers.Prepend("▁")] if spaced else []), normalizers.Replace(" ", "▁"),
    ])
    made.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        *([decoders.Strip(" ", 1, 0)] if spaced else []),
    ])
    return made


class PieceMerges:
    """Merges the characters of a text as SentencePiece does. While two neighbours together are a
    token, the pair whose token has the lowest cost is merged; of equal costs, the pair with the
    longer first part, as in transformers. ``apart``: tokens that are never merged.

    As a list for the package ``tokenizers``, with all pairs of which each token can be made, these
    take memory that grows with the square of a token's length."""

    def __init__(
        self, tokens: Sequence[str], vocab: Mapping[str, int], costs: np.ndarray,
        apart: Collection[int],
    ) -> None:
        self._tokens, self._vocab, self._apart = tokens, vocab, apart
        self._costs = memoryview(costs)

    def __call__(self, ids: Sequence[int], special: Sequence[int]) -> list[int]:
        """The model's tokens. ``special``: 1 for tokens beside the text."""
        numbers, apart = list(ids), self._apart
        parts = [
            "" if beside or number in apart else self._tokens[number]
            for number, beside in zip(ids, special, strict=True)
        ]
        before, after = [*range(-1, len(ids) - 1)], [*range(1, len(ids) + 1)]
        heap: list[tuple[float, int, int, int, int]] = []

        def offer(at: int, next_: int) -> None:
            left, right = parts[at], parts[next_]
            number = self._vocab.get(left + right) if left and right else None
            if number is not None and (cost := self._costs[number]) < np.inf:
                heappush(heap, (cost, -len(left), -len(right), number, at))

        for at in range(len(ids) - 1):
            offer(at, at + 1)
        while heap:
            _, left, right, number, at = heappop(heap)
            next_ = after[at]
            # Parts only grow: with these lengths they are what they were.
            if len(parts[at]) != -left or next_ == len(ids) or len(parts[next_]) != -right:
                continue
            numbers[at], parts[at], parts[next_] = number, self._tokens[number], ""
            numbers[next_] = -1
            after[at] = end = after[next_]
            if end < len(ids):
                before[end] = at
                offer(at, end)
            if before[at] >= 0:
                offer(before[at], at)
        return [number for number in numbers if number >= 0]


def _add_special(
    made: Any, fields: Fields, tokens: list[str], types: np.ndarray, ids: Mapping[str, int],
    found: Sequence[int], begins: bool,
) -> None:
    """Tokens that are ``found`` in texts before anything else, and those that are put before and
    after a text. ``begins``: the default of ``add_bos_token``."""
    from tokenizers import AddedToken, processors

    made.add_tokens([
        AddedToken(tokens[number], normalized=False, special=bool(types[number] != _USER_DEFINED))
        for number in found
    ])
    fields.only("add_sep_token", False)
    around = {
        "bos": fields.flag("add_bos_token", begins), "eos": fields.flag("add_eos_token", False)
    }
    lacking = next((role for role, wanted in around.items() if wanted and role not in ids), None)
    if lacking is not None:
        raise InvalidModelError(f"metadata: tokenizer.ggml.{lacking}_token_id is missing")
    if any(around.values()):
        single = [role for role in ("bos",) if around[role]] + ["$A"]
        single += [role for role in ("eos",) if around[role]]
        made.post_processor = processors.TemplateProcessing(single=single, special_tokens=[
            {"id": role, "ids": [ids[role]], "tokens": [tokens[ids[role]]]}
            for role, wanted in around.items() if wanted
        ])


def _special_ids(fields: Fields, count: int, kind: str) -> dict[str, int]:
    """The numbers of special tokens by role."""
    # SentencePiece's own, as llama.cpp has them.
    found = {"unknown": 0, "bos": 1, "eos": 2} if kind == "llama" else {}
    for role in ("bos", "eos", "eot", "eom", "unknown", "padding"):
        number = fields.take(f"{role}_token_id", found.get(role))
        if number is None:
            continue
        if type(number) is not int or not 0 <= number < count:
            raise fields.wrong(f"{role}_token_id", number, f"a number below {count}")
        found[role] = number
    return found


def _texts(fields: Fields, name: str) -> list[str]:
    value = fields.take(name)
    if not isinstance(value, list):
        raise fields.wrong(name, value, "an array of texts")
    return value


def _numbers(
    fields: Fields, name: str, kinds: str, count: int, required: bool = False
) -> np.ndarray:
    """An array of ``count`` numbers, of NumPy's ``kinds``; if it is missing and not required, ones.
    """
    value = fields.take(name)
    if value is None and not required:
        return np.ones(count, np.int32)
    if not isinstance(value, np.ndarray) or len(value) != count or value.dtype.kind not in kinds \
            or (value != value).any():
        raise fields.wrong(name, value, f"an array of {count} numbers")
    return value
