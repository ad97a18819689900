"""Models whose cache and products' inputs are float16 beside weights of more or fewer bits."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.device.generate.test_blocks import KINDS, rounded
from tests.support.contexts import open_context
from tests.support.gguf_files import WIDE, Kind, write_gguf
from tests.support.profiles import H200, stored_profile
from tests.support.reference_decoder import CONFIGS, logits, random_weights, write_folder
from webnn_vk import MLContext, MLGraphBuilder
from webnn_vk.api.builder import graph_of
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.generate import Model

#: Largest difference of logits, beside the largest logit: float16 has three digits.
BOUND = 5e-3
#: What float32 activations differ by at most, with the same weights.
EXACT = 4e-6
IDS = np.random.default_rng(6).integers(0, 40, 40).tolist()


def difference(result, expected):
    return np.abs(result - expected).max() / np.abs(expected).max()


@pytest.mark.sample(0.09)
@pytest.mark.parametrize("dtype", ["float32", *KINDS])
@pytest.mark.parametrize("name", CONFIGS)
def test_logits(context: MLContext, tmp_path, name, dtype):
    config = CONFIGS[name]
    weights = random_weights(config, 1)
    write_folder(tmp_path, config, weights)
    model = Model.load(tmp_path, context, dtype=dtype, activations="float16")
    assert model.dtype == dtype
    expected = logits(config, rounded(weights, KINDS[dtype]) if dtype in KINDS else weights, IDS)
    assert EXACT < difference(model.logits(IDS), expected) < BOUND
    with model.session() as session:
        assert len(list(session.tokens(IDS, 8))) == 8
        assert {tensor.data_type for tensor in session._cache.values()} == {"float16"}


@pytest.mark.sample(0.34)
@pytest.mark.parametrize("kind", [Kind.Q4_1, Kind.Q8_0, Kind.F32])
def test_files(context: MLContext, tmp_path, kind):
    kept = write_gguf(tmp_path / "m.gguf", WIDE, random_weights(WIDE, 1), kind)
    model = Model.load(tmp_path / "m.gguf", context, activations="float16")
    assert EXACT < difference(model.logits(IDS), logits(WIDE, kept, IDS)) < BOUND


def test_types_of_one_product_may_differ(context: MLContext, tmp_path):
    """Packed queries and values, keys of floats."""
    weights = random_weights(WIDE, 1)
    mixed = {"q_proj": Kind.Q4_0, "k_proj": Kind.F32, "v_proj": Kind.Q8_0}
    kept = write_gguf(
        tmp_path / "m.gguf", WIDE, weights,
        lambda name: next((k for part, k in mixed.items() if part in name), Kind.Q4_1),
    )
    model = Model.load(tmp_path / "m.gguf", context, activations="float16")
    assert EXACT < difference(model.logits(IDS), logits(WIDE, kept, IDS)) < BOUND


def test_sums_beyond_float16(context: MLContext, tmp_path):
    """What layers add up may be larger than the largest float16, 65,504."""
    config = {**WIDE, "tie_word_embeddings": False}
    weights = random_weights(config, 1)
    table = weights["model.embed_tokens.weight"]
    table *= np.float32(1e6)
    assert np.abs(table).max() > np.finfo(np.float16).max
    write_folder(tmp_path, config, weights)
    model = Model.load(tmp_path, context, dtype="int8", activations="float16")
    expected = logits(config, rounded(weights, KINDS["int8"]), IDS)
    assert difference(model.logits(IDS), expected) < BOUND


def test_matrix_units_compute_prompts(vulkan_context: MLContext, tmp_path):
    """Compiled for a GPU that multiplies float16 matrices; for one token nothing is cast by a
    kernel of its own but each layer's values."""
    config = {
        **WIDE, "hidden_size": 512, "intermediate_size": 1024, "head_dim": 64,
        "num_attention_heads": 8, "num_hidden_layers": 1,
    }
    write_folder(tmp_path, config, random_weights(config, 1))
    layers = config["num_hidden_layers"]
    counts = {}
    for activations, kernel in (("float32", "matmul_tiled"), ("float16", "matmul_coopmat")):
        model = Model.load(tmp_path, vulkan_context, dtype="int4", activations=activations)
        for tokens in (1, 128):
            builder = MLGraphBuilder(vulkan_context)
            outputs, _ = model._engine.decoder.outputs(builder, tokens)
            target = Target(stored_profile("nvidia_ampere"))
            steps = compile_program(graph_of(outputs), target)[0].report.steps
            counts[activations, tokens] = len(steps)
            if tokens > 1:
                kernels = [s.kernel for s in steps if "block_matmul" in s.operators]
                assert kernels == [*[kernel] * (4 * layers), "matvec_blocks"]
    assert counts["float16", 1] == counts["float32", 1] + layers
    assert counts["float16", 128] == counts["float32", 128]


def test_kernels_of_a_token(vulkan_context: MLContext, tmp_path):
    """On a GPU products normalise their row, and combine gate and up: eight kernels a layer."""
    config = {
        **WIDE, "hidden_size": 512, "intermediate_size": 1024, "head_dim": 64,
        "num_attention_heads": 8, "num_hidden_layers": 1,
    }
    layers = config["num_hidden_layers"]
    expected = {
        "rms_normalization + mul + {}": 1, "mul + mul + add": 1, "scatter_nd": 2, "attention": 1,
        "{} + add": 2, "rms_normalization + mul + {} + swish + mul": 1,
    }
    write_folder(tmp_path, config, random_weights(config, 1))
    # Weights in the form that a GPU reads.
    with open_context(limits={"device_type": "discrete"}) as context:
        for dtype, product in (
            ("float32", "gemm"), ("float16", "gemm"), ("int4", "block_matmul"),
        ):
            model = Model.load(tmp_path, context, dtype=dtype)
            outputs, _ = model._engine.decoder.outputs(MLGraphBuilder(context), 1)
            graph = graph_of(outputs)
            for name in (H200, "qualcomm_adreno750"):
                steps = compile_program(graph, Target(stored_profile(name)))[0].report.steps
                titles = [" + ".join(s.operators) for s in steps]
                end = titles[::-1].index(f"{product} + add")  # what computes the logits
                counts = Counter(titles[:-end])
                found = {title: counts[title.format(product)] for title in expected}
                assert found == {title: layers * n for title, n in expected.items()}, counts
                assert not {"swish + mul", "rms_normalization + mul"} & counts.keys()


def test_wrong_types(cpu_context: MLContext, tmp_path):
    write_folder(tmp_path, WIDE, random_weights(WIDE, 1))
    with pytest.raises(ValueError, match="activations is 'int8'; float32 or float16 is expected$"):
        Model.load(tmp_path, cpu_context, activations="int8")
    with pytest.raises(ValueError, match="is 'float32'; float16 is expected beside float16 we"):
        Model.load(tmp_path, cpu_context, dtype="float16", activations="float32")
