"""The decoder that `python -m bench peers` gives ncnn."""

import json

import numpy as np

from bench.ncnn_decoder import _Network
from bench.peers import report


def test_values_that_several_layers_read_are_split():
    net = _Network()
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
        llama=tmp_path, megabytes=40,
    )
    assert asked == [tmp_path, ("vulkan", 40, tmp_path)]
    assert json.loads(file.read_text())["generation"] == rows
    printed = capsys.readouterr().out
    assert "49 of 51 ours" in printed and "4.0 ms" in printed and "no ratio" not in printed
