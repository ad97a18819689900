"""Decoders in NumPy, in double precision, written from the papers, and folders of random weights.

Nothing of the package is used here. Every token attends to all before it, without a cache.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

LLAMA = {
    "model_type": "llama", "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 2, "intermediate_size": 56, "vocab_size": 61,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "tie_word_embeddings": False, "rope_theta": 10000.0, "attention_bias": False,
}
CONFIGS = {
    "llama": LLAMA,
    "llama3": {
        **LLAMA, "attention_bias": True, "mlp_bias": True, "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "linear": {**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.5}, "head_dim": 12},
    "yarn": {
        **LLAMA,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128,
        },
    },
    "mistral": {
        **LLAMA, "model_type": "mistral", "sliding_window": 30, "num_key_value_heads": 1,
        "head_dim": 16,
    },
    "qwen2": {
        **{k: v for k, v in LLAMA.items() if k != "attention_bias"}, "model_type": "qwen2",
        "tie_word_embeddings": True, "use_sliding_window": False, "sliding_window": 64,
        "max_window_layers": 1,
    },
    "qwen3": {**LLAMA, "model_type": "qwen3", "head_dim": 16, "tie_word_embeddings": True},
    "gemma": {
        **LLAMA, "model_type": "gemma", "head_dim": 16, "num_key_value_heads": 1,
        "hidden_act": "gelu", "hidden_activation": None, "tie_word_embeddings": True,
    },
    "gemma2": {
        **{k: v for k, v in LLAMA.items() if k != "hidden_act"}, "model_type": "gemma2",
        "head_dim": 16, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
        "query_pre_attn_scalar": 16, "sliding_window": 20, "attn_logit_softcapping": 1.5,
        "final_logit_softcapping": 4.0, "cache_implementation": "hybrid",
    },
    "gemma3": {
        **{k: v for k, v in LLAMA.items() if k != "hidden_act"}, "model_type": "gemma3_text",
        "head_dim": 16, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
        "query_pre_attn_scalar": 16, "sliding_window": 24, "num_hidden_layers": 7,
        "rope_theta": 1e6, "rope_local_base_freq": 10000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "attn_logit_softcapping": None,
        "final_logit_softcapping": None, "cache_implementation": "hybrid",
    },
    "gpt2": {
        "model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 2, "vocab_size": 61,
        "n_positions": 512, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
    },
}


#: Architectures that normalise the heads of queries and keys.
_QK_NORMS = ("qwen3", "gemma3_text")
#: Architectures that normalise what attention and the feed-forward network give.
_POST_NORMS = ("gemma2", "gemma3_text")


def tensor_shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a model's tensors, as transformers stores them."""
    if config["model_type"] == "gpt2":
        d = config["n_embd"]
        shapes = {"wte.weight": (config["vocab_size"], d), "wpe.weight": (config["n_positions"], d)}
        for n in range(config["n_layer"]):
            for name, shape in (
                ("attn.c_attn", (d, 3 * d)), ("attn.c_proj", (d, d)), ("mlp.c_fc", (d, 4 * d)),
                ("mlp.c_proj", (4 * d, d)),
            ):
                shapes[f"h.{n}.{name}.weight"], shapes[f"h.{n}.{name}.bias"] = shape, shape[1:]
            for name in ("ln_1", "ln_2"):
                shapes[f"h.{n}.{name}.weight"] = shapes[f"h.{n}.{name}.bias"] = (d,)
        return {**shapes, "ln_f.weight": (d,), "ln_f.bias": (d,)}
    d, heads, kv = (
        config[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads")
    )
    size, inner = config.get("head_dim", d // heads), config["intermediate_size"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], d), "model.norm.weight": (d,)}
    qkv_bias = config.get("attention_bias", config["model_type"] == "qwen2")
    for n in range(config["num_hidden_layers"]):
        at = f"model.layers.{n}."
        for name, rows, columns, bias in (
            ("self_attn.q_proj", heads * size, d, qkv_bias),
            ("self_attn.k_proj", kv * size, d, qkv_bias),
            ("self_attn.v_proj", kv * size, d, qkv_bias),
            ("self_attn.o_proj", d, heads * size, qkv_bias and config["model_type"] != "qwen2"),
            ("mlp.gate_proj", inner, d, config.get("mlp_bias")),
            ("mlp.up_proj", inner, d, config.get("mlp_bias")),
            ("mlp.down_proj", d, inner, config.get("mlp_bias")),
        ):
            shapes[f"{at}{name}.weight"] = (rows, columns)
            if bias:
                shapes[f"{at}{name}.bias"] = (rows,)
        fed = ("pre_feedforward_layernorm", "post_feedforward_layernorm")
        for name in (
            "input_layernorm", "post_attention_layernorm",
            *(fed if config["model_type"] in _POST_NORMS else ()),
        ):
            shapes[f"{at}{name}.weight"] = (d,)
        for name in ("q_norm", "k_norm") if config["model_type"] in _QK_NORMS else ():
            shapes[f"{at}self_attn.{name}.weight"] = (size,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], d)
    return shapes


def random_weights(config: dict, seed: int) -> dict[str, np.ndarray]:
    """Weights whose activations keep their size through the layers."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, shape in tensor_shapes(config).items():
        if "norm" in name or ".ln_" in f".{name}":
            added = "gemma" in config["model_type"]
            mean = 0.0 if name.endswith("bias") or added else 1.0
            made[name] = rng.normal(mean, 0.1, shape)
        elif len(shape) == 1:
            made[name] = rng.normal(0, 0.2, shape)
        else:
            scale = 0.7 if "wte" in name or "embed" in name else 1.5 / math.sqrt(max(shape))
            made[name] = rng.normal(0, scale, shape)
    return {name: array.astype(np.float32) for name, array in made.items()}


def write_folder(
    folder: Path, config: dict, weights: dict[str, np.ndarray], *, shards: int = 1, **files: object
) -> Path:
    """A folder as ``save_pretrained`` writes it; ``files``: other JSON files, by stem."""
    from safetensors.numpy import save_file

    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for stem, content in files.items():
        (folder / f"{stem}.json").write_text(json.dumps(content))
    if shards == 1:
        save_file(weights, folder / "model.safetensors")
        return folder
    where = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        names = list(weights)[number::shards]
        save_file({name: weights[name] for name in names}, folder / file)
        where |= dict.fromkeys(names, file)
    index = {"metadata": {}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def logits(config: dict, weights: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    """The logits after every token, float64 [tokens, vocabulary]."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    kinds = {"gpt2": _gpt2, "gemma": _gemma, "gemma2": _gemma, "gemma3_text": _gemma}
    return kinds.get(config["model_type"], _llama)(config, w, np.asarray(ids))


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _attend(q, k, v, scale=None, window=None, cap=None):
    """q [S, H, D], k and v [S, KV, D]: query head h reads head h // (H / KV). A query sees the
    last ``window`` tokens, its own among them. ``cap`` bounds the scores."""
    tokens, heads, size = q.shape
    group = heads // k.shape[1]
    out = np.empty_like(q)
    scale = 1 / math.sqrt(size) if scale is None else scale
    hidden = np.triu(np.full((tokens, tokens), -np.inf), 1)
    for query in range(tokens if window else 0):
        hidden[query, : max(0, query - window + 1)] = -np.inf
    for h in range(heads):
        scores = q[:, h] @ k[:, h // group].T * scale
        scores = scores if cap is None else cap * np.tanh(scores / cap)
        out[:, h] = _softmax(scores + hidden) @ v[:, h // group]
    return out.reshape(tokens, heads * size)


def _frequencies(config, size):
    """Radians a position, by pair of elements, and the factor of cosines and sines."""
    base, scaling = config["rope_theta"], config.get("rope_scaling")
    theta = np.array([base ** (-2 * i / size) for i in range(size // 2)])
    if scaling is None:
        return theta, 1.0
    kind = scaling.get("rope_type", scaling.get("type"))
    factor = scaling["factor"]
    if kind == "linear":
        return theta / factor, 1.0
    original = scaling["original_max_position_embeddings"]
    if kind == "llama3":
        result = []
        for t in theta:
            wavelength = 2 * math.pi / t
            if wavelength < original / scaling["high_freq_factor"]:
                result.append(t)
            elif wavelength > original / scaling["low_freq_factor"]:
                result.append(t / factor)
            else:
                low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
                s = (original / wavelength - low) / (high - low)
                result.append((1 - s) * t / factor + s * t)
        return np.array(result), 1.0
    # YaRN (arXiv:2309.00071), with beta_fast 32 and beta_slow 1.
    def place(rotations):
        return size * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(math.floor(place(32)), 0), min(math.ceil(place(1)), size - 1)
    result = []
    for i, t in enumerate(theta):
        gamma = 1 - min(max((i - low) / max(high - low, 0.001), 0), 1)
        result.append((1 - gamma) * t / factor + gamma * t)
    return np.array(result), 0.1 * math.log(factor) + 1


def _rotate(x, config):
    tokens, _, size = x.shape
    theta, factor = _frequencies(config, size)
    half = size // 2
    out = x.copy()
    for position in range(tokens):
        for i, t in enumerate(theta):
            cos, sin = math.cos(position * t) * factor, math.sin(position * t) * factor
            a, b = x[position, :, i], x[position, :, i + half]
            out[position, :, i] = a * cos - b * sin
            out[position, :, i + half] = b * cos + a * sin
    return out


def _llama(config, w, ids):
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim", config["hidden_size"] // heads)

    def rms(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * w[name]

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)

    x = w["model.embed_tokens.weight"][ids]
    for n in range(config["num_hidden_layers"]):
        at = f"model.layers.{n}."
        y = rms(x, f"{at}input_layernorm.weight")
        q, k, v = (
            linear(y, f"{at}self_attn.{p}_proj").reshape(len(ids), count, size)
            for p, count in (("q", heads), ("k", kv), ("v", kv))
        )
        if config["model_type"] == "qwen3":
            q, k = rms(q, f"{at}self_attn.q_norm.weight"), rms(k, f"{at}self_attn.k_norm.weight")
        window = config["sliding_window"] if config["model_type"] == "mistral" else None
        y = _attend(_rotate(q, config), _rotate(k, config), v, window=window)
        x = x + linear(y, f"{at}self_attn.o_proj")
        y = rms(x, f"{at}post_attention_layernorm.weight")
        gate = linear(y, f"{at}mlp.gate_proj")
        y = gate / (1 + np.exp(-gate)) * linear(y, f"{at}mlp.up_proj")
        x = x + linear(y, f"{at}mlp.down_proj")
    head = "model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"
    return rms(x, "model.norm.weight") @ w[head].T


def _gemma(config, w, ids):
    heads, kv, size = (
        config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim")
    )
    second, third = (config["model_type"] == kind for kind in ("gemma2", "gemma3_text"))

    def rms(x, name):
        mean = (x * x).mean(-1, keepdims=True)
        return x / np.sqrt(mean + config["rms_norm_eps"]) * (1 + w[f"{name}.weight"])

    def linear(x, name):
        return x @ w[f"{name}.weight"].T

    x = w["model.embed_tokens.weight"][ids] * math.sqrt(config["hidden_size"])
    for n in range(config["num_hidden_layers"]):
        at = f"model.layers.{n}."
        y = rms(x, f"{at}input_layernorm")
        q, k, v = (
            linear(y, f"{at}self_attn.{p}_proj").reshape(len(ids), count, size)
            for p, count in (("q", heads), ("k", kv), ("v", kv))
        )
        rotation, window, scale, cap = config, None, None, None
        if second:
            scale = config["query_pre_attn_scalar"] ** -0.5
            cap = config["attn_logit_softcapping"]
            if n % 2 == 0:  # every other layer has a window
                window = config["sliding_window"]
        if third:
            q, k = rms(q, f"{at}self_attn.q_norm"), rms(k, f"{at}self_attn.k_norm")
            scale = config["query_pre_attn_scalar"] ** -0.5
            if n % 6 != 5:  # five layers with a window, then one without
                window = config["sliding_window"]
                rotation = {"rope_theta": config["rope_local_base_freq"]}
        y = _attend(_rotate(q, rotation), _rotate(k, rotation), v, scale, window, cap)
        y = linear(y, f"{at}self_attn.o_proj")
        if second or third:
            y = rms(y, f"{at}post_attention_layernorm")
        x = x + y
        fed = "pre_feedforward_layernorm" if second or third else "post_attention_layernorm"
        y = rms(x, f"{at}{fed}")
        y = _gelu_tanh(linear(y, f"{at}mlp.gate_proj")) * linear(y, f"{at}mlp.up_proj")
        y = linear(y, f"{at}mlp.down_proj")
        x = x + (rms(y, f"{at}post_feedforward_layernorm") if second or third else y)
    result = rms(x, "model.norm") @ w["model.embed_tokens.weight"].T
    final = config.get("final_logit_softcapping")
    return result if final is None else final * np.tanh(result / final)


def _gpt2(config, w, ids):
    heads = config["n_head"]

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        return centred / np.sqrt(variance + config["layer_norm_epsilon"]) * w[f"{name}.weight"] \
            + w[f"{name}.bias"]

    def linear(x, name):
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["wte.weight"][ids] + w["wpe.weight"][: len(ids)]
    for n in range(config["n_layer"]):
        y = linear(norm(x, f"h.{n}.ln_1"), f"h.{n}.attn.c_attn")
        q, k, v = (part.reshape(len(ids), heads, -1) for part in np.split(y, 3, axis=1))
        x = x + linear(_attend(q, k, v), f"h.{n}.attn.c_proj")
        y = linear(norm(x, f"h.{n}.ln_2"), f"h.{n}.mlp.c_fc")
        x = x + linear(_gelu_tanh(y), f"h.{n}.mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T
