"""Folders that are damaged, hostile or of other models: one line says what is wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.support.reference_decoder import CONFIGS, LLAMA, random_weights, write_folder
from webnn_vk.generate import InvalidModelError, Model, UnsupportedModelError
from webnn_vk.generate.config import decoder_config

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
    assert decoder_config({**CONFIGS["mistral"], "sliding_window": 100}).windows == (100,) * 2
    assert decoder_config({**CONFIGS["mistral"], "sliding_window": None}).windows == (0,) * 2
    qwen = CONFIGS["qwen2"]
    assert decoder_config(qwen).windows == (0,) * 2
    used = {**qwen, "use_sliding_window": True}
    assert decoder_config(used).windows == (0, 64)
    types = ["sliding_attention", "full_attention"]
    assert decoder_config({**used, "layer_types": types}).windows == (64, 0)


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
