"""Spark, and Ray with --explore, with a small data set, each in a process of its own, and
docs/distributed.md."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, save

from tests.support.discriminating import assert_allclose
from tests.support.onnx_models import info, model
from tests.support.paths import ROOT
from tests.support.trained import require
from webnn_vk.examples.file_types import CONFIG, MODEL

ROWS = 600
X = np.random.default_rng(26).standard_normal((ROWS, 4)).astype(np.float32)
SCALE = np.arange(ROWS, dtype=np.float32)


def write(folder: Path) -> None:
    """y = 2 x; d = a - b and s = the sum of d; rows in six files."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    save(model([helper.make_node("Add", ["x", "x"], ["y"])], [info("x", ["n", 4])],
               [info("y", ["n", 4])]), folder / "model.onnx")
    save(model(
        [helper.make_node("Unsqueeze", ["b", "one"], ["c"]),
         helper.make_node("Sub", ["a", "c"], ["d"]),
         helper.make_node("ReduceSum", ["d", "one"], ["s"], keepdims=0)],
        [info("a", ["n", 4]), info("b", ["n"])], [info("d", ["n", 4]), info("s", ["n"])],
        {"one": np.array([1])}), folder / "two.onnx")
    (folder / "rows").mkdir()
    for number, ids in enumerate(np.array_split(np.arange(ROWS), 6)):
        parquet.write_table(pa.table({"id": ids, "x": list(X[ids]), "scale": SCALE[ids]}),
                            folder / "rows" / f"{number}.parquet")


def child(name: str, folder: Path) -> dict[str, Any]:
    """The results of a program beside this file."""
    write(folder)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("WEBNN_VK_", "CUDA_"))}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(name)), str(folder)], cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True, text=True, timeout=800,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return json.loads((folder / "result.json").read_text())


@pytest.mark.explore
@pytest.mark.timeout(900)
def test_ray(tmp_path: Path) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    require(MODEL, CONFIG)
    found = child("ray_child.py", tmp_path)
    assert found["address"] == ["127.0.0.1"] * 2
    doubled = (X * 2).tolist()

    devices = found["devices"]
    assert devices["uuids"] == [f"7765626e-6e5f-766b-206e-756c6c20300{i}" for i in range(2)]
    assert devices["name"].startswith("CPU") and devices["threads"] == "1"
    assert "which has no Vulkan device here" in devices["error"]
    assert "Nothing else is used in its place" in devices["error"]

    data = found["data"]
    assert (data["killed"], data["doubled"]) == (2, 0) and data["actors"] >= 4
    assert data["y"] == doubled

    command = found["command"]
    assert (command["status"], command["wrong"]) == (0, 1)
    restarted = command["restarted"]
    assert restarted["again"] == 0 and restarted["changed"] and restarted["same"]
    assert (restarted["rows"], restarted["files"], restarted["files_before"]) == (ROWS, 6, 5)
    assert command["rows"] == [[i, y] for i, y in enumerate(doubled)]

    page = found["page"]
    assert page["printed"][0] == "['id', 'scale', 'y']\n"
    assert "array([2., 4., 6., 8.], dtype=float32)" in page["printed"][1]

    service = found["service"]
    assert service["answer"] == [200, {"y": [2, 4, 6, 8]}]
    for name, message in (("bad", "the shape is [3]; float32[4] is expected"),
                          ("none", "there is no column 'x'; columns: y"),
                          ("no object", "an object of inputs is expected, not list")):
        status, answer = service[name]
        assert status == 400 and message in answer["error"]
    assert service["many"] == [[2 * i, 0, 0, 0] for i in range(20)]
    assert service["beside a bad one"] == [2, 2, 2, 2]
    assert len(service["files"]) > 3
    for label, (status, answer) in service["files"].items():  # of the example
        assert (status, answer["type"]) == (200, label) and answer["score"] > 0.5
    assert service["restarted"] and service["afterwards"] == [2, 0, 0, 0]


@pytest.mark.timeout(900)
def test_spark(tmp_path: Path) -> None:
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("Spark is not installed")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not installed")
    found = child("spark_child.py", tmp_path)
    assert found["y"] == (X * 2).tolist()
    differences = X[:50] - SCALE[:50, None]
    for (d, s), expected in zip(found["two"], differences, strict=True):
        assert d == expected.tolist()
        assert_allclose(s, expected.sum(), rtol=1e-4, atol=1e-4)
    assert "| id|" in found["page"] and "only showing top 3 rows" in found["page"]
    assert "RowError: row 0 of the batch: column 'x': the shape is []; float32[4]" in found["error"]
