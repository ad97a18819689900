"""`bench/gpu_session.py --small` on software Vulkan: every stage, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

from tests.conformance.wpt import suite
from tests.support.paths import ROOT

SCRIPT = ROOT / "bench" / "gpu_session.py"


def session(*words, cwd=ROOT):
    return subprocess.run([sys.executable, str(SCRIPT), *map(str, words)], cwd=cwd, text=True,
                          capture_output=True, timeout=1500)


def test_a_stage(vulkan, tmp_path):
    file = tmp_path / "result.json"
    done = session("--small", "--only", "host", "--out", file)
    assert done.returncode == 0, done.stdout + done.stderr
    (stage,) = json.loads(file.read_text())["stages"]
    assert stage["stage"] == "host" and not stage["note"] and stage["found"] == stage["expected"]


@pytest.mark.explore
@pytest.mark.timeout(1600)
def test_every_stage(vulkan, tmp_path):
    """From another folder; PyTorch and what comes with it are left out where they aren't there."""
    from bench.gpu.stages import STAGES

    file = tmp_path / "result.json"
    done = session("--small", "--seconds", "1400", "--out", file, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    assert [s["stage"] for s in found["stages"]] == [*STAGES]
    assert not any(s["note"] or s["found"] != s["expected"] for s in found["stages"])
    rows = {kind: [r for r in found["rows"] if r["kind"] == kind]
            for kind in {r["kind"] for r in found["rows"]}}
    assert all(r["ok"] for r in rows["right"])
    vectors = [r for r in rows["right"] if r["what"] == "suite"]
    assert bool(vectors) == suite.PRESENT and all(r["passed"] == r["cases"] for r in vectors)
    kernels = [r for r in rows["right"] if r["stage"] in ("device", "right")]
    assert len(kernels) - len(vectors) == 56
    (info,) = rows["info"]
    assert info["text"]["start_up"].keys() == {"probe", "instance", "device", "self_tests"}
    assert info["text"]["devices"][0]["profile"]["memory_types"]
    assert [r["what"] for r in rows["latency"]] == [
        "dependent load, 16 KiB", "dependent load, 64 KiB", "dependent dispatch, 50 in a row"]
    assert all(r["seconds"] > 0 for r in rows["latency"])
    for row in rows["product"] + rows["kernel"] + rows["model"]:
        assert 0 < row["device"] and row["dispatches"] == sum(k["count"] for k in row["kernels"])
    ways = [(r["dtype"], r["activations"], r["valid"]) for r in rows["decoder"]]
    assert ways == [(*way, valid) for way in (("float16", "float16"), ("int4", "float32"),
                                              ("int4", "float16")) for valid in (32, 116)]
    for token in rows["token"]:  # two layers, each with a softmax
        operators = [name for d in token["dispatches"] for name in d["operators"]]
        assert operators.count("softmax") + operators.count("attention") == 2, operators
        assert all(d["seconds"] > 0 for d in token["dispatches"])
    assert rows["tuned"][0]["measured"] and len(rows["cold"]) == 3
    missing = [name for name in ("transformers", "torchvision")
               if importlib.util.find_spec(name) is None]
    assert len(rows.get("note", [])) == len(missing) + (not suite.PRESENT)


def test_a_stage_that_fails_is_named(vulkan, tmp_path, monkeypatch):
    monkeypatch.setenv("WEBNN_VK_DEVICE", "no such device")
    done = session("--small", "--only", "host", "--out", tmp_path / "result.json")
    assert done.returncode == 1
    assert "stages that failed or are incomplete: host" in done.stdout
    (stage,) = json.loads((tmp_path / "result.json").read_text())["stages"]
    assert stage["note"] == "exit status 1" and stage["found"] == 0


@pytest.mark.parametrize(("words", "message"), [
    (["--only", "hosts"], "no stage is called hosts; there are device, right"),
    (["--only", "llama"], "the stage llama needs --llama"),
    (["--out", "nowhere/result.json"], "there is no folder nowhere"),
])
def test_what_is_refused(words, message, tmp_path):
    done = session("--out", tmp_path / "result.json", *words)
    assert done.returncode == 2 and message in done.stderr
