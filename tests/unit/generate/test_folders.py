"""Folders that are damaged, hostile or of other models: one line says what is wrong."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from tests.support.reference_decoder import CONFIGS, LLAMA, random_weights, write_folder
from webnn_vk.generate import InvalidModelError, Model, UnsupportedModelError
from webnn_vk.generate.config import decoder_config
from webnn_vk.generate.folder import folder_tokenizer

SMALL = {**LLAMA, "num_hidden_layers": 1, "vocab_size": 11}


def small(folder, config=SMALL, drop=(), change=None, **more):
    weights = random_weights(SMALL, 1)
    for name in drop:
        del weights[name]
    return write_folder(folder, config, {**weights, **(change or {})}, **more)


def refused(folder, context, message, kind=InvalidModelError):
    with pytest.raises(kind, match=message) as caught:
        Model.load(folder, context)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 600
    return text


def test_no_folder(cpu_context, tmp_path):
    refused(tmp_path / "none", cpu_context, "neither a folder nor a GGUF file")
    refused(tmp_path, cpu_context, "config.json can't be read")


@pytest.mark.parametrize(("text", "message"), [
    ("", "is no JSON"), ("[1]", "no JSON object"), ("{}", "lacks model_type"),
    ("[" * 100_000, "is no JSON"), ('{"model_type": "bert"}', "architecture 'bert'"),
    (json.dumps({"model_type": "llama"}), "hidden_size is None"),
    (json.dumps({**SMALL, "model_type": "\u001b[31mx"}), "not supported"),
])
def test_configs(cpu_context, tmp_path, text, message):
    small(tmp_path)
    (tmp_path / "config.json").write_text(text)
    refused(tmp_path, cpu_context, message, (InvalidModelError, UnsupportedModelError))


@pytest.mark.parametrize("fields", [
    # Of gpt2-medium, distilgpt2, Qwen2.5; what a model saved by to_dict() has.
    {"n_special": 0, "predict_special_tokens": True, "_num_labels": 1, "prefix": None},
    {"use_mrope": False, "tokenizer_class": "Qwen2Tokenizer", "auto_map": {"AutoModel": "m.M"}},
    {"return_dict": True, "output_attentions": False, "output_hidden_states": False,
     "torchscript": False, "use_bfloat16": False, "tf_legacy_loss": False, "pruned_heads": {},
     "chunk_size_feed_forward": 0, "is_encoder_decoder": False, "is_decoder": False,
     "add_cross_attention": False, "cross_attention_hidden_size": None, "max_length": 4096,
     "do_sample": False, "temperature": 1.0, "top_k": 50, "bad_words_ids": None},
])
def test_fields_that_change_nothing(fields):
    assert decoder_config({**SMALL, **fields}) == decoder_config(SMALL)


@pytest.mark.parametrize(("fields", "message"), [
    ({"is_encoder_decoder": True}, "is_encoder_decoder = True is not supported"),
    ({"num_beams": 4}, "num_beams = 4"), ({"num_beams": True}, "num_beams = True"),
    ({"do_sample": 0}, "do_sample = 0"), ({"rms_norm_eps": 10**400}, "rms_norm_eps is 1000"),
    ({"hidden_size": 10**400}, "hidden_size is 1000"), ({"rope_theta": True}, "rope_theta is True"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan; a positive number"),
    ({"pruned_heads": {"0": [1]}}, "pruned_heads = "),
    ({"use_mrope": True}, "use_mrope"), ({"temperature": 0.6}, "temperature = 0.6"),
    ({"attention_sinks": True}, "unknown field 'attention_sinks' for llama"),
    ({"hidden_act": "tanh"}, "hidden_act = 'tanh'"),
    ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, "rope_type 'dynamic'"),
    ({"rope_scaling": {"rope_type": "linear", "factor": 2, "x": 1}}, "unknown field 'x'"),
    ({"rope_scaling": {"rope_type": "linear"}}, "factor is None"),
    ({"rope_scaling": 3}, "rope_scaling is no JSON object"),
    ({"rope_theta": 1}, "rope_theta is 1.0; a number above 1"),
    ({"num_hidden_layers": 2**30}, "num_hidden_layers is 1073741824; a number up to 10000"),
    ({"num_key_value_heads": 3}, "4 heads can't share 3"),
    ({"vocab_size": -1}, "vocab_size is -1"), ({"vocab_size": True}, "vocab_size is True"),
    ({"rms_norm_eps": "x"}, "rms_norm_eps"), ({"attention_bias": 1}, "attention_bias is 1"),
    ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ({"layer_types": ["sliding_attention"] * 2}, "a list of 1 of full_attention is expected"),
    ({"use_sliding_window": True, "sliding_window": "x"}, "sliding_window is 'x'"),
    ({"use_sliding_window": True, "sliding_window": 9, "max_window_layers": -1}, "layers is -1"),
])
def test_fields(fields, message):
    with pytest.raises((InvalidModelError, UnsupportedModelError), match=message):
        decoder_config({**SMALL, **fields})


@pytest.mark.parametrize(("fields", "message"), [
    ({"attn_logit_softcapping": -1}, "attn_logit_softcapping is -1; a positive number is"),
    ({"final_logit_softcapping": "x"}, "final_logit_softcapping is 'x'; a positive number is"),
    ({"model_type": "gemma", "final_logit_softcapping": 30.0}, "softcapping = 30.0 is not"),
    ({"use_bidirectional_attention": True}, "use_bidirectional_attention = True"),
    ({"hidden_activation": "gelu"}, "hidden_activation = 'gelu' is not supported"),
    ({"layer_types": ["full_attention"]}, "array of 1; a list of 7 of full_attention, sliding_"),
    ({"layer_types": ["full_attention"] * 6 + ["x"]}, "layer_types is an array of 7"),
    ({"sliding_window": 0}, "sliding_window is 0; a positive integer is expected"),
    ({"model_type": "gemma2", "sliding_window_size": 7}, "sliding_window_size = 7 is not"),
])
def test_fields_of_gemma(fields, message):
    with pytest.raises((InvalidModelError, UnsupportedModelError), match=message):
        decoder_config({**CONFIGS["gemma3"], **fields})


@pytest.mark.parametrize("value", [True, 0, 1e999, 10**400, 2.0, "x"])
def test_the_inner_width_of_gpt2(value):
    with pytest.raises(InvalidModelError, match="n_inner is .*; a positive integer is expected"):
        decoder_config({**CONFIGS["gpt2"], "n_inner": value})


def test_softcaps_of_gemma():
    """Gemma 2 has some unless the file says null; Gemma 3 has none unless the file says so."""
    caps = ("attn_logit_softcapping", "final_logit_softcapping")
    for name, default in (("gemma2", (50.0, 30.0)), ("gemma3", (0.0, 0.0))):
        plain = {key: value for key, value in CONFIGS[name].items() if key not in caps}
        for fields, expected in (
            ({}, default), (dict.fromkeys(caps), (0.0, 0.0)), (dict.fromkeys(caps, 7), (7.0, 7.0))
        ):
            config = decoder_config({**plain, **fields})
            assert (config.attention_softcap, config.final_softcap) == expected


def test_windows_and_rotations_of_gemma_3():
    """Older and newer files say the same in different fields."""
    older = CONFIGS["gemma3"]
    left_out = ("rope_theta", "rope_local_base_freq", "rope_scaling", "model_type")
    newer = {
        **{name: value for name, value in older.items() if name not in left_out},
        "model_type": "gemma3_text",
        "layer_types": ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    }
    config = decoder_config(older)
    assert decoder_config(newer) == config
    assert config.windows == (24, 24, 24, 24, 24, 0, 24) and config.context_length == 512
    assert config.rotary.frequencies[0] == 1 / 8 and config.local_rotary.frequencies[0] == 1


def test_windows_of_layers():
    assert decoder_config({**CONFIGS["mistral"], "sliding_window": 100}).windows == (100,) * 4
    assert decoder_config({**CONFIGS["mistral"], "sliding_window": None}).windows == (0,) * 4
    qwen = CONFIGS["qwen2"]
    assert decoder_config(qwen).windows == (0,) * 4
    used = {**qwen, "use_sliding_window": True}
    assert decoder_config(used).windows == (0, 0, 64, 64)
    types = ["sliding_attention", "full_attention"] * 2
    assert decoder_config({**used, "layer_types": types}).windows == (64, 0, 64, 0)


def test_windows_that_the_file_leaves_out():
    """As in transformers: 4,096 tokens, of Qwen models in the layers after 28."""
    fields = ("sliding_window", "max_window_layers")
    for name, expected in (("mistral", [4096] * 30), ("qwen2", [0] * 28 + [4096] * 2)):
        config = {key: value for key, value in CONFIGS[name].items() if key not in fields}
        config |= {"num_hidden_layers": 30, "use_sliding_window": True}
        assert decoder_config(config).windows == tuple(expected)


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "gpt2"])
def test_whole_heads_are_rotated(name):
    """As in transformers, partial_rotary_factor changes nothing in default rotations; with others
    such a model fails there."""
    config = {**CONFIGS[name], "rope_scaling": None}
    plain, theta = decoder_config(config), {"rope_theta": config["rope_theta"]}
    part = {"partial_rotary_factor": 0.5}
    for given in (part, {"rope_parameters": {"rope_type": "default", **theta, **part}},
                  {"rope_scaling": {"type": "default", **part}}):
        assert decoder_config({**config, **given}) == plain
    scaling = {"rope_type": "linear", "factor": 2.0}
    for given in ({"rope_scaling": scaling, **part}, {"rope_parameters": {**scaling, **part}}):
        with pytest.raises(UnsupportedModelError, match="partial_rotary_factor 0.5 is not supp"):
            decoder_config({**config, **given})
    scaled = decoder_config({**config, "rope_scaling": scaling})
    whole = {"rope_parameters": {**scaling, "partial_rotary_factor": 1}}
    assert decoder_config({**config, **whole}) == scaled != plain
    # transformers reads rope_scaling first.
    assert decoder_config({**config, "rope_scaling": scaling, "rope_parameters": theta}) == scaled


def test_yarn_without_the_original_length():
    """As in transformers, it is the length that the model is said to be made for."""
    given = {**CONFIGS["yarn"], "head_dim": 64}
    scaling = {"rope_type": "yarn", "factor": 4.0}
    full = {**scaling, "original_max_position_embeddings": given["max_position_embeddings"]}
    made = [decoder_config({**given, "rope_scaling": s}).rotary for s in (scaling, full)]
    assert made[0] == made[1] != decoder_config(given).rotary


def test_yarn_with_numbers_that_no_one_expects():
    """Dimensions beyond 64-bit integers."""
    scaling = {**CONFIGS["yarn"]["rope_scaling"], "beta_fast": 1e-29, "factor": 1e-29}
    config = {**CONFIGS["yarn"], "head_dim": 1024, "rope_theta": 1 + 3e-16,
              "rope_scaling": scaling}
    assert np.isfinite(decoder_config(config).rotary.frequencies).all()


def test_weights_that_are_missing_or_wrong(cpu_context, tmp_path):
    name = "model.layers.0.mlp.up_proj.weight"
    refused(small(tmp_path / "a", drop=[name]), cpu_context, "lack the tensor 'layers.0.mlp.up")
    wrong = {name: np.zeros((3, 5), np.float32)}
    text = refused(small(tmp_path / "b", change=wrong), cpu_context, "is .3, 5.; .56, 32. is exp")
    assert name in text
    whole = {name: np.zeros((56, 32), np.int32)}
    refused(small(tmp_path / "c", change=whole), cpu_context, "is I32; one of F32, F16, BF16")
    more = {"model.layers.0.mlp.router.weight": np.zeros((2, 2), np.float32)}
    refused(small(tmp_path / "d", change=more), cpu_context, "not of a llama model.*router")
    empty = small(tmp_path / "e")
    (empty / "model.safetensors").unlink()
    refused(empty, cpu_context, "neither model.safetensors nor")


def test_damaged_files(cpu_context, tmp_path):
    folder = small(tmp_path)
    path = folder / "model.safetensors"
    data = path.read_bytes()
    for broken in (
        b"", data[:7], data[:100], data[:-1], (2**63).to_bytes(8, "little") + data[8:],
        (10**9).to_bytes(8, "little") + b"{" + b" " * 2000,
    ):
        path.write_bytes(broken)
        refused(folder, cpu_context, "is no safetensors file")


def test_shards(cpu_context, tmp_path):
    folder = small(tmp_path, shards=3)
    index = folder / "model.safetensors.index.json"
    original = json.loads(index.read_text())
    Model.load(folder, cpu_context)
    shard = folder / "model-00002-of-00003.safetensors"
    hidden = shard.rename(folder / "hidden")
    refused(folder, cpu_context, "shard model-00002-of-00003.safetensors is missing")
    hidden.rename(shard)
    for change, message in (
        ({"weight_map": {"x": "../secret"}}, "names the file '../secret'"),
        ({"weight_map": {"x": "a" * 5000}}, "the shard a{200} is missing"),
        ({"weight_map": {"x": "\0"}}, "the shard .* is missing"),
        ({"weight_map": {"x": 5}}, "names the file 5"), ({"weight_map": []}, "no weight_map"),
        ({"weight_map": {**original["weight_map"], "y": shard.name}}, "lacks the tensor 'y'"),
    ):
        index.write_text(json.dumps(change))
        refused(folder, cpu_context, message)


def test_arguments(cpu_context, tmp_path):
    folder = small(tmp_path)
    with pytest.raises(ValueError, match="dtype is 'int3'"):
        Model.load(folder, cpu_context, dtype="int3")
    for length in (513, -1):
        with pytest.raises(ValueError, match="1 to 512 are expected"):
            Model.load(folder, cpu_context, context_length=length)


def test_progress(cpu_context, tmp_path):
    """Of tensors, of which products join some."""
    for dtype in ("float32", "int4"):
        calls = []
        model = Model.load(
            small(tmp_path), cpu_context, dtype, progress=lambda *call, c=calls: c.append(call)
        )
        assert {total for _, total in calls} == {12}
        done = [count for count, _ in calls]
        assert done == sorted(done) and done[0] == 1 and done[-1] == 12 and len(set(done)) > 5
        calls.clear()
        model.generate_tokens([1] * 5, 2)  # further graphs read nothing again
        assert not calls


@pytest.mark.parametrize(("generation", "message"), [
    ([], "no JSON object"), ({"eos_token_id": "x"}, "eos_token_id"),
    ({"do_sample": True, "top_p": "x"}, "top_p is not a number"),
    ({"do_sample": True, "temperature": -1}, "temperature is -1"),
    ({"do_sample": True, "top_k": 20.0}, "top_k is 20.0; an integer ≥ 0 is expected"),
    ({"do_sample": True, "top_k": float("inf")}, "top_k is inf; an integer ≥ 0 is expected"),
    ({"do_sample": True, "top_k": True}, "top_k is not a number"),
    ({"do_sample": True, "temperature": float("nan")}, "temperature is nan; a number ≥ 0 is exp"),
    ({"do_sample": True, "repetition_penalty": 10**400}, "repetition_penalty is inf; a number > 0"),
    ({"do_sample": True, "temperature": 10**4000}, "temperature is inf"),
    ({"do_sample": 1}, "do_sample is 1; true or false is expected"),
])
def test_generation_configs(cpu_context, tmp_path, generation, message):
    folder = small(tmp_path)
    (folder / "generation_config.json").write_text(json.dumps(generation))
    refused(folder, cpu_context, message)


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
