"""Logits equal the package transformers' logits, if it and torch are installed (`--explore`)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from tests.support.reference_decoder import CONFIGS, random_weights, write_folder
from webnn_vk import MLContext
from webnn_vk.generate import Model

pytestmark = [
    pytest.mark.explore,
    pytest.mark.skipif(
        None in map(importlib.util.find_spec, ("torch", "transformers")),
        reason="torch or transformers is not installed",
    ),
]
#: Largest difference of float32 logits, beside the largest logit: both round.
BOUND = 1e-5
#: In a process of its own: torch leaves threads and modules behind.
THEIRS = """
import sys
import numpy as np, torch, transformers

folder, count = sys.argv[1], int(sys.argv[2])
model = transformers.AutoModelForCausalLM.from_pretrained(
    folder, dtype=torch.float32, attn_implementation="eager"
).eval()
ids = np.random.default_rng(2).integers(0, model.config.vocab_size, count)
with torch.no_grad():
    logits = model(torch.tensor(ids[None]), use_cache=False).logits[0].numpy()
np.savez(f"{folder}/theirs.npz", ids=ids, logits=logits)
"""


@pytest.mark.parametrize("name", CONFIGS)
def test_logits(context: MLContext, tmp_path, name):
    write_folder(tmp_path, CONFIGS[name], random_weights(CONFIGS[name], 3))
    subprocess.run([sys.executable, "-c", THEIRS, str(tmp_path), "150"], check=True)
    theirs = np.load(tmp_path / "theirs.npz")
    expected = theirs["logits"]
    result = Model.load(tmp_path, context).logits(theirs["ids"].tolist())
    assert_allclose(result, expected, rtol=0, atol=BOUND * np.abs(expected).max())
