"""Tokenizers of GGUF metadata, compared with those that the folders of such models have."""

from __future__ import annotations

from functools import cache
from itertools import product

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tests.support.counting import calls_of, peak_bytes_of
from tests.support.gguf_files import add_tokenizer
from tests.support.paths import ROOT
from tests.support.text_models import byte_tokenizer
from webnn_vk.generate import InvalidModelError, UnsupportedModelError
from webnn_vk.generate.gguf.tokenizer import PRE_TOKENIZERS, tokenizer_of
from webnn_vk.generate.tokens import TextGrowth

#: The patterns of the tokenizer.json of Llama 3 and Qwen 2.
LLAMA3 = (
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
TEXTS = st.text(max_size=60) | st.lists(st.sampled_from([
    "the", " the", "Layer", "'s", "'LL", " 12345", "٣٤", "\r\n", "\n\n ", "\t", "  ", "   x", "ü",
    "u\u0308", "中文", "🙂", "…!!", " ?", "<|im_start|>", "<tool>", "[PAD400]", "é", "_", "ﬁ", "\0",
]), max_size=12).map("".join)
CORPUS = [ROOT / "README.md", ROOT / "docs" / "architecture.md"]


def byte_level(pre: str, added=True) -> Tokenizer:
    """A tokenizer as the model's folder has it, trained on our documentation."""
    made = Tokenizer(models.BPE(ignore_merges=pre == "llama-bpe"))
    split = {"llama-bpe": LLAMA3, "qwen2": QWEN2}.get(pre)
    if split is not None:
        made.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(split), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ])
    elif pre == "smollm":
        made.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ])
    else:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if pre == "qwen2":
        made.normalizer = normalizers.NFC()
    made.decoder = decoders.ByteLevel()
    made.train(list(map(str, CORPUS)), trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    ))
    if added:
        made.add_special_tokens([
            AddedToken("<|im_start|>", special=True, normalized=False),
            AddedToken("<|im_end|>", special=True, normalized=False),
        ])
        made.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    return made


def metadata_of(fill):
    """The metadata that a writer gets."""
    writer = gguf.GGUFWriter(None, "llama")
    fill(writer)
    return {
        name: np.array(value.value) if isinstance(value.value, list)
        and not isinstance(value.value[0], str) else value.value
        for name, value in writer.kv_data[0].items()
    }


@cache
def pair(pre: str):
    """The folder's tokenizer and the file's."""
    folder = byte_level(pre)
    metadata = metadata_of(lambda writer: add_tokenizer(writer, folder, 640, pre, bos=600, eos=601))
    if pre == "llama-bpe":
        folder.post_processor = processors.TemplateProcessing(
            single="<|im_start|> $A", special_tokens=[("<|im_start|>", 600)]
        )
    made, stop = tokenizer_of(metadata, 640)
    assert stop == {601} and made.vocabulary_size == folder.get_vocab_size() == 603
    return folder, made


@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2", "gpt-2", "smollm"])
def test_byte_level_tokenizers(pre):
    folder, made = pair(pre)

    @given(TEXTS)
    def check(text):
        for special in (True, False):
            ids = made.encode(text, add_special_tokens=special)
            assert ids == folder.encode(text, add_special_tokens=special).ids
        assert made.decode(ids) == folder.decode(ids)
        assert made.decode(ids, skip_special_tokens=False) == folder.decode(
            ids, skip_special_tokens=False
        )

    check()
    assert made.encode("") == ([600] if pre == "llama-bpe" else [])
    assert 600 in made.encode("a<|im_start|>b") and 602 in made.encode("a<tool>b")


@pytest.mark.parametrize(("names", "expected"), [
    (("llama-bpe", "llama3", "llama-v3"), ["'LL", " ", "123", "4", "e", "\u0301"]),
    (("qwen2",), ["'LL", " ", "1", "2", "3", "4", "é"]),
    (("gpt-2",), ["'", "L", "L", " ", "1234", "e", "\u0301"]),
    (("smollm",), ["'", "L", "L", " ", "1", "2", "3", "4", "e", "\u0301"]),
])
def test_where_words_begin(names, expected):
    """With the same merges, texts are split otherwise."""
    assert set(names) <= set(PRE_TOKENIZERS) and len(PRE_TOKENIZERS) == 6
    known = byte_tokenizer(("1", "2"), ("12", "3"), ("123", "4"), ("'", "L"), ("'L", "L"),
                           ("Ì", "ģ"), ("Ã", "©"))
    for pre in names:
        metadata = metadata_of(lambda writer, pre=pre: add_tokenizer(writer, known, 300, pre))
        metadata["tokenizer.ggml.add_bos_token"] = False
        made, _ = tokenizer_of(metadata, 300)
        assert [made.decode([i]) for i in made.encode("'LL 1234e\u0301")] == expected


@cache
def pieces():
    """Tokens, scores and types as the conversion of a SentencePiece model has them."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train(list(map(str, CORPUS)), trainers.BpeTrainer(vocab_size=400, show_progress=False))
    own = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    own = [token for token, _ in own if token not in ("é", "x")]
    characters = [token for token in own if len(token) == 1]
    merged = [token for token in own if len(token) > 1]
    spelled = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *spelled, "<tool>", *merged, *characters]
    scores = [0.0] * 260 + [-float(number) for number in range(len(merged) + len(characters))]
    types = [2, 3, 3, *[6] * 256, 4, *[1] * (len(tokens) - 260)]
    return tokens, scores, types


def piece_metadata(**more):
    tokens, scores, types = pieces()
    return {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": np.array(scores, np.float32),
        "tokenizer.ggml.token_type": np.array(types, np.int32), **more,
    }


def merged(text):
    """SentencePiece's algorithm: the pair of the highest score is merged until there is none;
    characters without a token become bytes. Among pairs of one token, that with the longer first
    part (as transformers has it)."""
    tokens, scores, types = pieces()
    numbers = {token: number for number, token in enumerate(tokens)}
    parts = list(text)
    while True:
        found = [
            (scores[numbers[a + b]], len(a), -at)
            for at, (a, b) in enumerate(zip(parts, parts[1:], strict=False))
            if types[numbers.get(a + b, 0)] == 1 and a in numbers and b in numbers
        ]
        if not found:
            break
        at = -max(found)[2]
        parts[at : at + 2] = ["".join(parts[at : at + 2])]
    ids = []
    for part in parts:
        spelled = [3 + byte for byte in part.encode()]
        ids += [numbers[part]] if part in numbers else spelled
    return ids


@given(TEXTS.filter(lambda text: "<" not in text))
def test_sentence_piece_tokenizers(text):
    made, stop = tokenizer_of(piece_metadata(), 1000)
    assert stop == {2}
    expected = merged("▁" + text.replace(" ", "▁")) if text else []
    assert made.encode(text) == [1, *expected]
    assert made.encode(text, add_special_tokens=False) == expected
    assert made.decode(expected) == text.replace("▁", " ")
    unspaced, _ = tokenizer_of(piece_metadata(**{
        "tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_eos_token": True,
    }), 1000)
    expected = merged(text.replace(" ", "▁"))
    assert unspaced.encode(text) == [*expected, 2]
    assert unspaced.decode(expected) == text.replace("▁", " ")


@pytest.mark.parametrize("text", ["the a", " the  the", "a " * 12 + "é\n the"])
def test_text_after_a_prompt_keeps_its_space(text):
    """Decoded alone, the first token would lose it."""
    made, _ = tokenizer_of(piece_metadata(), 1000)
    prompt, ids = made.encode("the"), made.encode("the " + text)
    assert ids[: len(prompt)] == prompt
    growth = TextGrowth(made, prompt)
    pieces = [growth.add(token) for token in ids[len(prompt):]]
    assert "".join(pieces) + growth.finish() == " " + text


def test_tokens_of_the_user():
    tokens = pieces()[0]
    made, _ = tokenizer_of(piece_metadata(), 1000)
    expected = [1, *merged("▁the"), tokens.index("<tool>"), *merged("▁the")]
    assert made.encode("the<tool>the") == expected
    assert made.encode("</s>", add_special_tokens=False) == [2]


def test_the_unknown_token_in_a_text():
    """By its type, as llama.cpp finds it, or by its field, as transformers does; not by default."""
    made, _ = tokenizer_of(piece_metadata(), 1000)
    assert made.encode("the<unk>", add_special_tokens=False) == [*merged("▁the"), 0]
    assert made.decode([0]) == "" and made.decode([0], skip_special_tokens=False) == "<unk>"
    tokens, _, types = pieces()
    plain = np.array([1, *types[1:]], np.int32)
    for more, expected in (({}, merged("▁<unk>")), ({"tokenizer.ggml.unknown_token_id": 0}, [0])):
        made, _ = tokenizer_of(piece_metadata(**{"tokenizer.ggml.token_type": plain, **more}), 1000)
        assert made.encode("<unk>", add_special_tokens=False) == expected
    metadata = metadata_of(lambda writer: add_tokenizer(writer, byte_level("gpt-2"), 640))
    metadata["tokenizer.ggml.token_type"][602] = 2
    made, _ = tokenizer_of(metadata, 640)
    assert made.encode("<tool>") == [602]


def vocabulary(*more, kind=1):
    """Of these tokens, all of one type."""
    tokens = ["<unk>", "<s>", "</s>", *more]
    return {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": -np.arange(len(tokens), dtype=np.float32),
        "tokenizer.ggml.token_type": np.array([2, 3, 3, *[kind] * len(more)], np.int32),
    }


@pytest.mark.parametrize("tokens", [
    [letter * length for letter in "ab" for length in range(1, 601)],
    ["".join(letters) for length in range(1, 13) for letters in product("ab", repeat=length)],
], ids=["prefixes", "all"])
def test_work_and_memory_grow_with_the_vocabulary(tokens):
    """Not with the ways in which its tokens can be put together: 360,000 and 80,000."""
    metadata, calls = vocabulary(*tokens, "▁"), []
    peak = peak_bytes_of(lambda: calls.append(calls_of(lambda: tokenizer_of(metadata, 10_000))))
    assert peak < 4 * sum(len(token) + 16 for token in tokens) + 1e6
    assert calls[0] < 8 * len(tokens) + 500
    made, _ = tokenizer_of(metadata, 10_000)
    assert made.decode(made.encode("aaa" + "b" * 1000)) == "aaa" + "b" * 1000


def test_merges_of_a_long_text_are_few():
    made, _ = tokenizer_of(vocabulary("▁", *("a" * length for length in range(1, 65))), 1000)
    counts = [calls_of(lambda n=n: made.encode("a" * n)) for n in (500, 2000)]
    assert counts[1] < 4.5 * counts[0]


@pytest.mark.parametrize("kind", [2, 3, 4])
def test_tokens_in_texts_are_limited(kind):
    """The package's automaton takes 80 bytes for each of theirs."""
    many = [f"<{number}>" for number in range(50_000)]
    for tokens in (many, [f"{number:04}" * 250 for number in range(600)]):
        with pytest.raises(InvalidModelError, match="tokens that are found in texts have"):
            tokenizer_of(vocabulary(*tokens, kind=kind), 100_000)
    tokenizer_of(vocabulary(*many[:6400], kind=kind), 100_000)


def test_merges_that_a_file_has_twice():
    """The first counts, as for llama.cpp."""
    known = byte_tokenizer(("a", "b"), ("b", "c"), ("c", "d"))
    metadata = metadata_of(lambda writer: add_tokenizer(writer, known, 300))
    merges = metadata["tokenizer.ggml.merges"]
    made, _ = tokenizer_of({**metadata, "tokenizer.ggml.merges": [*merges, merges[0]] * 9}, 300)
    assert made.encode("abcd") == known.encode("abcd").ids


def test_templates():
    template = "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ messages[0].content }}"
    made, _ = tokenizer_of(piece_metadata(**{
        "tokenizer.chat_template": template, "tokenizer.ggml.padding_token_id": 259,
    }), 1000)
    assert made.has_chat_template
    messages = [{"role": "user", "content": "a"}]
    assert made.apply_chat_template(messages) == "<s></s><tool>a"


def test_the_template_for_tools():
    made, _ = tokenizer_of(piece_metadata(**{
        "tokenizer.chat_template": "D", "tokenizer.chat_template.tool_use": "{{ tools[0] }}",
    }), 1000)
    messages = [{"role": "user", "content": "a"}]
    assert made.apply_chat_template(messages) == "D"
    assert made.apply_chat_template(messages, tools=["T"]) == "T"


def test_control_tokens_that_end_a_turn():
    """Files from before the fields that name them; a word of the same text does not."""
    tokens, scores, types = pieces()
    ends = ["<|eot_id|>", "<end_of_turn>", "<|im_end|>", "<|end|>"]
    made = {
        "tokenizer.ggml.tokens": [*tokens, *ends, "<EOT>"],
        "tokenizer.ggml.scores": np.array([*scores, *[0] * 5], np.float32),
        "tokenizer.ggml.token_type": np.array([*types, 3, 3, 3, 3, 4], np.int32),
    }
    _, stop = tokenizer_of(piece_metadata(**made), 1000)
    assert stop == {2, *range(len(tokens), len(tokens) + 4)}


@pytest.mark.parametrize(("change", "message"), [
    ({"model": "bert"}, "tokenizer.ggml.model 'bert' is not supported"),
    ({"model": 5}, "tokenizer.ggml.model is 5; a text"),
    ({"pre": "gpt-2"}, "tokenizer.ggml.pre is 'gpt-2'; default"),
    ({"model": "gpt2", "pre": "tekken"}, "tokenizer.ggml.pre is 'tekken'; one of llama-bpe"),
    ({"model": "gpt2", "pre": "default"}, "tokenizer.ggml.pre is 'default'; one of"),
    ({"model": "gpt2", "pre": None}, "tokenizer.ggml.pre is missing; one of"),
    ({"model": "gpt2", "pre": "gpt-2"}, "merges is None; an array of texts"),
    ({"model": "gpt2", "pre": "gpt-2", "merges": ["a"]}, "merges has one without two parts"),
    ({"model": "gpt2", "pre": "gpt-2", "merges": ["zz top"]}, "the tokenizer is not valid: .*zz"),
    ({"tokens": None}, "tokens is None; an array of texts"),
    ({"tokens": ["a"] * 9}, "has a token twice"),
    ({"tokens": ["a", "b"]}, "token_type is an array of"),
    ({"tokens": [str(n) for n in range(1001)]}, "1001 tokens don't fit a vocabulary of 1000"),
    ({"scores": None}, "scores is None; an array of"),
    ({"scores": np.zeros(5)}, "scores is an array of 5; an array of"),
    ({"scores": np.full(len(pieces()[0]), np.nan)}, "scores is an array of"),
    ({"token_type": np.ones(len(pieces()[0]))}, "token_type is an array of"),
    ({"tokens": [*pieces()[0][1:], "a" * 1025]}, "has 1025 characters; at most 1024 are expected"),
    ({"bos_token_id": 999}, "bos_token_id is 999; a number below"),
    ({"eos_token_id": -1}, "eos_token_id is -1"), ({"eos_token_id": True}, "eos_token_id is True"),
    ({"add_bos_token": 1}, "add_bos_token is 1; true or false"),
    ({"remove_extra_whitespaces": True}, "remove_extra_whitespaces = True is not supported"),
    ({"precompiled_charsmap": np.zeros(3)}, "unknown field 'tokenizer.ggml.precompiled_charsmap'"),
])
def test_errors(change, message):
    metadata = piece_metadata(**{f"tokenizer.ggml.{name}": v for name, v in change.items()})
    metadata = {name: value for name, value in metadata.items() if value is not None}
    with pytest.raises((InvalidModelError, UnsupportedModelError), match=message) as caught:
        tokenizer_of(metadata, 1000)
    assert str(caught.value).isprintable()


def test_a_beginning_that_is_missing():
    metadata = metadata_of(lambda writer: (
        add_tokenizer(writer, byte_level("gpt-2"), 640), writer.add_add_bos_token(True)
    ))
    with pytest.raises(InvalidModelError, match="tokenizer.ggml.bos_token_id is missing"):
        tokenizer_of(metadata, 640)


@pytest.mark.parametrize("model", ["none", "no_vocab", None])
def test_no_tokenizer(model):
    metadata = {} if model is None else {"tokenizer.ggml.model": model}
    assert tokenizer_of(metadata, 10) == (None, frozenset())
