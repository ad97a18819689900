"""A Llama of 1.04 · 10⁹ random weights: tokens and prompts a second, float16 and int4, beside the
same shapes in PyTorch."""

from __future__ import annotations

import json
import tempfile
import time
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..measured_graph import noise, sum_by_kernel
from ..pytorch import cuda_randn, torch, torch_seconds
from ..session import Session

LLAMA = {"width": 2048, "layers": 16, "heads": 32, "kv": 8, "inner": 8192, "vocabulary": 32768}
TINY = {"width": 64, "layers": 2, "heads": 4, "kv": 2, "inner": 128, "vocabulary": 512}


def matrices(c: dict[str, int]) -> list[tuple[str, int, int]]:
    """The matrices of a layer: name, rows, columns."""
    small = c["kv"] * c["width"] // c["heads"]
    return [("self_attn.q_proj", c["width"], c["width"]), ("self_attn.k_proj", small, c["width"]),
            ("self_attn.v_proj", small, c["width"]), ("self_attn.o_proj", c["width"], c["width"]),
            ("mlp.gate_proj", c["inner"], c["width"]), ("mlp.up_proj", c["inner"], c["width"]),
            ("mlp.down_proj", c["width"], c["inner"])]


def _write_folder(folder: Path, c: dict[str, int]) -> None:
    from safetensors.numpy import save_file

    width, ones = c["width"], np.ones(c["width"], np.float16)
    tensors = {"model.embed_tokens.weight": noise((c["vocabulary"], width), "float16", width),
               "model.norm.weight": ones}
    for n in range(c["layers"]):
        for name, rows, columns in matrices(c):
            tensors[f"model.layers.{n}.{name}.weight"] = noise((rows, columns), "float16", columns)
        for part in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{n}.{part}.weight"] = ones
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "hidden_size": width, "num_attention_heads": c["heads"],
        "num_key_value_heads": c["kv"], "num_hidden_layers": c["layers"],
        "intermediate_size": c["inner"], "vocab_size": c["vocabulary"],
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "tie_word_embeddings": True, "rope_theta": 10000.0, "attention_bias": False,
    }))


def run(session: Session) -> None:
    c, capacity = session.choose((LLAMA, 4096), (TINY, 256))
    with tempfile.TemporaryDirectory() as folder:
        _write_folder(Path(folder), c)
        ways = (("float16", "float16"), ("int4", "float32"), ("int4", "float16"))
        session.run([
            (f"decoder {dtype}, activations {activations}",
             partial(_ours, session, c, capacity, dtype, activations, folder))
            for dtype, activations in ways])


def _ours(session: Session, c: dict[str, int], capacity: int, dtype: str, activations: str,
          folder: str) -> None:
    from webnn_vk.generate import Model

    way = {"dtype": dtype, "activations": activations}
    lengths, steps = (capacity // 8, capacity - 140), session.choose(100, 16)
    ids = np.random.default_rng(8).integers(0, c["vocabulary"], capacity).tolist()
    context = session.open_context()
    start = time.perf_counter()
    model = Model.load(folder, context, dtype=dtype, context_length=capacity,
                       activations=activations)
    load = time.perf_counter() - start
    with model.session() as text:
        next(text.tokens(ids[: lengths[0]], 2))  # compiles
        for valid in lengths:
            for turn in range(2):  # the first raises the clocks
                start = time.perf_counter()
                stream = text.tokens([(valid + turn) % 97, *ids[1:valid]], steps + 8)
                next(stream)
                first = time.perf_counter() - start
                times = []
                for _ in range(steps // 2 if turn == 0 else steps):
                    start = time.perf_counter()
                    next(stream)
                    times.append(time.perf_counter() - start)
            session.tell("decoder", **way, valid=valid, prompt_tokens_s=valid / first,
                         token_s=1 / float(np.median(times[steps // 4 :])), clock=session.clock(),
                         load=load, weights=model.report().weight_bytes,
                         steps=len(model.report().steps))
            if torch() is not None and dtype == "float16":
                session.attempt("torch decoder",
                                partial(_torch_decoder, session, c, capacity, valid))
        with context.profile(every=1, roofline=False) as profile:
            list(text.tokens(ids[: lengths[0]], 9))
        session.tell("decoder profile", **way, kernels=sum_by_kernel(profile.report))
        session.tell("token", **way, dispatches=_dispatches(profile.report))
    context.destroy()


def _dispatches(report: Any) -> list[dict[str, Any]]:
    """Every dispatch of the graphs that ran for each token, in their order."""
    tokens = max(k.graph_runs for k in report.kernels)
    return [{"graph": k.graph, "kernel": k.kernel, "variant": k.variant, "groups": k.groups,
             "seconds": k.mean, "bytes": k.bytes, "operators": list(k.operators)[:4]}
            for k in sorted(report.kernels, key=lambda k: (k.graph, k.line))
            if 2 * k.graph_runs > tokens]


@cache
def _torch_layers(capacity: int, width: int, layers: int, kv: int, size: int, inner: int,
                  vocabulary: int) -> Any:
    def matrix(o: int, i: int) -> Any:
        return cuda_randn((o, i), "float16", i)

    def cache_() -> Any:
        return cuda_randn((1, kv, capacity, size), "float16")

    blocks = [(matrix(width + 2 * kv * size, width), matrix(width, width), matrix(2 * inner, width),
               matrix(width, inner), cache_(), cache_()) for _ in range(layers)]
    ones = torch().ones(width, device="cuda", dtype=torch().float16)
    return blocks, matrix(vocabulary, width), ones


def _torch_decoder(session: Session, c: dict[str, int], capacity: int, valid: int) -> None:
    """A prompt, and a token after it, of the same shapes in PyTorch, float16: a static cache,
    replays of a CUDA graph."""
    f = torch().nn.functional
    width, kv, size = c["width"], c["kv"], c["width"] // c["heads"]
    layers, head, ones = _torch_layers(capacity, width, c["layers"], kv, size, c["inner"],
                                       c["vocabulary"])

    def seconds(tokens: int) -> float:
        x, start = cuda_randn((tokens, width), "float16"), valid - tokens

        def forward() -> Any:
            y = x
            for qkv, o, up, down, keys, values in layers:
                z = f.linear(f.rms_norm(y, (width,), ones), qkv)
                q, k, v = z.split([width, kv * size, kv * size], 1)
                keys[0, :, start:valid] = k.view(tokens, kv, size).transpose(0, 1)
                values[0, :, start:valid] = v.view(tokens, kv, size).transpose(0, 1)
                a = f.scaled_dot_product_attention(
                    q.view(1, tokens, c["heads"], size).transpose(1, 2), keys[:, :, :valid],
                    values[:, :, :valid], is_causal=tokens == valid, enable_gqa=True)
                y = y + f.linear(a.transpose(1, 2).reshape(tokens, width), o)
                gate, wide = f.linear(f.rms_norm(y, (width,), ones), up).chunk(2, 1)
                y = y + f.linear(f.silu(gate) * wide, down)
            return f.linear(y[-1:], head).argmax(1)

        return torch_seconds(session, forward)

    session.tell("decoder", dtype="float16", peer="torch", valid=valid, token_s=1 / seconds(1),
                 prompt_tokens_s=valid / seconds(valid), clock=session.clock())
