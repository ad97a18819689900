"""Folders of models with random weights that read and write bytes as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.reference_decoder import CONFIGS, random_weights, write_folder

CONFIG = {**CONFIGS["qwen2"], "vocab_size": 300, "max_position_embeddings": 200}
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m['content'] }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def byte_tokenizer(*merges: tuple[str, str]) -> Any:
    """A token for each byte and each merge, as byte-level models have, and an end of text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *("".join(pair) for pair in merges)]
    vocab = {token: number for number, token in enumerate(tokens)}
    made = Tokenizer(models.BPE(vocab=vocab, merges=list(merges)))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<end>"])
    return made


def text_folder(path: Path, **more: object) -> Path:
    """A folder with weights, tokenizer and chat template; ``more``: other JSON files, by stem."""
    write_folder(
        path, CONFIG, random_weights(CONFIG, 3), tokenizer_config={"chat_template": TEMPLATE},
        **more,
    )
    byte_tokenizer().save(str(path / "tokenizer.json"))
    return path
