"""Tokenizers and chat templates of folders: what they do, and damaged and hostile ones."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from tests.unit.generate.test_folders import refused, small
from webnn_vk.generate import InvalidModelError
from webnn_vk.generate.folder import folder_tokenizer


def tokenizer_of(folder, template=None):
    from tokenizers import Tokenizer as Made
    from tokenizers import models

    Made(models.WordLevel({"a": 0, "b": 1}, unk_token="a")).save(str(folder / "tokenizer.json"))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder_tokenizer(folder)


def test_tokenizers(cpu_context, tmp_path):
    folder = small(tmp_path)
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "none"}}')
    refused(folder, cpu_context, "tokenizer.json is not valid")


HELLO = [{"role": "user", "content": "a"}]


def test_templates(tmp_path):
    with pytest.raises(InvalidModelError, match="no chat template"):
        tokenizer_of(tmp_path).apply_chat_template(HELLO)
    template = (
        "{%- for m in messages %}{%- if m.role == 'x' %}{%- continue %}{%- endif %}"
        "{{ (bos_token or '') + m.content | tojson }}{%- endfor %}"
    )
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": {"content": "<s>"}}')
    made = tokenizer_of(tmp_path, template)
    messages = [{"role": "user", "content": "ä\n"}, {"role": "x", "content": "y"}]
    assert made.apply_chat_template(messages) == '<s>"ä\\n"'


@pytest.mark.parametrize(("template", "expected"), [
    # Absent values are None, as in transformers.
    ("{{ tools is none }}{{ documents is none }}{{ tools is defined }}", "TrueTrueTrue"),
    ("{{ messages[0] | tojson }}", '{"role": "user", "content": "é"}'),
    ("{{ messages[0].content | tojson(ensure_ascii=True) }}", r'"\u00e9"'),
    ("{{ messages[0] | tojson(separators=(',', ':'), sort_keys=True) }}",
     '{"content":"é","role":"user"}'),
    ("{{ [1] | tojson(indent=1) }}", "[\n 1\n]"),
    ("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}", "é"),
    ("{{ strftime_now('%f') | length }}", "6"),
])
def test_what_templates_use(tmp_path, template, expected):
    messages = [{"role": "user", "content": "é"}]
    assert tokenizer_of(tmp_path, template).apply_chat_template(messages) == expected


def test_names_of_special_tokens(tmp_path):
    """Also those that another file has; tokenizer_config.json comes first."""
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(
        {"sep_token": "a", "cls_token": "b", "mask_token": "<mask>"}))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(
        {"bos_token": "<s>", "eos_token": {"content": "b", "lstrip": False}, "cls_token": "x"}))
    names = ("bos", "eos", "sep", "cls", "mask")
    made = tokenizer_of(tmp_path, " ".join(f"{{{{ {name}_token }}}}" for name in names))
    assert made.apply_chat_template(HELLO) == "<s> b a b <mask>"
    assert made.encode("<s>a<mask>", add_special_tokens=False) == [
        made.token_id("<s>"), 0, made.token_id("<mask>")]


def test_tokens_that_only_the_configuration_has(tmp_path):
    """In the order of their numbers; tokens of tokenizer.json keep theirs."""
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {
        "3": {"content": "<y>", "special": True}, "2": {"content": "<x>", "special": False},
        "9": {"content": "b"}, "odd": {}, "4": 5,
    }}))
    made = tokenizer_of(tmp_path)
    assert [made.token_id(token) for token in ("a", "b", "<x>", "<y>")] == [0, 1, 2, 3]
    assert made.encode("a<y><x>b") == [0, 3, 2, 1]
    assert made.decode([0, 3, 2]) == "a <x>"


def test_wrong_tokens_are_the_caller_s_mistake(tmp_path):
    made = tokenizer_of(tmp_path)
    assert made.decode(np.array([0, 1])) == "a b"
    for wrong, kind in (([-1], ValueError), ([2**32], ValueError), (["a"], TypeError),
                        ([0.5], TypeError)):
        with pytest.raises(kind):
            made.decode(wrong)
    with pytest.raises(TypeError, match="text is int; a str is expected"):
        made.encode(3)


def test_values_of_templates(tmp_path):
    """Any number that JSON can hold; what it can't is named."""
    made = tokenizer_of(tmp_path, "{{ x }} {{ tools is none }}")
    for value, expected in ((1e999, "inf"), (True, "True"), (10**99, f"{10**99}")):
        assert made.apply_chat_template(HELLO, x=value) == f"{expected} True"
    for value in (10**5000, {1}, 1j, b"x"):
        with pytest.raises(TypeError, match="x of the chat template is not what JSON can hold"):
            made.apply_chat_template(HELLO, x=value)


def test_templates_by_name(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": [
        {"name": "default", "template": "D"},
        {"name": "tool_use", "template": "T{{ tools | length }}"}, {"name": 3}, 4,
    ]}))
    made = tokenizer_of(tmp_path)
    assert made.apply_chat_template(HELLO) == "D"
    assert made.apply_chat_template(HELLO, tools=[{"type": "function"}]) == "T1"


@pytest.mark.parametrize("saved", [
    {"truncation": {
        "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}},
    {"padding": {"strategy": {"Fixed": 9}, "direction": "Left", "pad_to_multiple_of": None,
                 "pad_id": 1, "pad_type_id": 0, "pad_token": "b"}},
])
def test_saved_truncation_and_padding_are_of_another_call(tmp_path, saved):
    tokenizer_of(tmp_path)
    path = tmp_path / "tokenizer.json"
    split = {"pre_tokenizer": {"type": "WhitespaceSplit"}}
    path.write_text(json.dumps({**json.loads(path.read_text()), **split, **saved}))
    assert folder_tokenizer(tmp_path).encode("a b a b") == [0, 1, 0, 1]


@pytest.mark.parametrize("change", [
    {"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}},
    {"model": {"type": "WordLevel", "vocab": {"b": 0}, "unk_token": "a"}},
    {"post_processor": {
        "type": "TemplateProcessing", "single": [
            {"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {}}},
])
def test_a_tokenizer_that_panics(tmp_path, change):
    """The package's PanicException is no Exception, and passes ``except Exception``."""
    tokenizer_of(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InvalidModelError, match="tokenizer"):
        folder_tokenizer(tmp_path).encode("a" * 200)


def replacing(content, **pattern):
    return {"type": "Replace", "pattern": pattern, "content": content}


def template(pieces, **tokens):
    return {"type": "TemplateProcessing", "single": pieces, "special_tokens": tokens, "pair": [
        {"Sequence": {"id": name, "type_id": 0}} for name in "AB"]}


BYTES = {"add_prefix_space": True, "trim_offsets": True, "use_regex": True}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
TOKEN = {"SpecialToken": {"id": "x", "type_id": 0}}
CHARMAP = base64.b64encode(b"\0\0\0\0a\0" + b"b" * 600 + b"\0").decode()
LONG = {"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100, "vocab": {"a": 0, "b": 1}}


@pytest.mark.parametrize(("change", "message"), [
    # Without a type, or with another, the package knows a step by its fields.
    ({"normalizer": {"type": "Sequence", "normalizers": [replacing("aa", String="a")] * 29}},
     "normalizer: what the length of a text is multiplied by is 536870912.0; at most 512 is exp"),
    ({"normalizer": {"normalizers": [{**replacing("a", Regex=""), "type": "X"}] * 29}}, "multip"),
    ({"normalizer": replacing("a" * 1000, String="")}, "normalizer: what the length"),
    ({"normalizer": {"normalizers": [[{"String": "a"}, "aa"]] * 29}}, "a step is no JSON object"),
    ({"normalizer": {"normalizers": [None]}}, "normalizer: a step is no JSON object"),
    ({"normalizer": {"type": "Prepend", "prepend": "a" * 99}}, "the length of prepend is 99"),
    ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": CHARMAP}}, "is 600.0; at most"),
    ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "?"}}, "is not base64"),
    ({"normalizer": replacing("a" * 30, String="a"), "pre_tokenizer": {
        "pretokenizers": [BYTES] * 5}}, "pre_tokenizer: what the length of a text is multiplied"),
    ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a" * 20_000}}}, "length of Regex"),
    ({"decoder": {"decoders": [{"suffix": ""}] * 29}}, "decoder: what the length of a text"),
    ({"decoder": {"decoders": [{"word_delimiter_token": ""}] * 29}}, "decoder: what the length"),
    ({"decoder": {"type": "Strip", "content": "a", "start": 2**63, "stop": 0}}, "decoder: start "),
    ({"decoder": {"decoders": [{"type": "Fuse"}] * 101}}, "number of steps is 101; at most 100"),
    ({"post_processor": {"processors": [template([TEXT, TEXT])] * 29}}, "post_processor: what the"),
    ({"post_processor": template([TOKEN, TEXT])}, "special_tokens lacks the template's .'id': 'x'"),
    ({"post_processor": template([TOKEN] * 99 + [TEXT], x={"id": "x", "ids": [0] * 99})},
     "post_processor: the number of a template's tokens is 9801; at most 1000"),
    ({"model": {**LONG, "max_input_chars_per_word": 2**63}}, "model: max_input_chars_per_word is"),
    ({"model": {**LONG, "continuing_subword_prefix": "#" * 99}}, "the length of continuing_subwo"),
])
def test_tokenizers_that_make_much_of_a_text(tmp_path, monkeypatch, change, message):
    """They are refused before the package gets them, which would end the process."""
    import tokenizers

    tokenizer_of(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    monkeypatch.setattr(tokenizers, "Tokenizer", None)
    with pytest.raises(InvalidModelError, match=f"tokenizer.json: .*{message}"):
        folder_tokenizer(tmp_path)


def test_tokenizers_as_they_are_published(tmp_path):
    tokenizer_of(tmp_path)
    path = tmp_path / "tokenizer.json"
    spaces = [{"type": "Prepend", "prepend": "▁"}, replacing("▁", String=" "),
              replacing(" ", Regex=" {2,}"), replacing('"', String="``"), {"type": "NFKC"}]
    shown = [replacing(" ", String="▁"), {"type": "ByteFallback"}, {"type": "Fuse"},
             {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    path.write_text(json.dumps({
        **json.loads(path.read_text()), "model": LONG,
        "normalizer": {"type": "Sequence", "normalizers": spaces},
        "pre_tokenizer": {"type": "ByteLevel", **BYTES},
        "decoder": {"type": "Sequence", "decoders": shown},
        "post_processor": template([TOKEN, TEXT], x={"id": "x", "ids": [1], "tokens": ["b"]}),
    }))
    assert folder_tokenizer(tmp_path).encode("a") == [1, 0, 0]


@pytest.mark.parametrize(("template", "message"), [
    ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
    ("{% for", "TemplateSyntaxError"),
    ("{{ messages.__class__.__mro__ }}", "SecurityError"),
    ("{{ ''.__class__ }}{{ cycler.__init__.__globals__.os }}", "SecurityError"),
    ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
     "limits|longer"),
    ("{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}", "more than 4000000"),
    ("{% set n = namespace(s='x' * 99) %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}"
     "{% endfor %}", "limits|MemoryError"),
    ("{{ 9 ** (9 ** (9 ** 9)) }}", "limits|longer"),
    ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
])
def test_hostile_templates(tmp_path, template, message):
    made = tokenizer_of(tmp_path, template)
    with pytest.raises(InvalidModelError, match=message) as caught:
        made.apply_chat_template(HELLO)
    assert "\n" not in str(caught.value)
