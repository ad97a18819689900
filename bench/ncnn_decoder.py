"""A Llama-like decoder in ncnn (`pip install ncnn`), on Vulkan and on the CPU, beside this library.

ncnn has the layers of a decoder, but its converter needs torch: the model is written in ncnn's own
format, in float32: its Vulkan products have no weights of 4 and 8 bits. Python gets the caches of
keys and values in host memory only, so on Vulkan each run copies them down and up again.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

BACKENDS = ("vulkan", "cpu")


class _Network:
    """The two files of a network, written layer by layer."""

    def __init__(self) -> None:
        self.weights: list[bytes] = []
        self._layers: list[tuple[str, list[str], str, str]] = []

    def add(self, layer: str, inputs: Sequence[str], *params: str) -> str:
        name = f"x{len(self._layers)}"
        self._layers.append((layer, list(inputs), name, " ".join(params)))
        return name

    def input(self, name: str) -> str:
        self._layers.append(("Input", [], name, ""))
        return name

    def norm(self, x: str, weight: np.ndarray, eps: float) -> str:
        self.weights.append(weight.tobytes())
        return self.add("RMSNorm", [x], f"0={weight.size}", f"1={eps}", "2=1")

    def product(self, x: str, weight: np.ndarray) -> str:
        """With a weight [outputs, inputs]."""
        self.weights += [bytes(4), weight.tobytes()]  # the tag of float32
        size, width = weight.shape
        return self.add("Gemm", [x], "3=1", "5=1", "6=1", "10=-1", f"8={size}", f"9={width}")

    def text(self) -> str:
        """The network's description. A value that several layers read is split first."""
        readers: dict[str, int] = {}
        for _, inputs, _, _ in self._layers:
            for name in inputs:
                readers[name] = readers.get(name, 0) + 1
        lines: list[str] = []
        parts: dict[str, list[str]] = {}
        blobs = 0
        for kind, inputs, output, params in self._layers:
            copies = [f"{output}_{n}" for n in range(readers.get(output, 0))]
            rows = [(kind, [parts[name].pop() for name in inputs], [output], params)]
            if len(copies) > 1:
                rows.append(("Split", [output], copies, ""))
            parts[output] = copies if len(copies) > 1 else [output]
            for title, read, made, more in rows:
                lines.append(f"{title} {len(lines)} {len(read)} {len(made)} "
                             f"{' '.join([*read, *made])} {more}")
                blobs += len(made)
        return f"7767517\n{len(lines)} {blobs}\n" + "\n".join(lines) + "\n"


class Decoder:
    """The model of a folder that `generation.write_model` made, for one sequence."""

    def __init__(self, folder: Path, backend: str) -> None:
        import ncnn
        from safetensors.numpy import load_file

        self._ncnn = ncnn
        config = json.loads((folder / "config.json").read_text())
        arrays = load_file(folder / "model.safetensors")
        self._embedding = arrays["model.embed_tokens.weight"]
        heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
        size = config["hidden_size"] // heads
        eps, self._layers = config["rms_norm_eps"], config["num_hidden_layers"]
        self._angles = config["rope_theta"] ** (-np.arange(size // 2) / (size // 2))
        self._first = np.zeros((groups, 1, size), np.float32)
        net = _Network()
        x, cos, sin, mask = map(net.input, ("x", "cos", "sin", "mask"))
        self._caches: dict[str, str] = {}

        def rows(value: str, count: int) -> str:
            """[heads, tokens, size] of [tokens, heads × size]."""
            wide = net.add("Reshape", [value], f"0={size}", f"1={count}", "2=-1")
            return net.add("Permute", [wide], "0=2")

        for n in range(self._layers):
            at = f"model.layers.{n}."
            h = net.norm(x, arrays[f"{at}input_layernorm.weight"], eps)
            q, k, v = (
                rows(net.product(h, arrays[f"{at}self_attn.{p}_proj.weight"]), count)
                for p, count in (("q", heads), ("k", groups), ("v", groups))
            )
            q, k = (net.add("RotaryEmbed", [t, cos, sin]) for t in (q, k))
            past = [net.input(f"past_{part}{n}") for part in "kv"]
            # SDPA's own cache gives wrong results on the CPU (20261020): it reads unused rows.
            k, v = (net.add("Concat", pair, "0=1") for pair in zip(past, (k, v), strict=True))
            # Apart from what the attention reads, which is freed then.
            self._caches |= {p: net.add("Noop", [t]) for p, t in zip(past, (k, v), strict=True)}
            h = net.add("SDPA", [q, k, v, mask], "5=1")
            h = net.add("Reshape", [net.add("Permute", [h], "0=2")], f"0={heads * size}", "1=-1")
            x = net.add("BinaryOp", [x, net.product(h, arrays[f"{at}self_attn.o_proj.weight"])])
            h = net.norm(x, arrays[f"{at}post_attention_layernorm.weight"], eps)
            gate, up = (net.product(h, arrays[f"{at}mlp.{p}_proj.weight"]) for p in ("gate", "up"))
            h = net.add("BinaryOp", [net.add("Swish", [gate]), up], "0=2")
            x = net.add("BinaryOp", [x, net.product(h, arrays[f"{at}mlp.down_proj.weight"])])
        x = net.add("Crop", [x], "-23309=1,-1", "-23310=1,2147483647", "-23311=1,0")  # the last row
        self._logits = net.product(net.norm(x, arrays["model.norm.weight"], eps), self._embedding)
        self._net: Any = ncnn.Net()
        self._net.opt.use_vulkan_compute = backend == "vulkan"
        for option in dir(self._net.opt):
            if option.startswith(("use_fp16", "use_bf16")):
                setattr(self._net.opt, option, False)
        with tempfile.TemporaryDirectory() as name:
            param, model = Path(name, "decoder.param"), Path(name, "decoder.bin")
            param.write_text(net.text())
            with open(model, "wb") as file:
                file.writelines(net.weights)
            net.weights.clear()
            if self._net.load_param(str(param)) or self._net.load_model(str(model)):
                raise RuntimeError("ncnn doesn't load the decoder")
        self.device = ncnn.get_gpu_info(0).device_name() if backend == "vulkan" else "CPU"
        self.restart()

    def restart(self) -> None:
        """Caches of one row, which the mask hides: layers take no empty inputs."""
        self._held = {name: self._ncnn.Mat(self._first).clone() for name in self._caches}
        self._valid = 0

    def next(self, ids: Sequence[int]) -> int:
        """The most probable token after these and all before."""
        count = len(ids)
        places = np.arange(self._valid, self._valid + count)
        angles = (places[:, None] * self._angles).astype(np.float32)
        mask = np.where(np.arange(1 + self._valid + count) > 1 + places[:, None], -1e30, 0)
        mask[:, 0] = -1e30
        given = {"x": self._embedding[list(ids)], "cos": np.cos(angles), "sin": np.sin(angles),
                 "mask": mask.astype(np.float32)}
        extractor = self._net.create_extractor()
        for name, array in given.items():
            extractor.input(name, self._ncnn.Mat(array).clone())
        for name, cache in self._held.items():
            extractor.input(name, cache)
        failed, logits = extractor.extract(self._logits)
        for name, present in self._caches.items():
            problem, self._held[name] = extractor.extract(present)
            failed = failed or problem
        if failed:
            raise RuntimeError("ncnn doesn't run the decoder")
        self._valid += count
        return int(np.asarray(logits).argmax())


def measure(
    folder: Path, backend: str, prompts: Sequence[Sequence[int]], tokens: int
) -> dict[str, Any] | None:
    """As ``llama_cpp.measure``, in float32; None where ncnn is not installed."""
    try:
        import ncnn  # noqa: F401
    except ImportError:
        return None
    decoder = Decoder(folder, backend)
    result: dict[str, Any] = {
        "device": decoder.device, "prompts": [], "steps": [], "tokens": [],
    }
    for prompt in prompts:
        decoder.restart()
        found: list[int] = []
        while len(found) <= tokens:
            start = time.perf_counter()
            found.append(decoder.next(found[-1:] or prompt))
            spent = 1e3 * (time.perf_counter() - start)
            result["steps" if len(found) > 1 else "prompts"].append(spent)
        result["tokens"].append(found)
    return result
