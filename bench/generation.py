"""Time of a token beside the time that reading the weights takes, for weights of 32, 8 and 4 bits.

The model is Llama-like, with random weights. What the device reads in a second is measured too.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk import MLContext, MLGraphBuilder
from webnn_vk.generate import Model, Session
from webnn_vk.tools.devices import open_context

from . import llama_cpp, ncnn_decoder
from .table import show

DTYPES = ("float32", "int8", "int4")
#: Tokens of the prompt, and of the text that follows.
PROMPT, TOKENS = 128, 16
#: Capacities of a cache, with valid rows before the token.
CACHES = ((128, 64), (4096, 64), (4096, 4000))
#: How many sequences run together.
SEQUENCES = (1, 4, 16)


def write_model(folder: Path, megabytes: int) -> int:
    """A folder of a model whose float32 weights have about this size; returns their number."""
    layers, width, heads, vocabulary = 8, 1024, 16, 8192
    # Queries and outputs of width², keys and values of a quarter, three matrices of the inner size.
    each = (megabytes * 250_000 - vocabulary * width) / layers
    inner = max(64, round((each - 2.5 * width**2) / (3 * width)) // 64 * 64)
    config = {
        "model_type": "llama", "hidden_size": width, "num_attention_heads": heads,
        "num_key_value_heads": heads // 4, "num_hidden_layers": layers,
        "intermediate_size": inner, "vocab_size": vocabulary, "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": True,
        "rope_theta": 10000.0, "attention_bias": False,
    }
    shapes = {"model.embed_tokens.weight": (vocabulary, width), "model.norm.weight": (width,)}
    for n in range(layers):
        at = f"model.layers.{n}."
        shapes |= {
            f"{at}self_attn.q_proj.weight": (width, width),
            f"{at}self_attn.k_proj.weight": (width // 4, width),
            f"{at}self_attn.v_proj.weight": (width // 4, width),
            f"{at}self_attn.o_proj.weight": (width, width),
            f"{at}mlp.gate_proj.weight": (inner, width),
            f"{at}mlp.up_proj.weight": (inner, width),
            f"{at}mlp.down_proj.weight": (width, inner),
            f"{at}input_layernorm.weight": (width,),
            f"{at}post_attention_layernorm.weight": (width,),
        }
    rng = np.random.default_rng(0)
    scale = np.float32(width**-0.5)
    header, at = {}, 0
    for tensor, shape in shapes.items():
        end = at + 4 * math.prod(shape)
        header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes.values():
            (rng.standard_normal(shape, np.float32) * scale).tofile(file)
    (folder / "config.json").write_text(json.dumps(config))
    return sum(math.prod(shape) for shape in shapes.values())


def read_rate(runs: int) -> float:
    """Bytes a second that all cores read of host memory."""
    parts = [np.ones(64 << 20, np.float32) for _ in range(os.cpu_count() or 1)]
    times = []
    for _ in range(runs):
        threads = [threading.Thread(target=part.max) for part in parts]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        times.append(time.perf_counter() - start)
    return sum(part.nbytes for part in parts) / min(times)


def product_rate(context: MLContext, runs: int) -> float:
    """Operations a second of a product of 1024³."""
    builder = MLGraphBuilder(context)
    size = (1024, 1024)
    x = builder.input("x", {"data_type": "float32", "shape": size})
    weight = builder.constant(np.ones(size, np.float32))
    graph = builder.build({"y": builder.matmul(x, weight)}).result()
    tensors = [
        context.create_tensor({"data_type": "float32", "shape": size}).result() for _ in range(2)
    ]
    times = []
    for _ in range(runs + 1):  # the first one compiles
        start = time.perf_counter()
        for _ in range(4):
            context.dispatch(graph, {"x": tensors[0]}, {"y": tensors[1]})
        context.fence().wait()
        times.append(time.perf_counter() - start)
    return 4 * 2 * 1024**3 / min(times)


def beside(device: str | None, megabytes: int, llama: Path) -> list[dict[str, Any]]:
    """A token and a prompt of the same model here, in llama.cpp and, where it is installed, in
    ncnn: a row for each data type and backend."""
    llama_cpp.check(llama)
    with tempfile.TemporaryDirectory() as name, open_context(device) as context:
        write_model(Path(name), megabytes)
        return [
            row for dtype in DTYPES for row in _beside(context, Path(name), dtype, llama)
        ]


def show_beside(rows: list[dict[str, Any]]) -> None:
    """The rows of ``beside`` as a table."""
    show(
        ("weights", "", "a token", f"a prompt of {PROMPT}", "tokens"),
        [
            [row["weights"], row["who"], f"{row['token_ms']:.1f} ms", f"{row['prompt_ms']:.0f} ms",
             "" if row["same"] is None else f"{row['same']} of {row['tokens']} ours"]
            for row in rows
        ],
    )


def main(device: str | None, megabytes: int, runs: int, llama: Path | None = None) -> None:
    """A row for each data type: bytes of the weights, milliseconds of a token and of a prompt by
    the clock, the least of several, and of the processor, beside reading the weights and the rate
    of a product of 1024³; tokens a second of several sequences. Then a token of float32 by valid
    rows and capacity of the cache. ``llama``: the folder of node-llama-cpp, which computes the same
    beside, as ncnn does where it is installed."""
    if llama is not None:
        llama_cpp.check(llama)
    rows, caches, others = [], [], []
    with tempfile.TemporaryDirectory() as name, open_context(device) as context:
        print(context.device_info)
        count = write_model(Path(name), megabytes)
        rate = read_rate(runs)
        print(f"{count / 1e6:.0f} million weights; host memory is read at {rate / 1e9:.1f} GB/s")
        for dtype in DTYPES:
            rows.append(_measure(context, Path(name), dtype, runs))
        for capacity, valid in CACHES:
            caches.append(_step_in_cache(context, Path(name), capacity, valid))
        for dtype in DTYPES if llama is not None else ():
            others += _beside(context, Path(name), dtype, llama)
    show(
        ("weights", "on the device", "a token", "processor", "of the rate", "a prompt of "
         f"{PROMPT}", "processor", "of the product's rate",
         *(f"tokens/s of {n}" for n in SEQUENCES)), rows,
    )
    print()
    show(("a cache for", "valid rows", "a token", "processor"), caches)
    if others:
        print()
        show_beside(others)


def _measure(context: MLContext, folder: Path, dtype: str, runs: int) -> list[str]:
    _tell(dtype)
    model = Model.load(folder, context, dtype=dtype, context_length=512)
    stored = model.report().weight_bytes
    ids = np.random.default_rng(1).integers(0, model.config.vocabulary, PROMPT).tolist()
    with model.session() as session:
        next(session.tokens(ids, 1))  # compiles
        prompts, steps, rates, products = [], [], [], []
        for run in range(runs):
            # In turn, since other work on the machine changes what can be had.
            rates.append(read_rate(1))
            products.append(product_rate(context, 1))
            # Another first token, so that nothing of the prompt is in the cache.
            start, used = time.perf_counter(), time.process_time()
            stream = session.tokens([run, *ids[1:]], TOKENS + 1)
            next(stream)
            prompts.append((time.perf_counter() - start, time.process_time() - used))
            for _ in range(TOKENS):
                start, used = time.perf_counter(), time.process_time()
                next(stream)
                steps.append((time.perf_counter() - start, time.process_time() - used))
            stream.close()
    together = [f"{_rate_together(model, count):.0f}" for count in SEQUENCES]
    (step, _), (prompt, _) = min(steps), min(prompts)
    share = stored / max(rates) / step
    config = model.config
    head = config.vocabulary * config.width
    operations = 2 * PROMPT * (_matrices(folder) - head) + 2 * head  # logits of the last token
    prefill = operations / max(products) / prompt
    processor = statistics.median(used for _, used in steps)
    return [
        dtype, f"{stored / 1e6:.0f} MB", f"{1e3 * step:.1f} ms", f"{1e3 * processor:.1f} ms",
        f"{100 * share:.0f} %", f"{1e3 * prompt:.0f} ms",
        f"{1e3 * statistics.median(used for _, used in prompts):.0f} ms",
        f"{100 * prefill:.0f} %", *together,
    ]


def _tell(what: str) -> None:
    """What is measured next: a row takes minutes where a processor is the device."""
    print(what, file=sys.stderr, flush=True)


def _matrices(folder: Path) -> int:
    """Weights in the model's matrices, the embedding table among them."""
    with open(folder / "model.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    shapes = [entry["shape"] for entry in header.values()]
    return sum(math.prod(shape) for shape in shapes if len(shape) == 2)


def _beside(
    context: MLContext, folder: Path, dtype: str, llama: Path
) -> list[dict[str, Any]]:
    """The same weights here, in llama.cpp and in ncnn: the times after a second prompt, the first
    one compiles, and how many of their tokens are ours. Two prompts only: one takes llama.cpp on
    lavapipe a second for 5 MB of weights."""
    path = folder / f"{dtype}.gguf"
    llama_cpp.write_gguf(path, folder, dtype)
    _tell(f"{dtype}: ours")
    rng = np.random.default_rng(2)
    model = Model.load(path, context, context_length=512)
    prompts = rng.integers(300, model.config.vocabulary, (2, PROMPT)).tolist()
    ours: dict[str, Any] = {"device": "ours", "prompts": [], "steps": [], "tokens": []}
    with model.session() as session:
        for prompt in prompts:
            tokens, start = [], time.perf_counter()
            for token in session.tokens(prompt, TOKENS + 1):
                now = time.perf_counter()
                ours["steps" if tokens else "prompts"].append(1e3 * (now - start))
                tokens.append(token)
                start = time.perf_counter()
            ours["tokens"].append(tokens)
    found = [("ours", ours)]
    for backend in llama_cpp.BACKENDS:
        _tell(f"{dtype}: llama.cpp, {backend}")
        theirs = llama_cpp.measure(llama, path, backend, prompts, TOKENS)
        found.append((f"llama.cpp, {theirs['device']}", theirs))
    path.unlink()
    for backend in ncnn_decoder.BACKENDS if dtype == "float32" else ():
        _tell(f"{dtype}: ncnn, {backend}")
        made = ncnn_decoder.measure(folder, backend, prompts, TOKENS)
        if made is not None:
            found.append((f"ncnn, {made['device']}", made))
    rows = []
    for who, times in found:
        pairs = zip(ours["tokens"], times["tokens"], strict=True)
        same = sum(a == b for both in pairs for a, b in zip(*both, strict=False))
        rows.append({
            "weights": dtype, "who": who,
            "token_ms": min(times["steps"][TOKENS:]), "prompt_ms": times["prompts"][1],
            "same": None if times is ours else same, "tokens": len(prompts) * (TOKENS + 1),
        })
    return rows


def _step_in_cache(context: MLContext, folder: Path, capacity: int, valid: int) -> list[str]:
    """The time of a token: the least by the clock, the median of the processor."""
    _tell(f"a cache for {capacity}, {valid} valid rows")
    model = Model.load(folder, context, context_length=capacity)
    ids = np.random.default_rng(1).integers(0, model.config.vocabulary, valid).tolist()
    times = []
    with model.session() as session:
        stream = session.tokens(ids, TOKENS + 2)
        next(stream), next(stream)  # compile
        for _ in range(TOKENS):
            start, used = time.perf_counter(), time.process_time()
            next(stream)
            times.append((time.perf_counter() - start, time.process_time() - used))
    return [
        f"{capacity}", f"{valid}", f"{1e3 * min(times)[0]:.1f} ms",
        f"{1e3 * statistics.median(used for _, used in times):.1f} ms",
    ]


def _rate_together(model: Model, count: int) -> float:
    """Tokens a second of ``count`` sequences that begin together, without their prompts."""
    sessions = [model.session() for _ in range(count)]
    ready, times = threading.Barrier(count), []

    def run(session: Session, first: int) -> None:
        stream = session.tokens([first, 2, 3], 2 * TOKENS + 1, temperature=0)
        for _ in range(TOKENS):  # the graphs are made meanwhile
            next(stream)
        ready.wait()
        start = time.perf_counter()
        for _ in range(TOKENS):
            next(stream)
        times.append(time.perf_counter() - start)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(run, sessions, range(count)))
    for session in sessions:
        session.close()
    return count * TOKENS / max(times)
