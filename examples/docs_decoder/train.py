"""Trains the small model that writes text in the style of this project's documentation.

    pip install torch "webnn_vk[generate]"
    python examples/docs_decoder/train.py

It reads the prose of `docs/` and writes the files beside it: a Llama-like model of 0.4 million
weights, stored as float16, and its tokenizer. `webnn-vk generate` and
`webnn_vk.generate.Model.load` open the folder. Training takes seven minutes of one core. The files
in the repository were made by this program. They need not be made again when `docs/` changes.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.nn import functional

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
END = "<end>"
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 768,
    "hidden_size": 96, "intermediate_size": 224, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "tie_word_embeddings": True, "attention_bias": False,
    "bos_token_id": 0, "eos_token_id": 0, "torch_dtype": "float16",
}
LAYERS, HEADS, KEY_HEADS, SIZE = (
    CONFIG[name] for name in
    ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
)
#: Tokens of a sequence, and sequences of a step.
LENGTH, BATCH = 128, 16


def paragraphs(text: str) -> list[str]:
    """The prose of a Markdown page: no code, tables, headings, pictures or HTML."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("**", "")
    found = []
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        block = " ".join(block.split())
        block = re.sub(r"^(?:[-*]|\d+\.) ", "", block)
        if len(block) > 40 and block[0] not in "|#<!" and block[-1] in ".:":
            found.append(block)
    return found


def corpus() -> list[str]:
    """All paragraphs of the documentation, each once."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    texts = [t for page in pages for t in paragraphs(page.read_text(encoding="utf-8"))]
    return list(dict.fromkeys(texts))


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """Byte-level BPE. Texts begin and end with the token END."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"], special_tokens=[END], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    ))
    made.post_processor = processors.TemplateProcessing(
        single=f"{END} $A", special_tokens=[(END, made.token_to_id(END))]
    )
    return made


def initial_weights() -> dict[str, Tensor]:
    """Weights by the names that transformers has for them."""
    width, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    shapes = {"model.embed_tokens.weight": (CONFIG["vocab_size"], width)}
    for n in range(LAYERS):
        at = f"model.layers.{n}."
        for name, shape in (
            ("self_attn.q_proj", (HEADS * SIZE, width)),
            ("self_attn.k_proj", (KEY_HEADS * SIZE, width)),
            ("self_attn.v_proj", (KEY_HEADS * SIZE, width)),
            ("self_attn.o_proj", (width, HEADS * SIZE)), ("mlp.gate_proj", (inner, width)),
            ("mlp.up_proj", (inner, width)), ("mlp.down_proj", (width, inner)),
            ("input_layernorm", (width,)), ("post_attention_layernorm", (width,)),
        ):
            shapes[f"{at}{name}.weight"] = shape
    shapes["model.norm.weight"] = (width,)
    made = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            made[name] = torch.ones(shape)
        else:
            scale = 0.02 if "embed" in name else shape[1] ** -0.5
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                scale /= math.sqrt(2 * LAYERS)
            made[name] = torch.randn(shape) * scale
    return {name: tensor.requires_grad_() for name, tensor in made.items()}


def rotated(x: Tensor) -> Tensor:
    """[.., tokens, SIZE] with rotary positions."""
    half = SIZE // 2
    rates = CONFIG["rope_theta"] ** (-torch.arange(half) / half)
    angles = torch.arange(x.shape[-2])[:, None] * rates
    cosines, sines = torch.cos(angles), torch.sin(angles)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cosines - b * sines, b * cosines + a * sines], -1)


def logits(w: dict[str, Tensor], ids: Tensor, dropout: float = 0.0) -> Tensor:
    """[sequences, tokens] → [sequences, tokens, vocabulary]."""
    count, tokens = ids.shape

    def norm(x: Tensor, name: str) -> Tensor:
        mean = x.square().mean(-1, keepdim=True)
        return x * torch.rsqrt(mean + CONFIG["rms_norm_eps"]) * w[f"{name}.weight"]

    def heads(x: Tensor, name: str, number: int) -> Tensor:
        made = x @ w[f"{name}.weight"].T
        return made.reshape(count, tokens, number, SIZE).transpose(1, 2)

    x = functional.dropout(w["model.embed_tokens.weight"][ids], dropout)
    for n in range(LAYERS):
        at = f"model.layers.{n}."
        y = norm(x, f"{at}input_layernorm")
        query = rotated(heads(y, f"{at}self_attn.q_proj", HEADS))
        key = rotated(heads(y, f"{at}self_attn.k_proj", KEY_HEADS))
        value = heads(y, f"{at}self_attn.v_proj", KEY_HEADS)
        key, value = (t.repeat_interleave(HEADS // KEY_HEADS, 1) for t in (key, value))
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        y = y.transpose(1, 2).reshape(count, tokens, HEADS * SIZE)
        x = x + functional.dropout(y @ w[f"{at}self_attn.o_proj.weight"].T, dropout)
        y = norm(x, f"{at}post_attention_layernorm")
        gate, up = (y @ w[f"{at}mlp.{p}_proj.weight"].T for p in ("gate", "up"))
        y = (functional.silu(gate) * up) @ w[f"{at}mlp.down_proj.weight"].T
        x = x + functional.dropout(y, dropout)
    return norm(x, "model.norm") @ w["model.embed_tokens.weight"].T


def train(texts: list[list[int]], steps: int, rate: float) -> dict[str, Tensor]:
    """Weights after this many steps. Each sequence of a step begins with a paragraph."""
    torch.set_num_threads(1)  # so that sums are in the same order everywhere
    generator = np.random.default_rng(0)
    torch.manual_seed(0)
    weights = initial_weights()
    matrices = [t for t in weights.values() if t.ndim == 2]
    vectors = [t for t in weights.values() if t.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}],
        lr=rate, betas=(0.9, 0.98),
    )
    start = time.monotonic()
    for step in range(steps):
        rows = np.empty((BATCH, LENGTH + 1), np.int64)
        for row in rows:
            tokens: list[int] = []
            while len(tokens) <= LENGTH:
                tokens += texts[generator.integers(len(texts))]
            row[:] = tokens[: LENGTH + 1]
        batch = torch.from_numpy(rows)
        warm = min(1.0, (step + 1) / 100)
        for group in optimizer.param_groups:
            group["lr"] = rate * warm * (0.02 + 0.98 * (1 + math.cos(math.pi * step / steps)) / 2)
        found = logits(weights, batch[:, :-1], dropout=0.05)
        loss = functional.cross_entropy(found.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimizer.step()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.3f}, {time.monotonic() - start:.0f} s",
                  flush=True)
    return weights


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the small model on docs/.")
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    texts = corpus()
    tokenizer = train_tokenizer(texts)
    ids = [tokenizer.encode(text).ids for text in texts]
    print(f"{len(texts)} paragraphs, {sum(map(len, ids))} tokens, "
          f"{sum(map(len, texts)) / sum(map(len, ids)):.1f} characters each")
    weights = train(ids, options.steps, options.rate)
    print(f"{sum(t.numel() for t in weights.values())} weights")
    options.folder.mkdir(exist_ok=True)
    tokenizer.save(str(options.folder / "tokenizer.json"), pretty=False)
    save_file(
        {name: tensor.detach().numpy().astype(np.float16) for name, tensor in weights.items()},
        options.folder / "model.safetensors",
    )
    generation = {"bos_token_id": 0, "eos_token_id": 0, "do_sample": False}
    for name, content in (("config", CONFIG), ("generation_config", generation)):
        (options.folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
