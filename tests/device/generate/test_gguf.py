"""Models of GGUF files give the logits of the same weights in a Hugging Face folder."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from tests.support.gguf_files import WIDE, Kind, write_gguf
from tests.support.reference_decoder import CONFIGS, logits, random_weights, write_folder
from webnn_vk import MLContext
from webnn_vk.generate import Model
from webnn_vk.generate.gguf.file import TENSOR_TYPES

IDS = np.random.default_rng(3).integers(0, 40, 20).tolist()
#: Largest difference of logits where frequencies differ in their last digit, beside the largest.
BOUND = 4e-6


def both(tmp_path, config, context, kind=Kind.F32, **options):
    """The logits of the file's model and of the folder's."""
    kept = write_gguf(tmp_path / "model.gguf", config, random_weights(config, 1), kind)
    write_folder(tmp_path / "folder", config, kept)
    models = [Model.load(tmp_path / n, context, **options) for n in ("model.gguf", "folder")]
    return [model.logits(IDS) for model in models]


@pytest.mark.parametrize("name", CONFIGS)
def test_every_architecture(cpu_context: MLContext, tmp_path, name):
    made, expected = both(tmp_path, CONFIGS[name], cpu_context)
    if name == "llama3":  # its frequencies are stored as float32 factors
        assert_allclose(made, expected, rtol=0, atol=BOUND * np.abs(expected).max())
    else:
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("kind", TENSOR_TYPES)
def test_every_type_of_tensor(cpu_context: MLContext, tmp_path, kind):
    made, expected = both(tmp_path, WIDE, cpu_context, Kind[kind], dtype="float32")
    assert np.isfinite(expected).all() and expected.std() > 0.01
    np.testing.assert_array_equal(made, expected)


@pytest.mark.sample(0.2)
@pytest.mark.parametrize("name", ["llama", "gemma2", "gemma3", "gpt2"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int4"])
def test_on_the_device(context: MLContext, tmp_path, name, dtype):
    made, expected = both(tmp_path, CONFIGS[name], context, Kind.F16, dtype=dtype)
    np.testing.assert_array_equal(made, expected)


def test_the_reference(cpu_context: MLContext, tmp_path):
    """Logits of the independent implementation, so that file and folder aren't wrong alike."""
    config, weights = CONFIGS["llama3"], random_weights(CONFIGS["llama3"], 2)
    write_gguf(tmp_path / "m.gguf", config, weights)
    expected = logits(config, weights, IDS)
    made = Model.load(tmp_path / "m.gguf", cpu_context).logits(IDS)
    assert_allclose(made, expected, rtol=0, atol=BOUND * np.abs(expected).max())


def test_rows_of_queries_and_keys_are_put_back(cpu_context: MLContext, tmp_path):
    """The converter's permutation changes the result unless it is undone."""
    config, weights = CONFIGS["llama3"], random_weights(CONFIGS["llama3"], 1)
    made = []
    for permute in (True, False):
        write_gguf(tmp_path / "m.gguf", config, weights, permute=permute)
        made.append(Model.load(tmp_path / "m.gguf", cpu_context).logits(IDS))
    expected = logits(config, weights, IDS)
    bound = BOUND * np.abs(expected).max()
    assert_allclose(made[0], expected, rtol=0, atol=bound)
    assert np.abs(made[1] - expected).max() > 1000 * bound
