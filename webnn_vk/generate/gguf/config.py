"""A GGUF file's metadata as a ``DecoderConfig``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from webnn_vk.generate.config import DecoderConfig, periodic_windows
from webnn_vk.generate.errors import InvalidModelError, UnsupportedModelError
from webnn_vk.generate.fields import Fields
from webnn_vk.generate.rotary import Rotary, rotary_of
from webnn_vk.support.errors import sanitize

from .file import GgufFile

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gpt2")
_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}
#: Llama 3's scaling of rotary positions is stored as a divisor for each frequency.
ROPE_FACTORS = "rope_freqs.weight"
#: Fields without influence on the logits: what is known from the tensors, and what other
#: implementations need.
_IGNORED = frozenset((
    "rope.scaling.finetuned", "tensor_data_layout", "use_parallel_residual", "vocab_size",
))


def decoder_config(file: GgufFile) -> DecoderConfig:
    """What the file's model computes. InvalidModelError if the metadata are damaged;
    UnsupportedModelError, with the name, for an architecture, a field or a value that is not
    implemented."""
    general = Fields(file.metadata, "metadata: ", "general.")
    kind = general.text("architecture")
    if kind is None:
        raise InvalidModelError("the metadata lack general.architecture")
    if kind not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"metadata: architecture {sanitize(kind)[:80]!r} is not supported; one of "
            f"{', '.join(ARCHITECTURES)} is expected"
        )
    general.only("type", "model")
    Fields(file.metadata, "metadata: ", "split.").only("count", 0, 1)
    f = Fields(file.metadata, "metadata: ", f"{kind}.")
    match kind:
        case "gpt2":
            config = _gpt2(f, file)
        case "gemma" | "gemma2" | "gemma3":
            config = _gemma(f, file, kind)
        case _:
            config = _llama_like(f, file, kind)
    f.finish(kind, _IGNORED)
    return config


def _llama_like(f: Fields, file: GgufFile, kind: str) -> DecoderConfig:
    width, heads = f.count("embedding_length"), f.count("attention.head_count")
    kv_heads = f.count("attention.head_count_kv", heads)
    head_size = f.count("attention.key_length", max(1, width // heads))
    f.only("attention.value_length", head_size)
    rows = file.shape("blk.0.attn_q.weight")[:1]
    if heads % kv_heads or rows != (heads * head_size,):
        raise InvalidModelError(
            f"metadata: {heads} heads of {head_size} elements, {kv_heads} of keys, don't fit "
            f"blk.0.attn_q.weight with {list(rows)} rows"
        )
    context, layers = f.count("context_length"), f.layers("block_count")
    window = f.take("attention.sliding_window", 0)
    if type(window) is not int or window < 0:
        raise f.wrong("attention.sliding_window", window, "a number")
    f.only("expert_count", 0)
    f.only("expert_used_count", 0)
    f.only("attention.causal", True)
    return DecoderConfig(
        kind, _vocabulary(file), width, layers, heads, kv_heads, head_size,
        f.count("feed_forward_length"), context,
        f.number("attention.layer_norm_rms_epsilon"), "swish", "rms", True,
        "output.weight" not in file, _rotary(f, file, head_size, context),
        qkv_bias=kind == "qwen2" or "blk.0.attn_q.bias" in file,
        output_bias="blk.0.attn_output.bias" in file, mlp_bias="blk.0.ffn_gate.bias" in file,
        qk_norm=kind == "qwen3", windows=(window,) * layers,
    )


def _gemma(f: Fields, file: GgufFile, kind: str) -> DecoderConfig:
    window = f.count("attention.sliding_window") if kind != "gemma" else 0
    config = _llama_like(f, file, kind)
    config = replace(
        config, activation="gelu_tanh", norm_offset=1.0, embedding_scale=config.width**0.5
    )
    if kind == "gemma":
        return config
    # No field has the scale: it follows from the size of the heads, except in the 27B models.
    scalar = config.width / config.heads if config.layers == _LAYERS_OF_27B[kind] else \
        config.head_size
    config = replace(
        config, architecture=kind, post_norms=True, attention_scale=scalar**-0.5,
        windows=periodic_windows(config.layers, window, 2),
    )
    if kind == "gemma2":
        f.only("attention.sliding_window_pattern", 2)
        return replace(
            config, attention_softcap=f.number("attn_logit_softcapping", 50.0),
            final_softcap=f.number("final_logit_softcapping", 30.0),
        )
    f.only("attention.sliding_window_pattern", 6)
    base = f.number("rope.freq_base_swa", 10000.0)
    return replace(
        config, architecture="gemma3_text", qk_norm=True,
        windows=periodic_windows(config.layers, window, 6),
        local_rotary=rotary_of(config.head_size, config.context_length, None, base),
    )


def _gpt2(f: Fields, file: GgufFile) -> DecoderConfig:
    width, heads = f.count("embedding_length"), f.count("attention.head_count")
    if width % heads:
        raise InvalidModelError(f"metadata: width {width} is not a multiple of {heads} heads")
    f.only("attention.head_count_kv", heads)
    f.only("attention.causal", True)
    return DecoderConfig(
        "gpt2", _vocabulary(file), width, f.layers("block_count"), heads, heads, width // heads,
        f.count("feed_forward_length", 4 * width), f.count("context_length"),
        f.number("attention.layer_norm_epsilon"), "gelu_tanh", "layer", False,
        "output.weight" not in file, qkv_bias=True, output_bias=True, mlp_bias=True,
    )


def _vocabulary(file: GgufFile) -> int:
    """The rows of the embedding."""
    return (*file.shape("token_embd.weight"), 1)[0]


def _rotary(f: Fields, file: GgufFile, head_size: int, context: int) -> Rotary:
    f.only("rope.dimension_count", head_size)
    base, kind = f.number("rope.freq_base", 10000.0), f.text("rope.scaling.type")
    factor = f.number("rope.scaling.factor", f.number("rope.scale_linear", 1.0))
    original = f.count("rope.scaling.original_context_length", context)
    scaling: dict[str, Any] | None = None
    match kind:
        case "none":
            pass
        case "linear" | None:
            scaling = {"rope_type": "linear", "factor": factor}
        case "yarn":
            scaling = {
                "rope_type": "yarn", "factor": factor,
                "original_max_position_embeddings": original,
                "beta_fast": f.number("rope.scaling.yarn_beta_fast", 32.0),
                "beta_slow": f.number("rope.scaling.yarn_beta_slow", 1.0),
            }
            for name in ("yarn_ext_factor", "yarn_attn_factor", "attn_factor"):
                f.only(f"rope.scaling.{name}", 1.0)
        case _:
            raise UnsupportedModelError(
                f"metadata: rope.scaling.type {sanitize(kind)[:80]!r} is not supported; one of "
                "none, linear, yarn is expected"
            )
    if base <= 1 or head_size % 2:
        raise InvalidModelError(
            f"metadata: heads of {head_size} elements can't be rotated with rope.freq_base {base}"
        )
    rotary = rotary_of(head_size, context, scaling, base)
    if ROPE_FACTORS not in file:
        return rotary
    if file.shape(ROPE_FACTORS) != (head_size // 2,):
        raise InvalidModelError(
            f"tensor {ROPE_FACTORS!r} is {list(file.shape(ROPE_FACTORS))}; {[head_size // 2]} is "
            "expected"
        )
    factors = file.floats(ROPE_FACTORS).astype(np.float64)
    if not (np.isfinite(factors) & (factors > 0)).all():
        raise InvalidModelError(f"tensor {ROPE_FACTORS!r} has factors that are not positive")
    return replace(rotary, frequencies=tuple((np.array(rotary.frequencies) / factors).tolist()))
