"""llama.cpp's Vulkan backend with the decoder's shapes: its own figures of the third request of
each length, since the first compiles and the second raises the clocks."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..measured_graph import noise
from ..session import Session
from .decoder import LLAMA, TINY, matrices

#: Names of a layer's matrices in GGUF files.
_NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
          "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
          "mlp.down_proj": "ffn_down"}


def run(session: Session) -> None:
    c, capacity = session.choose((LLAMA, 4096), (TINY, 256))
    with tempfile.TemporaryDirectory() as folder:
        session.run([(f"llama.cpp {kind}", partial(_measure, session, c, capacity, kind, folder))
                     for kind in ("F16", "Q4_0")])


def _write_gguf(path: Path, kind: str, c: dict[str, int]) -> None:
    """The decoder's shapes as a GGUF file, with random weights."""
    import gguf

    quantization, width = gguf.GGMLQuantizationType[kind], c["width"]
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in (
        ("block_count", c["layers"]), ("context_length", 8192), ("embedding_length", width),
        ("feed_forward_length", c["inner"]), ("head_count", c["heads"]), ("head_count_kv", c["kv"]),
        ("rope_freq_base", 10000.0), ("rope_dimension_count", width // c["heads"]),
        ("layer_norm_rms_eps", 1e-5), ("vocab_size", c["vocabulary"])):
        getattr(writer, f"add_{name}")(value)
    words, kinds = ["<unk>", "<s>", "</s>", "\n"], gguf.TokenType
    rest = c["vocabulary"] - len(words)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*words, *(f"w{i}" for i in range(rest))])
    writer.add_token_scores([0.0] * c["vocabulary"])
    writer.add_token_types([kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL,
                            *[kinds.NORMAL] * (rest + 1)])
    quantized: dict[tuple[int, ...], np.ndarray] = {}

    def put(name: str, turn: int, *shape: int) -> None:
        if kind == "F16":
            writer.add_tensor(name, noise(shape, "float16", shape[1]))
            return
        if shape not in quantized:  # slow: once for each shape
            quantized[shape] = gguf.quantize(noise(shape, "float32", shape[1]), quantization)
        writer.add_tensor(name, np.roll(quantized[shape], turn, 0), raw_dtype=quantization)

    put("token_embd.weight", 0, c["vocabulary"], width)
    writer.add_tensor("output_norm.weight", np.ones(width, np.float32))
    for n in range(c["layers"]):
        for name, rows, columns in matrices(c):
            put(f"blk.{n}.{_NAMES[name]}.weight", n, rows, columns)
        for part in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{n}.{part}.weight", np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _measure(session: Session, c: dict[str, int], capacity: int, kind: str, folder: str) -> None:
    server, model = Path(session.llama) / "llama-server", Path(folder) / f"{kind}.gguf"
    _write_gguf(model, kind, c)
    port, log = 18080 + os.getpid() % 1000, model.with_suffix(".log")
    libraries = os.pathsep.join([str(server.parent), os.environ.get("LD_LIBRARY_PATH", "")])
    with log.open("w") as written:
        process = subprocess.Popen(
            [str(server), "-m", str(model), "-ngl", "99", "-c", str(capacity), "-np", "1", "-fa",
             "on", "--port", str(port), "--host", "127.0.0.1", "--no-webui", "-b", "2048",
             "-ub", "512", "--no-warmup", "-lv", "4"], stdout=written, stderr=subprocess.STDOUT,
            env={**os.environ, "GGML_VK_VISIBLE_DEVICES": "0", "LD_LIBRARY_PATH": libraries})
    try:
        _wait_until_ready(process, port)
        ids = np.random.default_rng(8).integers(300, c["vocabulary"], capacity).tolist()
        for valid in (capacity // 8, capacity - 140):
            for _ in range(3):
                ids = [(i * 7 + 301) % (c["vocabulary"] - 8) + 8 for i in ids]
                found = _complete(port, ids[:valid], session.choose(128, 16))
            session.tell("decoder", peer="llama.cpp", dtype=kind, valid=valid,
                         clock=session.clock(), prompt_tokens_s=found["prompt_per_second"],
                         token_s=found["predicted_per_second"])
    finally:
        process.terminate()
        process.wait(20)
        lines = log.read_text(errors="replace").splitlines()
        session.tell("note", text=[line[:200] for line in lines if any(
            word in line.lower() for word in ("vulkan", "offload", "error", "build"))][:20])


def _wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError("llama-server ended")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("llama-server is not ready")


def _complete(port: int, ids: list[int], count: int) -> dict[str, Any]:
    """llama-server's own timings of a prompt and the tokens after it."""
    body = {"prompt": ids, "n_predict": count, "cache_prompt": False, "ignore_eos": True,
            "temperature": 0, "stream": False, "logit_bias": [[n, False] for n in range(4)]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/completion", json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        timings: dict[str, Any] = json.load(answer)["timings"]
    return timings
