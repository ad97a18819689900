"""GGUF files of other models, damaged ones and hostile ones: one line says what is wrong."""

from __future__ import annotations

import sys

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.counting import calls_of, peak_bytes_of
from tests.support.gguf_files import SMALL, small_gguf, text_gguf, write_gguf
from tests.support.mutations import change_bytes
from tests.support.reference_decoder import CONFIGS, random_weights
from tests.support.text_models import byte_tokenizer, text_folder
from webnn_vk.generate import InvalidModelError, Model, UnsupportedModelError

ERRORS = (InvalidModelError, UnsupportedModelError)


def refused(path, context, message, kind=ERRORS):
    with pytest.raises(kind, match=message) as caught:
        Model.load(path, context)
    text = str(caught.value)
    assert text.isprintable() and len(text) < 600
    return text


def changed(path, fill=lambda writer: None, config=SMALL, drop=(), add=None):
    """A file that differs from a right one; ``fill`` changes its metadata."""
    weights = random_weights(config, 1)
    for name in drop:
        del weights[name]
    write_gguf(path, config, weights, fill=lambda writer: (fill(writer), [
        writer.add_tensor(name, array) for name, array in (add or {}).items()
    ]))
    return path


def setting(key, value, kind=gguf.GGUFValueType.UINT32):
    """Replaces a value of the metadata, or removes it."""
    def fill(writer):
        if key in writer.kv_data[0]:
            del writer.kv_data[0][key]
        if value is not None:
            writer.add_key_value(key, value, kind)
    return fill


FLOAT, TEXT, BOOL = (gguf.GGUFValueType[name] for name in ("FLOAT32", "STRING", "BOOL"))


@pytest.mark.parametrize(("key", "value", "kind", "message"), [
    ("general.architecture", "mamba", TEXT, "architecture 'mamba' is not supported; one of llama"),
    ("general.architecture", "\x1b[31m", TEXT, "is not supported"),
    ("general.architecture", None, TEXT, "lack general.architecture"),
    ("general.architecture", 3, FLOAT, "general.architecture is 3.0; a text"),
    ("general.type", "adapter", TEXT, "general.type = 'adapter'"),
    ("split.count", 3, gguf.GGUFValueType.UINT16, "split.count = 3"),
    ("llama.rope.scaling.type", "longrope", TEXT, "rope.scaling.type 'longrope' is not supported"),
    ("llama.rope.dimension_count", 6, gguf.GGUFValueType.UINT32, "dimension_count = 6"),
    ("llama.rope.freq_base", 1.0, FLOAT, "rope.freq_base 1.0"),
    ("llama.expert_count", 8, gguf.GGUFValueType.UINT32, "llama.expert_count = 8"),
    ("llama.logit_scale", 2.0, FLOAT, "unknown field 'llama.logit_scale' for llama"),
    ("llama.attention.head_count", None, FLOAT, "llama.attention.head_count is None; a positive"),
    ("llama.attention.head_count", 3, gguf.GGUFValueType.UINT32, "3 heads of 10 elements"),
    ("llama.attention.head_count", True, BOOL, "head_count is True"),
    ("llama.attention.key_length", 2**31 - 2, gguf.GGUFValueType.UINT32, "don't fit"),
    ("llama.attention.value_length", 4, gguf.GGUFValueType.UINT32, "value_length = 4"),
    ("llama.attention.causal", False, BOOL, "attention.causal = False"),
    ("llama.block_count", 2, gguf.GGUFValueType.UINT32, "lacks the tensor 'blk.1."),
    ("llama.block_count", 0, gguf.GGUFValueType.UINT32, "block_count is 0"),
    ("llama.block_count", 2**30, gguf.GGUFValueType.UINT32, "a number up to 10000"),
    ("llama.embedding_length", 64, gguf.GGUFValueType.UINT32, "don't fit"),
    ("llama.feed_forward_length", 2**30, gguf.GGUFValueType.UINT32, "'blk.0.ffn_gate.weight' is"),
    ("llama.context_length", 2**32 - 1, gguf.GGUFValueType.UINT32, "context_length is 4294967295"),
])
def test_metadata(cpu_context, tmp_path, key, value, kind, message):
    refused(changed(tmp_path / "x.gguf", setting(key, value, kind)), cpu_context, message)


def test_arrays_by_layer(cpu_context, tmp_path):
    counts = [2]
    path = changed(tmp_path / "x.gguf", lambda writer: (
        writer.kv_data[0].pop("llama.attention.head_count_kv"), writer.add_head_count_kv(counts)
    ))
    refused(path, cpu_context, "head_count_kv is an array of 1; a positive integer")


def test_tensors(cpu_context, tmp_path):
    path = tmp_path / "x.gguf"
    up = "model.layers.0.mlp.up_proj.weight"
    refused(changed(path, drop=[up]), cpu_context, "x.gguf lacks the tensor 'blk.0.ffn_up.weight'")
    first = ["model.layers.0.self_attn.q_proj.weight"]
    refused(changed(path, drop=first), cpu_context, "lacks the tensor 'blk.0.attn_q.weight'")
    wrong = {"blk.0.ffn_up.weight": np.zeros((3, 5), np.float32)}
    refused(changed(path, drop=[up], add=wrong), cpu_context,
            r"'blk.0.ffn_up.weight' is \[3, 5\]; \[56, 32\] is expected")
    more = {"blk.0.ffn_gate_inp.weight": np.zeros((2, 2), np.float32)}
    refused(changed(path, add=more), cpu_context, "not of a llama model.*'blk.0.ffn_gate_inp")
    whole = {"blk.0.ffn_up.weight": np.zeros((56, 32), np.int32)}
    refused(changed(path, drop=[up], add=whole), cpu_context, "is I32; one of F32", ERRORS[1])
    for factors, message in ((np.zeros(4), "not positive"), (np.ones(3), r"is \[3\]; \[4\]")):
        more = {"rope_freqs.weight": factors.astype(np.float32)}
        refused(changed(path, add=more), cpu_context, message)


def test_paths(cpu_context, tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"hello")
    refused(tmp_path / "model.gguf", cpu_context, "model.gguf: no GGUF file")
    refused(tmp_path / "nothing.gguf", cpu_context, "neither a folder nor a GGUF file")


def test_truncated_files(cpu_context, tmp_path):
    path = small_gguf(tmp_path / "x.gguf")
    data = path.read_bytes()
    Model.load(path, cpu_context)
    # (The last tensor is padded.)
    for length in (0, 3, 7, 23, 100, 1000, len(data) // 2, len(data) - 32):
        path.write_bytes(data[:length])
        refused(path, cpu_context, "truncated|no GGUF file", InvalidModelError)


def test_without_the_package(cpu_context, tmp_path, monkeypatch):
    path = small_gguf(tmp_path / "x.gguf")
    for name in [name for name in sys.modules if name.split(".")[0] == "gguf"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ImportError, match=r"GGUF files need the package gguf: pip install"):
        Model.load(path, cpu_context)


def test_texts_are_those_of_the_folder(cpu_context, tmp_path):
    tokenizer = byte_tokenizer(("Ġ", "d"), ("Ã", "¼"))
    text_gguf(tmp_path / "x.gguf", tokenizer)
    tokenizer.save(str(text_folder(tmp_path / "folder") / "tokenizer.json"))
    made, folder = (Model.load(tmp_path / n, cpu_context) for n in ("x.gguf", "folder"))
    assert made.context_length == folder.context_length == 200
    assert made.stop_tokens == {258}
    ids = made.tokenizer.encode("grüß dich")
    assert ids == folder.tokenizer.encode("grüß dich") and {256, 257} < set(ids)
    assert made.generate("grüß dich", 12) == folder.generate("grüß dich", 12) != ""
    messages = [{"role": "user", "content": "hi"}]
    assert made.generate(messages, 9) == folder.generate(messages, 9)
    with pytest.raises(ValueError, match="dtype is 'int3'"):
        Model.load(tmp_path / "x.gguf", cpu_context, dtype="int3")


def test_the_window_must_be_a_number(cpu_context, tmp_path):
    path = changed(tmp_path / "x.gguf", setting("llama.attention.sliding_window", -1.0, FLOAT))
    with pytest.raises(InvalidModelError, match="sliding_window is -1.0; a number is expected"):
        Model.load(path, cpu_context)


def test_windows_of_gemma_3(cpu_context, tmp_path):
    """The context is longer than the window. Other patterns of layers are refused."""
    config = CONFIGS["gemma3"]
    write_gguf(tmp_path / "x.gguf", config, random_weights(config, 1))
    made = Model.load(tmp_path / "x.gguf", cpu_context)
    assert made.context_length == 512
    pattern = setting("gemma3.attention.sliding_window_pattern", 4)
    write_gguf(tmp_path / "y.gguf", config, random_weights(config, 1), fill=pattern)
    with pytest.raises(UnsupportedModelError, match="sliding_window_pattern = 4 is not supported"):
        Model.load(tmp_path / "y.gguf", cpu_context)


def test_a_model_without_a_tokenizer(cpu_context, tmp_path):
    model = Model.load(small_gguf(tmp_path / "x.gguf"), cpu_context)
    assert model.generate_tokens([1, 2], 3)
    with pytest.raises(InvalidModelError, match="no tokenizer"):
        model.generate("text")


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    """Small files: one with a byte-level tokenizer, one with SentencePiece's, one of GPT-2."""
    folder = tmp_path_factory.mktemp("seeds")
    tiny = {**SMALL, "vocab_size": 20, "hidden_size": 8, "intermediate_size": 8,
            "num_attention_heads": 2, "num_key_value_heads": 1}
    tokens = ["<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁ab", "<0x0A>"]

    def pieces(writer):
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_scores([0.0] * 3 + [-float(n) for n in range(6)])
        writer.add_token_types([2, 3, 3, 1, 1, 1, 1, 1, 6])
        writer.add_chat_template("{{ messages }}")

    def merges(writer):
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("llama-bpe")
        writer.add_token_list(["a", "b", "ab", "<s>"])
        writer.add_token_types([1, 1, 1, 3])
        writer.add_token_merges(["a b"])
        writer.add_bos_token_id(3)

    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
    gpt2 = {**CONFIGS["gpt2"], "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 64}
    for name, config, fill, kind in (
        ("pieces", tiny, pieces, gguf.GGMLQuantizationType.F16),
        ("merges", {**tiny, "rope_scaling": yarn}, merges, gguf.GGMLQuantizationType.F32),
        ("gpt2", gpt2, lambda writer: None, gguf.GGMLQuantizationType.BF16),
    ):
        write_gguf(folder / name, config, random_weights(config, 1), kind, fill=fill)
    return [path.read_bytes() for path in sorted(folder.iterdir())]


NUMBERS = [0, 1, 2, 3, 8, 9, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1]


@st.composite
def changes(draw):
    """A file's number, and what to do to its bytes."""
    places = st.integers(0, 2**16)
    one = st.one_of(
        st.tuples(st.just("byte"), places, st.integers(0, 255)),
        st.tuples(st.just("number"), places, st.sampled_from(NUMBERS)),
        st.tuples(st.just("large"), places, st.sampled_from([2**40, 2**62, 2**63, 2**64 - 1])),
        st.tuples(st.just("cut"), places, st.just(0)),
        st.tuples(st.just("remove"), places, st.integers(1, 16)),
    )
    return draw(st.integers(0, 2)), draw(st.lists(one, min_size=1, max_size=3))


def mutated(data, steps):
    # The header and three times as many bytes of numbers, any of which make a model.
    end = 4 * (data.index(b"output_norm.weight") + 200)
    made = bytearray(data)
    for what, place, value in steps:
        change_bytes(made, what, place % min(end, max(1, len(made))), value)
    return bytes(made)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.timeout(3600)
def test_mutated_files(seeds, cpu_context, tmp_path_factory, request):
    """Whatever the bytes are: a model or one of the two errors, with little work and memory."""
    path = tmp_path_factory.mktemp("mutated") / "x.gguf"
    ends = {"model": 0, "refused": 0}
    for data in seeds:
        path.write_bytes(data)
        Model.load(path, cpu_context)

    @settings(
        max_examples=2_000 if request.config.option.explore else 200,
        suppress_health_check=list(HealthCheck),
    )
    @given(changes())
    def check(change):
        number, steps = change
        path.write_bytes(mutated(seeds[number], steps))
        calls = []

        def load():
            try:
                Model.load(path, cpu_context)
                ends["model"] += 1
            except ERRORS as error:
                assert str(error).isprintable() and len(str(error)) < 600
                ends["refused"] += 1

        # 30,000 calls and 250 kB were seen.
        assert peak_bytes_of(lambda: calls.append(calls_of(load))) < 8 << 20
        assert calls[0] < 300_000

    check()
    assert min(ends.values()) > 3
