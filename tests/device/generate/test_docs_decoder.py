"""The small trained model of `examples/`: beside an independent implementation, and what it writes.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.support.discriminating import assert_allclose
from tests.support.paths import ROOT
from tests.support.reference_decoder import logits
from webnn_vk import MLContext
from webnn_vk.generate import Model

FOLDER = ROOT / "examples" / "docs_decoder"
#: Largest difference of logits, beside the largest: as in test_logits.
BOUND, HALF_BOUND = 4e-6, 2e-2
#: Mean difference (of squares) of logits with rounded weights, beside their deviation.
ROUNDING = {"int8": 0.05, "int4": 0.6}
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def reference(ids: list[int]) -> np.ndarray:
    config = json.loads((FOLDER / "config.json").read_text(encoding="utf-8"))
    weights = load_file(FOLDER / "model.safetensors")
    return logits(config, weights, ids)


@pytest.fixture
def model(context: MLContext) -> Model:
    return Model.load(FOLDER, context)


@pytest.fixture(scope="module")
def ids() -> list[int]:
    """The beginning of the architecture's page."""
    from webnn_vk.generate.folder import folder_tokenizer

    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return folder_tokenizer(FOLDER).encode(text)[:256]


def test_it_is_small():
    """The folder, and its weights are float16."""
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 1_000_000
    assert {a.dtype.name for a in load_file(FOLDER / "model.safetensors").values()} == {"float16"}


def test_every_position(model, ids):
    expected = reference(ids)
    result = model.logits(ids)
    assert_allclose(result, expected, rtol=0, atol=BOUND * np.abs(expected).max())


@pytest.mark.sample(0.34)
@pytest.mark.parametrize("dtype", ["float16", "int8", "int4"])
def test_other_types(context: MLContext, ids, dtype):
    expected = reference(ids)
    result = Model.load(FOLDER, context, dtype=dtype).logits(ids)
    if dtype == "float16":
        bound = HALF_BOUND * np.abs(expected).max()
        assert_allclose(result, expected, rtol=0, atol=bound)
        return
    difference = np.sqrt(np.square(result - expected).mean()) / expected.std()
    assert 0.01 * ROUNDING[dtype] < difference < ROUNDING[dtype]


def test_it_writes_words_of_the_documentation(model):
    """Whole sentences, up to the token that ends a paragraph."""
    known = set(re.findall(r"[a-z]+", TEXT.lower()))
    for prompt in ("The library", "On the CPU device"):
        ids = model.tokenizer.encode(prompt)
        tokens = model.generate_tokens(ids, 150)
        text = model.tokenizer.decode(tokens)
        assert text == model.generate(prompt, 150)
        words = re.findall(r"[a-z]+", (prompt + text).lower())
        assert len(words) > 5 and " " in text
        assert sum(word in known for word in words) >= 0.95 * len(words), text
        # Greedy: the reference's choice at each step, up to rounding.
        scores = reference([*ids, *tokens])[len(ids) - 1 : -1]
        best = scores.max(axis=1)
        chosen = scores[np.arange(len(tokens)), tokens]
        assert (best - chosen <= 2 * BOUND * np.abs(scores).max()).all()


def test_sampled_texts_differ_by_seed(model):
    texts = [
        model.generate("The", 30, temperature=1.2, top_p=0.95, seed=seed)
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]
