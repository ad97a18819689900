"""llama.cpp beside this library, on the same GGUF file: its Vulkan and its CPU backend.

Its binaries come from npm; nothing is compiled::

    npm install --omit=optional --ignore-scripts node-llama-cpp
    npm install --no-save --omit=optional --ignore-scripts node-llama-cpp \
        @node-llama-cpp/linux-x64 @node-llama-cpp/linux-x64-vulkan
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk.tools import ToolError

PROGRAM = Path(__file__).with_suffix(".mjs")
BACKENDS = ("vulkan", "cpu")
#: Weights of a folder's data type as llama.cpp stores them.
KINDS = {"float32": "F32", "float16": "F16", "int8": "Q8_0", "int4": "Q4_0"}


def check(folder: Path) -> None:
    """`ToolError` unless node and node-llama-cpp are there."""
    if shutil.which("node") is None:
        raise ToolError("llama.cpp: there is no node on PATH")
    if not (folder / "node_modules" / "node-llama-cpp").is_dir():
        raise ToolError(
            f"llama.cpp: {folder} has no node_modules/node-llama-cpp; bench/llama_cpp.py says how "
            "to install it"
        )


def write_gguf(path: Path, folder: Path, dtype: str) -> None:
    """The model of a folder that `generation.write_model` made, as llama.cpp's converter writes it.
    """
    import gguf
    from safetensors.numpy import load_file

    kind = gguf.GGMLQuantizationType[KINDS[dtype]]
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, "llama")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    # The tokens of prompts are given as ids; bytes have to be among the words.
    size = config["vocab_size"]
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [gguf.TokenType.UNKNOWN, *[gguf.TokenType.CONTROL] * 2, *[gguf.TokenType.BYTE] * 256]
    rest = size - len(words)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*words, *(f"w{number}" for number in range(rest))])
    writer.add_token_scores([0.0] * size)
    writer.add_token_types([*types, *[gguf.TokenType.NORMAL] * rest])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for own, array in load_file(folder / "model.safetensors").items():
        for part, count in (("q_proj", heads), ("k_proj", kv_heads)):
            if part in own:  # llama.cpp rotates neighbours
                halves = array.reshape(count, 2, len(array) // count // 2, -1)
                array = halves.swapaxes(1, 2).reshape(array.shape)
        stored = names.get_name(own, (".weight",))
        if array.ndim == 2 and kind != gguf.GGMLQuantizationType.F32:
            data = gguf.quantize(np.ascontiguousarray(array), kind)
            writer.add_tensor(stored, data, raw_dtype=kind)
        else:
            writer.add_tensor(stored, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def measure(
    folder: Path, model: Path, backend: str, prompts: Sequence[Sequence[int]], tokens: int
) -> dict[str, Any]:
    """Milliseconds of each prompt and of each token, and the tokens that followed each prompt. Its
    CPU threads wait for each other by spinning: beside other work a token takes seconds, and after
    a minute one thread alone is measured, which ``device`` says."""
    done = None
    for threads, limit in ((0, 60), (1, 1200)) if backend == "cpu" else ((0, 1200),):
        request = {"model": str(model), "backend": backend, "prompts": prompts, "tokens": tokens,
                   "threads": threads}
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                ["node", str(PROGRAM), str(folder.resolve())], input=json.dumps(request), text=True,
                capture_output=True, env=os.environ | {"GGML_VK_VISIBLE_DEVICES": "0"},
                timeout=limit, check=False,
            )
            break
    if done is None:
        raise ToolError(f"llama.cpp on {backend}: no result in 20 minutes")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ToolError(f"llama.cpp on {backend}: {last}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
