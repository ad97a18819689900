"""onnxruntime-web, unmodified, on its WebNN execution provider: js/test/onnxruntime-web.test.js.

Needs `npm install` in js/ (140 MB), which neither CI nor scripts/test does.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import webnn_vk as webnn
from bench.models import mobilenet_v2
from tests.support import node
from webnn_vk import onnx


def save(folder, name: str, graph, arrays: dict[str, np.ndarray]) -> None:
    onnx.export(graph, folder / f"{name}.onnx")
    inputs = {
        key: {"type": str(a.dtype), "shape": a.shape, "data": a.reshape(-1).tolist()}
        for key, a in arrays.items()
    }
    (folder / f"{name}.json").write_text(json.dumps(inputs))


def transformer(context, tokens: int = 16, width: int = 64, heads: int = 4, layers: int = 2):
    """An encoder with random weights: attention and feed-forward blocks with normalisation."""
    rng = np.random.default_rng(3)
    b = webnn.MLGraphBuilder(context)

    def weight(*shape: int):
        scale = np.float32(1 / np.sqrt(shape[0]))
        return b.constant(rng.standard_normal(shape, np.float32) * scale)

    def heads_of(x):
        return b.transpose(b.reshape(x, [tokens, heads, width // heads]),
                           permutation=[1, 0, 2])

    ids = b.input("ids", {"data_type": "int64", "shape": [tokens]})
    x = b.gather(weight(100, width), ids)
    for _ in range(layers):
        q, k, v = (heads_of(b.matmul(x, weight(width, width))) for _ in "qkv")
        scores = b.mul(b.matmul(q, b.transpose(k, permutation=[0, 2, 1])),
                       b.constant("float32", (width // heads) ** -0.5))
        mixed = b.matmul(b.softmax(scores, 2), v)
        joined = b.reshape(b.transpose(mixed, permutation=[1, 0, 2]), [tokens, width])
        x = b.layer_normalization(
            b.add(x, b.matmul(joined, weight(width, width))), axes=[1],
            scale=b.constant(np.ones(width, np.float32)),
            bias=b.constant(np.zeros(width, np.float32)),
        )
        inner = b.gelu(b.matmul(x, weight(width, 4 * width)))
        x = b.add(x, b.matmul(inner, weight(4 * width, width)))
    return b.build({"y": x}).result()


@pytest.mark.timeout(900)
def test_onnxruntime_web(tmp_path):
    if not (node.JS / "node_modules" / "onnxruntime-web").is_dir():
        pytest.skip("onnxruntime-web is not installed: npm install in js/")
    with webnn.ml.create_context(settings=webnn.Settings(device="cpu")).result() as context:
        graph = mobilenet_v2.build(context).result()
        save(tmp_path, "mobilenet", graph, {"image": mobilenet_v2.image()})
        ids = np.arange(16, dtype=np.int64) * 5
        save(tmp_path, "transformer", transformer(context), {"ids": ids})
    done = node.run(
        "--test", "test/onnxruntime-web.test.js", folder=tmp_path, timeout=800,
        MODELS=str(tmp_path),
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    lines = [line[line.index("{"):] for line in done.stdout.splitlines() if '{"name"' in line]
    results = {(found := json.loads(line))["name"]: found for line in lines}
    assert all(found["worst"] < 1e-4 for found in results.values()) and len(results) == 2
    counts = re.findall(r"nodes in the graph: (\d+) .*supported by WebNN: (\d+)", done.stdout)
    assert counts[0] == ("100", "100")  # MobileNetV2
    assert all(nodes == supported for nodes, supported in counts)
    print(results)
