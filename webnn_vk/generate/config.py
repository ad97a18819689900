"""What a decoder computes, and how ``config.json`` of a Hugging Face folder says it.

Every field of the file is either read, or known to have no influence on the result. A field that is
neither is an error, so that no model is computed differently from what its file says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize

from .errors import InvalidModelError, UnsupportedModelError
from .fields import Fields
from .rotary import Rotary, rotary_of


@dataclass(frozen=True)
class DecoderConfig:
    """What a decoder computes. Sizes are numbers of elements.

    ``rotary`` None: positions are a learned table (GPT-2). ``norm``: "rms", or "layer" with mean
    and bias. ``gated``: the feed-forward network is down(activation(gate) · up), else
    down(activation(up)). ``context_length``: the most tokens that the model was made for.
    ``norm_offset`` is added to the weights of norms. ``post_norms``: results of attention and of
    the feed-forward network are normalised before they are added. ``attention_scale``: of the
    scores; None for head_size ** -0.5. ``windows``: for each layer how many tokens a token sees at
    most, itself among them, or 0 for all; layers with a window rotate by ``local_rotary``, if it
    is given. ``attention_softcap``, ``final_softcap``: smooth bounds of scores and of logits; 0 for
    none.
    """

    architecture: str
    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    context_length: int
    epsilon: float
    activation: str
    norm: str
    gated: bool
    tied: bool
    rotary: Rotary | None = None
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    norm_offset: float = 0.0
    post_norms: bool = False
    embedding_scale: float = 1.0
    attention_scale: float | None = None
    windows: tuple[int, ...] = ()
    local_rotary: Rotary | None = None
    attention_softcap: float = 0.0
    final_softcap: float = 0.0

    def window(self, layer: int) -> int:
        """How many tokens a token sees in a layer; 0 for all."""
        return self.windows[layer] if self.windows else 0


_ACTIVATIONS = {
    "silu": "swish", "swish": "swish", "gelu": "gelu", "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh", "relu": "relu",
}
#: Fields without influence on the logits of a model that is not being trained: of training, of
#: other heads than a language model's, of what a call of transformers returns besides, of the code
#: and the type that transformers computes with, and notes.
_IGNORED = frozenset((
    "_attn_implementation", "_attn_implementation_autoset", "_name_or_path", "_num_labels",
    "architectures", "attention_dropout", "attn_implementation", "attn_pdrop", "auto_map",
    "bos_token_id", "cache_implementation", "dtype", "embd_pdrop", "eos_token_id",
    "finetuning_task", "gradient_checkpointing", "id2label",
    "initializer_range", "is_decoder", "is_llama_config", "label2id", "max_length", "model_type",
    "n_ctx", "n_special", "output_attentions", "output_hidden_states", "output_past",
    "output_scores", "pad_token_id", "predict_special_tokens", "pretraining_tp", "problem_type",
    "reorder_and_upcast_attn",
    "resid_pdrop", "return_dict", "return_dict_in_generate", "sep_token_id", "summary_activation",
    "summary_first_dropout", "summary_proj_to_labels",
    "summary_type", "summary_use_proj", "task_specific_params", "tf_legacy_loss",
    "tokenizer_class", "torch_dtype", "torchscript",
    "transformers.js_config", "transformers_version", "unk_token_id", "unsloth_fixed",
    "unsloth_version", "use_bfloat16", "use_cache",
))
#: Fields that every configuration of transformers may have (``to_dict()``), with the values that
#: change nothing: others would change the model, or how it chooses tokens.
_AT_DEFAULT: dict[str, Any] = {
    "add_cross_attention": False, "bad_words_ids": None, "begin_suppress_tokens": None,
    "chunk_size_feed_forward": 0, "cross_attention_hidden_size": None,
    "decoder_start_token_id": None, "diversity_penalty": 0.0, "do_sample": False,
    "early_stopping": False, "encoder_no_repeat_ngram_size": 0,
    "exponential_decay_length_penalty": None, "forced_bos_token_id": None,
    "forced_eos_token_id": None, "is_encoder_decoder": False, "length_penalty": 1.0,
    "min_length": 0, "no_repeat_ngram_size": 0, "num_beam_groups": 1,
    "num_beams": 1, "num_return_sequences": 1, "prefix": None, "pruned_heads": {},
    "remove_invalid_values": False, "repetition_penalty": 1.0, "suppress_tokens": None,
    "temperature": 1.0, "tie_encoder_decoder": False, "top_k": 50, "top_p": 1.0,
    "typical_p": 1.0, "use_mrope": False,
}
_LLAMA_LIKE = ("llama", "mistral", "qwen2", "qwen3", "smollm")
_GEMMA = ("gemma", "gemma2", "gemma3_text")
#: What absent fields are in transformers, where null says something else, or other architectures
#: have another default.
_QWEN_WINDOWS = {"sliding_window": 4096, "max_window_layers": 28}
_DEFAULTS: dict[str, dict[str, int]] = {
    "mistral": {"sliding_window": 4096}, "qwen2": _QWEN_WINDOWS, "qwen3": _QWEN_WINDOWS,
}
ARCHITECTURES = (*_LLAMA_LIKE, *_GEMMA, "gpt2")


def decoder_config(fields: Any) -> DecoderConfig:
    """The parsed ``config.json``. InvalidModelError if it is damaged; UnsupportedModelError, with
    the name, for an architecture, a field or a value that is not implemented."""
    if not isinstance(fields, Mapping):
        raise InvalidModelError("config.json is no JSON object")
    kind = fields.get("model_type")
    if not isinstance(kind, str):
        raise InvalidModelError("config.json lacks model_type")
    if kind not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"config.json: architecture {sanitize(kind)[:80]!r} is not supported; one of "
            f"{', '.join(ARCHITECTURES)} is expected"
        )
    if "quantization_config" in fields:
        raise UnsupportedModelError("config.json: quantization_config is not supported")
    known = Fields({**_DEFAULTS.get(kind, {}), **fields}, "config.json: ")
    if kind == "gpt2":
        config = _gpt2(known)
    else:
        config = _gemma(known, kind) if kind in _GEMMA else _llama_like(known, kind)
    for name, default in _AT_DEFAULT.items():
        known.only(name, default)
    known.finish(kind, _IGNORED)
    if config.heads % config.kv_heads:
        raise InvalidModelError(
            f"config.json: {config.heads} heads can't share {config.kv_heads} heads of keys"
        )
    return config


def _llama_like(f: Fields, kind: str) -> DecoderConfig:
    width, heads = f.count("hidden_size"), f.count("num_attention_heads")
    head_size = f.count("head_dim", max(1, width // heads))
    context = f.count("max_position_embeddings", 2048)
    layers = f.layers("num_hidden_layers")
    f.only("rope_interleaved", False)
    window, first = f.take("sliding_window"), f.take("max_window_layers", 0)
    if not f.flag("use_sliding_window", kind == "mistral") or window is None:
        window, first = 0, 0
    for name, value in (("sliding_window", window), ("max_window_layers", first)):
        if type(value) is not int or not 0 <= value < 2**31:
            raise f.wrong(name, value, "a number of tokens or layers")
    windows = _windows(f, window, tuple(window * (n >= first) for n in range(layers)))
    rotary = rotary_of(head_size, context, *_rope(f, 10000.0))
    bias = f.flag("attention_bias", kind == "qwen2")
    return DecoderConfig(
        kind, f.count("vocab_size"), width, layers, heads,
        f.count("num_key_value_heads", heads), head_size, f.count("intermediate_size"), context,
        f.number("rms_norm_eps", 1e-6), _activation(f, "hidden_act", "hidden_activation"), "rms",
        True, f.flag("tie_word_embeddings"), rotary, qkv_bias=bias,
        output_bias=bias and kind != "qwen2", mlp_bias=f.flag("mlp_bias"),
        qk_norm=kind == "qwen3", windows=windows,
    )


def _gemma(f: Fields, kind: str) -> DecoderConfig:
    width, heads = f.count("hidden_size"), f.count("num_attention_heads")
    head_size, layers = f.count("head_dim", 256), f.layers("num_hidden_layers")
    context = f.count("max_position_embeddings", 131072 if kind == "gemma3_text" else 8192)
    f.only("use_bidirectional_attention", False)
    # The first files say "gelu", and their authors' code computes it by tanh.
    f.only("hidden_act", "gelu", "gelu_pytorch_tanh")
    f.only("hidden_activation", "gelu_pytorch_tanh")
    bias = f.flag("attention_bias")
    scaling, base, part = _rope(f, 1e6 if kind == "gemma3_text" else 10000.0)
    config = DecoderConfig(
        kind, f.count("vocab_size"), width, layers, heads, f.count("num_key_value_heads", heads),
        head_size, f.count("intermediate_size"), context, f.number("rms_norm_eps", 1e-6),
        "gelu_tanh", "rms", True, f.flag("tie_word_embeddings", True), qkv_bias=bias,
        output_bias=bias, norm_offset=1.0, embedding_scale=width**0.5,
    )
    if kind == "gemma":
        f.only("attn_logit_softcapping")
        f.only("final_logit_softcapping")
        return replace(config, rotary=rotary_of(head_size, context, scaling, base, part))
    second = kind == "gemma2"
    window = f.count("sliding_window", 4096)
    config = replace(
        config, post_norms=True, attention_scale=f.number("query_pre_attn_scalar", 256) ** -0.5,
        attention_softcap=f.optional("attn_logit_softcapping", 50.0 * second),
        final_softcap=f.optional("final_logit_softcapping", 30.0 * second),
    )
    if second:
        f.only("sliding_window_size", window)
        return replace(
            config, windows=_windows(f, window, periodic_windows(layers, window, 2)),
            rotary=rotary_of(head_size, context, scaling, base, part),
        )
    local, local_base = None, f.number("rope_local_base_freq", 10000.0)
    if isinstance(scaling, Mapping) and "full_attention" in scaling:
        scaling, local = scaling["full_attention"], scaling.get("sliding_attention")
    period = f.count("_sliding_window_pattern", f.count("sliding_window_pattern", 6))
    return replace(
        config, qk_norm=True,
        windows=_windows(f, window, periodic_windows(layers, window, period)),
        rotary=rotary_of(head_size, context, scaling, base, part),
        local_rotary=rotary_of(head_size, context, local, local_base, part),
    )


def _rope(f: Fields, base: float) -> tuple[Any, float, float]:
    """``rope_scaling`` (or ``rope_parameters``), ``rope_theta`` and ``partial_rotary_factor``."""
    older, newer = f.take("rope_scaling"), f.take("rope_parameters")
    return older or newer, f.number("rope_theta", base), f.number("partial_rotary_factor", 1.0)


def _windows(f: Fields, window: int, default: tuple[int, ...]) -> tuple[int, ...]:
    """The windows that ``layer_types`` says, or else the default. ``window`` 0: there is none."""
    types = f.take("layer_types")
    if types is None:
        return default
    sizes = {"full_attention": 0} | ({"sliding_attention": window} if window else {})
    if not isinstance(types, list) or len(types) != len(default) or any(
        not isinstance(t, str) or t not in sizes for t in types
    ):
        raise f.wrong("layer_types", types, f"a list of {len(default)} of {', '.join(sizes)}")
    return tuple(sizes[t] for t in types)


def periodic_windows(layers: int, window: int, period: int) -> tuple[int, ...]:
    """Windows of layers of which each ``period``-th sees all tokens."""
    return tuple(window if (n + 1) % period else 0 for n in range(layers))


def _gpt2(f: Fields) -> DecoderConfig:
    width, heads = f.count("n_embd"), f.count("n_head")
    f.only("scale_attn_weights", True)
    f.only("scale_attn_by_inverse_layer_idx", False)
    if width % heads:
        raise InvalidModelError(f"config.json: n_embd {width} is not a multiple of {heads} heads")
    return DecoderConfig(
        "gpt2", f.count("vocab_size"), width, f.layers("n_layer"), heads, heads, width // heads,
        f.count("n_inner", 4 * width), f.count("n_positions", 1024),
        f.number("layer_norm_epsilon", 1e-5), _activation(f, "activation_function"), "layer", False,
        f.flag("tie_word_embeddings", True), qkv_bias=True, output_bias=True, mlp_bias=True,
    )


def _activation(f: Fields, *names: str) -> str:
    """The operator that the first of these fields names."""
    for name in names:
        value = f.take(name)
        if value is not None:
            if not isinstance(value, str) or value not in _ACTIVATIONS:
                raise UnsupportedModelError(
                    f"config.json: {name} = {sanitize(repr(value))[:80]} is not supported; one of "
                    f"{', '.join(_ACTIVATIONS)} is expected"
                )
            return _ACTIVATIONS[value]
    raise InvalidModelError(f"config.json lacks {' or '.join(names)}")
