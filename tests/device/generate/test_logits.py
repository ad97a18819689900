"""Decoders compared with an independent implementation (`tests/support/reference_decoder.py`)."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from tests.support.reference_decoder import CONFIGS, logits, random_weights, write_folder
from webnn_vk import MLContext
from webnn_vk.generate import Model

#: Models whose matrices have 64 outputs and more.
_SIZES = {"hidden_size": 128, "intermediate_size": 192, "vocab_size": 192}
WIDE = {
    **{name: {**CONFIGS[name], **_SIZES} for name in ("llama", "qwen2")},
    "gpt2": {**CONFIGS["gpt2"], "n_embd": 128, "vocab_size": 128},
}
#: Largest difference of float32 logits, beside the largest logit.
BOUND = 4e-6
#: The same of float16: three digits, through two layers, or Gemma 3's seven.
HALF_BOUND = 2e-2


def model_of(folder, name, context, seed=1, **options):
    config, weights = CONFIGS[name], random_weights(CONFIGS[name], seed)
    write_folder(folder, config, weights)
    return Model.load(folder, context, **options), config, weights


@pytest.mark.full
@pytest.mark.sample(0.5)
@pytest.mark.parametrize("name", CONFIGS)
def test_every_position_of_a_sequence(context: MLContext, tmp_path, name):
    count = 256 if context.device_info.is_vulkan else 40
    model, config, weights = model_of(tmp_path, name, context)
    ids = np.random.default_rng(3).integers(0, config["vocab_size"], count).tolist()
    expected = logits(config, weights, ids)
    result = model.logits(ids)
    assert result.shape == (count, config["vocab_size"]) and result.dtype == np.float32
    assert_allclose(result, expected, rtol=0, atol=BOUND * np.abs(expected).max())


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("name", CONFIGS)
def test_greedy_tokens(context: MLContext, tmp_path, name):
    """Equal wherever the two best logits of the reference differ by more than the bound."""
    model, config, weights = model_of(tmp_path, name, context, seed=5)
    ids = np.random.default_rng(4).integers(0, config["vocab_size"], 21).tolist()
    tokens = model.generate_tokens(ids, 24)
    assert len(tokens) == 24
    scores = logits(config, weights, [*ids, *tokens[:-1]])[len(ids) - 1 :]
    ties = 0
    for token, row in zip(tokens, scores, strict=True):
        best = np.sort(row)[-2:]
        if best[1] - best[0] <= 2 * BOUND * np.abs(row).max():
            ties += 1
        else:
            assert token == int(np.argmax(row))
    assert ties <= 1


def assert_right_text(model, config, weights):
    """In graphs for many tokens and for one."""
    ids = np.random.default_rng(12).integers(0, config["vocab_size"], 20).tolist()
    tokens = model.generate_tokens(ids, 8)
    expected = logits(config, weights, [*ids, *tokens])
    assert_allclose(
        model.logits([*ids, *tokens]), expected, rtol=0, atol=BOUND * np.abs(expected).max()
    )
    assert tokens == expected[len(ids) - 1 : -1].argmax(1).tolist()


@pytest.mark.parametrize("name", WIDE)
def test_matrices_in_panels(vulkan_context: MLContext, tmp_path, name):
    """Software Vulkan reads float32 matrices whose outputs divide by 64 in panels, with biases and
    without; tables of embeddings that give the logits too. In graphs for many tokens and for one.
    """
    config, weights = WIDE[name], random_weights(WIDE[name], 11)
    write_folder(tmp_path, config, weights)
    model = Model.load(tmp_path, vulkan_context)
    assert_right_text(model, config, weights)
    if vulkan_context.device_info.type == "cpu":
        products = [line for line in model.report().lines if "mat" in line.kernel]
        assert len(products) == 4 * 2 + 1
        # "x": as texels, which not every such device has.
        assert {line.variant.replace("x ", " ") for line in products} == {"nn vv 1x64"}
        assert model.report().copies == 0


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("name", ["gemma2", "gpt2"])
def test_half_precision(context: MLContext, tmp_path, name):
    model, config, weights = model_of(tmp_path, name, context, dtype="float16")
    ids = np.random.default_rng(6).integers(0, config["vocab_size"], 50).tolist()
    expected = logits(config, weights, ids)
    assert_allclose(
        model.logits(ids), expected, rtol=0, atol=HALF_BOUND * np.abs(expected).max()
    )


@pytest.mark.parametrize("data_type", ["float16", "bfloat16"])
def test_weights_stored_in_half_precision(cpu_context: MLContext, tmp_path, data_type):
    """The numbers that are stored are those that are used."""
    config = CONFIGS["llama"]
    stored, read = {}, {}
    for name, array in random_weights(config, 8).items():
        if data_type == "float16":
            half = array.astype(np.float16)
            stored[name] = ("F16", half)
            read[name] = half.astype(np.float32)
        else:
            bits = (array.view(np.uint32) >> 16).astype(np.uint16)
            stored[name] = ("BF16", bits)
            read[name] = (bits.astype(np.uint32) << 16).view(np.float32)
    header, at = {}, 0
    for name, (kind, array) in stored.items():
        places = [at, at + array.nbytes]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": places}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(array.tobytes() for _, array in stored.values())
    (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    (tmp_path / "config.json").write_text(json.dumps(config))
    expected = logits(config, read, [1, 2, 3])
    result = Model.load(tmp_path, cpu_context).logits([1, 2, 3])
    assert_allclose(result, expected, rtol=0, atol=BOUND * np.abs(expected).max())


def test_shards_give_the_same(cpu_context: MLContext, tmp_path):
    config, weights = CONFIGS["qwen3"], random_weights(CONFIGS["qwen3"], 1)
    one = Model.load(write_folder(tmp_path / "one", config, weights), cpu_context)
    four = Model.load(write_folder(tmp_path / "four", config, weights, shards=4), cpu_context)
    np.testing.assert_array_equal(one.logits([5, 6, 7]), four.logits([5, 6, 7]))


def poison(session, context):
    """NaN in every row of the session's cache, from which its tokens are forgotten."""
    for name, tensor in list(session._cache.items()):
        described = {"data_type": tensor.data_type, "shape": tensor.shape, "writable": True}
        session._cache[name] = context.create_tensor(described).result()
        rows = np.full(tensor.shape, np.nan, tensor.data_type)
        context.write_tensor(session._cache[name], rows)
        tensor.destroy()
    session._ids.clear()


def test_what_lies_behind_the_valid_rows_has_no_influence(context: MLContext, tmp_path):
    model, config, weights = model_of(tmp_path, "llama", context, seed=9, context_length=200)
    ids = np.random.default_rng(5).integers(0, config["vocab_size"], 70).tolist()
    clean = model.generate_tokens(ids, 10)
    expected = logits(config, weights, ids)
    for length in (1, 9, 70):  # one, some and many tokens at a time, with padded rows
        session = model.session()
        poison(session, context)
        result = session.logits(ids[:length])
        bound = BOUND * np.abs(expected).max()
        assert_allclose(result, expected[:length], rtol=0, atol=bound)
        poison(session, context)
        if length == 70:
            assert list(session.tokens(ids, 10)) == clean
        session.close()


def test_the_step_updates_its_cache_in_place(context: MLContext, tmp_path):
    """One token: no copies, at most 25 dispatches a layer, nothing on the CPU; what is read and
    written does not grow with the capacity of the cache."""
    if not context.device_info.is_vulkan:
        pytest.skip("the CPU device keeps copies")
    moved = []
    for length in (16, 500):
        model, config, _ = model_of(tmp_path, "llama", context, context_length=length)
        report = model.report()
        assert report.copies == 0 and report.count("cpu") == 0
        assert report.dispatches <= 25 * config["num_hidden_layers"]
        assert len(report.donated) == 2 * config["num_hidden_layers"]
        assert all(note.endswith("written in place") for note in report.donated)
        moved.append([line for line in report.lines if line.kernel not in ("attention", "gather")])
    # (A gather and an attention are counted with their whole tables.)
    assert [line.bytes for line in moved[0]] == [line.bytes for line in moved[1]]
