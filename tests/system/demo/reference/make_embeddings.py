"""Makes the reference embeddings of embeddings.npz with PyTorch; never imports webnn_vk.

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy safetensors tokenizers
    /tmp/torch/bin/python tests/system/demo/reference/make_embeddings.py MODEL_FOLDER

MODEL_FOLDER holds config.json, model.safetensors and tokenizer.json of all-MiniLM-L6-v2. Each
sentence runs alone, without padding, once in float32 and once in float64.
"""

import hashlib
import json
import platform
import sys
from pathlib import Path

import numpy as np
import tokenizers
import torch
from safetensors.torch import load_file
from torch.nn import functional

HERE = Path(__file__).parent
MAX_TOKENS = 256

LONG = (
    "The valley had been farmed for as long as anybody could remember, first with oxen and later "
    "with a single shared tractor that was painted again every spring, and the people who lived "
    "in it knew each field by a name that appeared on no map. When the surveyors came, with their "
    "striped poles and their folding tables, the children followed them from hedge to hedge and "
    "taught them the names, so that Long Acre, Widow's Piece, the Drowning Meadow and Cold Corner "
    "were written down at last. Nobody thought much about it until, forty years afterwards, the "
    "water company asked which land would be flooded by the dam, and an old woman who had been "
    "one of the children stood up in the village hall and read the whole list aloud."
)

SENTENCES = [
    "A man is playing a guitar.",
    "Someone strums an instrument with six strings.",
    "The stock market fell sharply on Tuesday.",
    "Ok",
    "",
    "Why do cats purr?",
    "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG",
    "def add(a, b): return a + b  # adds two numbers",
    "3.14159 is close to 22/7, but 355/113 is closer still.",
    "Çağdaş sanatın başkenti: İstanbul — naïve café, Straße, Ærø.",
    "東京は日本の首都です。",
    "Привет, как дела?",
    "😀 emoji 🚀 in ✨ text",
    "!!! ??? ... ;;; ### $$$",
    "http://example.com/path?query=value&other=1 and mail@example.com",
    "Antidisestablishmentarianism and pneumonoultramicroscopicsilicovolcanoconiosis",
    "Mix two cups of flour with one egg, rest the dough for half an hour, and roll it out thin.",
    "Whereas the party of the first part, hereinafter called the lessor, agrees to let the house",
    LONG,
    f"{LONG} {LONG}",
]


def forward(weights, config, ids):
    """L2-normalised mean of the last hidden state of a BERT encoder, for one sentence."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    length = len(ids)

    def linear(x, name):
        return functional.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def normalise(x, name):
        return functional.layer_norm(
            x,
            (hidden,),
            weights[f"{name}.weight"],
            weights[f"{name}.bias"],
            config["layer_norm_eps"],
        )

    def split_heads(x):
        return x.view(length, heads, hidden // heads).transpose(0, 1)

    x = (
        weights["embeddings.word_embeddings.weight"][ids]
        + weights["embeddings.token_type_embeddings.weight"][0]
        + weights["embeddings.position_embeddings.weight"][:length]
    )
    x = normalise(x, "embeddings.LayerNorm")
    for layer in range(config["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}"
        query, key, value = (
            split_heads(linear(x, f"{prefix}.attention.self.{part}"))
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(1, 2) / (hidden // heads) ** 0.5
        context = (scores.softmax(-1) @ value).transpose(0, 1).reshape(length, hidden)
        x = normalise(
            linear(context, f"{prefix}.attention.output.dense") + x,
            f"{prefix}.attention.output.LayerNorm",
        )
        inner = functional.gelu(linear(x, f"{prefix}.intermediate.dense"))
        x = normalise(linear(inner, f"{prefix}.output.dense") + x, f"{prefix}.output.LayerNorm")
    return functional.normalize(x.mean(0), dim=0)


def main(folder):
    folder = Path(folder)
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    config = json.loads((folder / "config.json").read_text())
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    ids = [encoding.ids for encoding in tokenizer.encode_batch(SENTENCES)]
    file = folder / "model.safetensors"
    weights = {
        name: tensor for name, tensor in load_file(file).items() if tensor.is_floating_point()
    }
    vectors = {}
    for name, dtype in (("float32", torch.float32), ("float64", torch.float64)):
        cast = {key: tensor.to(dtype) for key, tensor in weights.items()}
        vectors[name] = np.stack([forward(cast, config, row).numpy() for row in ids])
    np.savez_compressed(HERE / "embeddings.npz", **vectors)
    about = {
        "made_by": "tests/system/demo/reference/make_embeddings.py",
        "model": "sentence-transformers/all-MiniLM-L6-v2",
        "weights_sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "tokenizers": tokenizers.__version__,
        },
        "sentences": SENTENCES,
        "token_counts": [len(row) for row in ids],
    }
    text = json.dumps(about, ensure_ascii=False, indent=1) + "\n"
    (HERE / "embeddings.json").write_text(text, encoding="utf-8")
    difference = np.abs(vectors["float32"] - vectors["float64"]).max()
    print(f"{len(ids)} sentences, tokens {about['token_counts']}")
    print(f"float32 against float64: {difference:.2e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
