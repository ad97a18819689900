"""The decoder that `python -m bench peers` gives ncnn: its description and its packed weights."""

import json

import gguf
import numpy as np
import pytest

from bench.ncnn_decoder import _BYTES, _Network, _packed
from bench.peers import report


@pytest.mark.parametrize(("bits", "of"), [(8, "Q8_0"), (4, "Q4_0")])
def test_weights_are_those_of_gguf(bits, of):
    """ncnn's numbers are signed, least bits first, divided by a scale for 32 of them."""
    weight = np.random.default_rng(1).normal(size=(6, 64)).astype(np.float32)
    tag, data, scales = _packed(weight, 100 * bits)
    assert tag == _BYTES and len(data) == weight.size * bits // 8
    stored = np.frombuffer(data, np.uint8)
    if bits == 4:
        stored = np.stack([stored & 15, stored >> 4], 1).reshape(-1) << 4
    numbers = stored.view(np.int8).astype(np.float32) / (16 if bits == 4 else 1)
    factors = 1 / np.frombuffer(scales, np.float32)
    kind = gguf.GGMLQuantizationType[of]
    expected = gguf.dequantize(gguf.quantize(weight, kind), kind)
    np.testing.assert_allclose(
        (numbers.reshape(-1, 32) * factors[:, None]).reshape(weight.shape), expected, rtol=1e-6
    )


def test_values_that_several_layers_read_are_split():
    net = _Network("float32")
    x = net.input("x")
    y = net.add("Swish", [x])
    net.add("BinaryOp", [y, net.product(y, np.ones((4, 8), np.float32))], "0=2")
    magic, counts, *layers = net.text().splitlines()
    assert magic == "7767517" and counts == f"{len(layers)} 6"
    assert [line.split()[0] for line in layers] == ["Input", "Swish", "Split", "Gemm", "BinaryOp"]
    made: set[str] = set()
    for line in layers:
        _, _, reads, writes, *names = line.split()
        inputs, outputs = names[: int(reads)], names[int(reads) : int(reads) + int(writes)]
        assert made.issuperset(inputs) and made.isdisjoint(outputs)
        made.difference_update(inputs)  # each is read once
        made.update(outputs)
    assert net.weights == [bytes(4), np.ones(32, np.float32).tobytes()]


def test_rows_in_peers(monkeypatch, capsys, tmp_path):
    """The workload "generation" alone needs no harness; its rows are printed and stored."""
    machine = {"processor": "p", "device": "d", "slow_gathers": False, "storage_to_texel_time": 1.0,
               "pack": True}
    rows = [
        {"weights": "int4", "who": "ours", "token_ms": 2.0, "prompt_ms": 30.0, "same": None,
         "tokens": 51},
        {"weights": "int4", "who": "ncnn, CPU", "token_ms": 4.0, "prompt_ms": 50.0, "same": 49,
         "tokens": 51},
    ]
    asked = []
    monkeypatch.setattr(report, "machine", lambda: machine)
    monkeypatch.setattr(report.llama_cpp, "check", asked.append)
    monkeypatch.setattr(report.generation, "beside", lambda *args: asked.append(args) or rows)
    file = tmp_path / "peers.json"
    report.main(
        tmp_path, None, ["generation"], seconds=1, limit=1, wait=0, file=file, chart=None,
        llama=tmp_path, megabytes=40, runs=2,
    )
    assert asked == [tmp_path, ("vulkan", 40, 2, tmp_path)]
    assert json.loads(file.read_text())["generation"] == rows
    printed = capsys.readouterr().out
    assert "49 of 51 ours" in printed and "4.0 ms" in printed and "no ratio" not in printed
