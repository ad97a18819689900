"""GGUF files of models with random weights, as llama.cpp's converter writes them.

Names, keys and quantisation come from the package ``gguf``; nothing of ours is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.support.reference_decoder import CONFIGS, random_weights
from tests.support.text_models import CONFIG, TEMPLATE, byte_tokenizer

ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA, "mistral": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3, "gpt2": gguf.MODEL_ARCH.GPT2,
    "gemma": gguf.MODEL_ARCH.GEMMA, "gemma2": gguf.MODEL_ARCH.GEMMA2,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
}
Kind = gguf.GGMLQuantizationType


def permuted(array: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries or keys in the order in which llama.cpp rotates them."""
    halves = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
    return halves.swapaxes(1, 2).reshape(array.shape)


def blocks(array: np.ndarray, kind: Kind, seed: int) -> np.ndarray:
    """The bytes of a matrix in a type. The package can't quantise to some: their bytes are random,
    with scales that give numbers of the array's size."""
    try:
        return gguf.quantize(array, kind)
    except NotImplementedError:
        pass
    rng = np.random.default_rng(seed)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    made = rng.integers(0, 256, (array.size // elements, size), np.uint8)
    scale = np.float16(np.abs(array).mean() / 300)
    places = {Kind.Q6_K: (size - 2,), Kind.Q4_K: (0, 2), Kind.Q5_K: (0, 2)}[kind]
    for place in places:
        made[:, place : place + 2] = np.frombuffer(scale.tobytes(), np.uint8)
    return made.reshape(*array.shape[:-1], -1)


def write_gguf(
    path: Path, config: dict, weights: dict[str, np.ndarray],
    kind: Kind | Callable[[str], Kind] = Kind.F32, *,
    permute: bool = True, fill: Callable[[gguf.GGUFWriter], object] = lambda writer: None,
) -> dict[str, np.ndarray]:
    """A file of a model, its matrices in the type ``kind``, or one for each name; returns the
    weights that it holds, as transformers has them. ``fill`` adds metadata."""
    name = config["model_type"]
    architecture = ARCHITECTURES[name]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    (_gpt2 if name == "gpt2" else _llama_like)(writer, config)
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    names = gguf.get_tensor_name_map(architecture, layers)
    turned = {
        f"{part}_proj.{end}": config.get(count)
        for part, count in (("q", "num_attention_heads"), ("k", "num_key_value_heads"))
        for end in ("weight", "bias")
    } if architecture == gguf.MODEL_ARCH.LLAMA and permute else {}
    kept = {}
    for seed, (own, array) in enumerate(weights.items()):
        stored = names.get_name(f"transformer.{own}" if name == "gpt2" else own,
                                (".weight", ".bias"))
        heads = next((heads for end, heads in turned.items() if own.endswith(end)), None)
        # Rows are permuted, then quantised.
        array = array if heads is None else permuted(array, heads)
        array = array.T if ".c_" in own and array.ndim == 2 else array
        adds_one = "gemma" in name and own.endswith("norm.weight")
        array = array + 1 if adds_one else array
        array = np.ascontiguousarray(array)
        own_kind = kind(own) if callable(kind) else kind
        if array.ndim == 2 and own_kind != Kind.F32:
            data = blocks(array, own_kind, seed)
            back = gguf.dequantize(data, own_kind)
            writer.add_tensor(stored, data, raw_dtype=own_kind)
        else:
            back = array
            writer.add_tensor(stored, array)
        if heads is not None:
            rows = permuted(np.arange(len(back)), heads)
            back = back[np.argsort(rows)]
        back = back - 1 if adds_one else back
        kept[own] = back.T if ".c_" in own and back.ndim == 2 else back
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(config))
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {name: np.ascontiguousarray(array) for name, array in kept.items()}


def llama3_factors(config: dict) -> np.ndarray:
    """Divisors of the frequencies, as the converter computes them."""
    scaling = config["rope_scaling"]
    size = config["hidden_size"] // config["num_attention_heads"]
    frequencies = config["rope_theta"] ** -(np.arange(0, size, 2) / size)
    original = scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    made = []
    for length in 2 * np.pi / frequencies:
        if length < original / high:
            made.append(1.0)
        elif length > original / low:
            made.append(scaling["factor"])
        else:
            smooth = (original / length - low) / (high - low)
            made.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(made, np.float32)


def _llama_like(writer: gguf.GGUFWriter, config: dict) -> None:
    heads, width = config["num_attention_heads"], config["hidden_size"]
    size = config.get("head_dim", width // heads)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    if "head_dim" in config:
        writer.add_key_length(size)
        writer.add_value_length(size)
    writer.add_rope_dimension_count(size)
    if config["model_type"] in ("mistral", "gemma2", "gemma3_text"):
        writer.add_sliding_window(config["sliding_window"])
    if config["model_type"] == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(scaling["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])


def _gpt2(writer: gguf.GGUFWriter, config: dict) -> None:
    writer.add_block_count(config["n_layer"])
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])


def add_tokenizer(
    writer: gguf.GGUFWriter, made: Any, size: int, pre: str = "gpt-2", **ids: int
) -> None:
    """The metadata of a byte-level tokenizer of the package ``tokenizers``, filled up to ``size``
    tokens. ``ids``: of special tokens, by role."""
    described = json.loads(made.to_str())
    tokens = [f"[PAD{number}]" for number in range(size)]
    types = [gguf.TokenType.UNUSED] * size
    for token, number in described["model"]["vocab"].items():
        tokens[number], types[number] = token, gguf.TokenType.NORMAL
    for added in described["added_tokens"]:
        tokens[added["id"]] = added["content"]
        special = added["special"]
        types[added["id"]] = gguf.TokenType.CONTROL if special else gguf.TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([
        merge if isinstance(merge, str) else " ".join(merge)
        for merge in described["model"]["merges"]
    ])
    for role, number in ids.items():
        getattr(writer, f"add_{role}_token_id")(number)


#: One layer; matrices whose rows are blocks of 256, as the types _K need them.
SMALL = {**CONFIGS["llama"], "num_hidden_layers": 1, "vocab_size": 11}
WIDE = {
    **CONFIGS["llama"], "num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": 512,
    "vocab_size": 40,
}


def small_gguf(path: Path, **more: Any) -> Path:
    """A file with one layer."""
    write_gguf(path, SMALL, random_weights(SMALL, 1), **more)
    return path


def text_gguf(path: Path, tokenizer: Any = None) -> Path:
    """The model of ``text_folder``, with its tokenizer (and a merge, which llama.cpp needs) or
    another one of bytes."""
    made = byte_tokenizer(("q", "q")) if tokenizer is None else tokenizer

    def fill(writer: gguf.GGUFWriter) -> None:
        add_tokenizer(writer, made, CONFIG["vocab_size"], eos=made.token_to_id("<end>"))
        writer.add_chat_template(TEMPLATE)

    write_gguf(path, CONFIG, random_weights(CONFIG, 3), fill=fill)
    return path
