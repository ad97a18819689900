"""The GGUF file that `python -m bench generation --llama` gives llama.cpp."""

from __future__ import annotations

import numpy as np
import pytest

from bench.llama_cpp import KINDS, write_gguf
from tests.support.discriminating import assert_allclose
from tests.support.reference_decoder import CONFIGS, random_weights, write_folder
from webnn_vk.generate import Model

CONFIG = {**CONFIGS["llama"], "vocab_size": 300, "hidden_size": 64, "intermediate_size": 96,
          "tie_word_embeddings": True}


@pytest.mark.parametrize("dtype", KINDS)
def test_it_is_the_model_of_the_folder(cpu_context, tmp_path, dtype):
    folder = write_folder(tmp_path / "folder", CONFIG, random_weights(CONFIG, 1))
    write_gguf(tmp_path / "x.gguf", folder, dtype)
    ids = [290, 1, 2, 3, 4, 299]
    made = Model.load(tmp_path / "x.gguf", cpu_context).logits(ids)
    own = "float32" if dtype == "float16" else dtype
    expected = Model.load(folder, cpu_context, dtype=own).logits(ids)
    bound = 2e-3 if dtype == "float16" else 1e-6
    assert_allclose(made, expected, rtol=0, atol=bound * np.abs(expected).max())
