"""A peers' harness in a folder: missing parts are reported, its measurements are read, and hanging
runs are ended."""

import json
import os
import sys
import time

import pytest

from bench.peers import harness, report
from webnn_vk.tools import ToolError

#: Outcomes of the real harness: "hang" starts a child process and waits for it, "crash" writes
#: nothing.
PROGRAM = """
import json, os, subprocess, sys
from pathlib import Path
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
root, peer, workload = Path(os.environ["PEERS_ROOT"]), options["--peers"], options["--workloads"]
if peer == "ort_webgpu":
    waiting = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (root / "waiting").write_text(str(waiting.pid))
    waiting.wait()
if peer == "ort_cpu":
    raise SystemExit("no such library")
result = {
    "peer": peer, "workload": workload, "ms": 8.0 if peer == "ncnn_vulkan" else 2.0,
    "build_s": 1.0, "first_run_s": float(options["--budget"]), "max_rel_err": 1e-6,
    "foreign_cores": 0.0, "limit": os.environ["PEERS_TIMEOUT"], "ours": os.environ["WEBNN_VK_VENV"],
    "arguments": sys.argv[2:], "cache": os.environ.get("WEBNN_VK_CACHE"),
    "tune": os.environ.get("WEBNN_VK_TUNE"),
}
file = root / "results" / f"peer_{peer}{options['--suffix']}.json"
file.parent.mkdir(exist_ok=True)
file.write_text(json.dumps({workload: result}))
"""


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A harness that answers at once, and has no environments of IREE and tinygrad."""
    folder, root = tmp_path / "harness", tmp_path / "root"
    folder.mkdir()
    (folder / "bench_peers.py").write_text(PROGRAM)
    for name in ("venv", "venv_ort"):
        (root / name / "bin").mkdir(parents=True)
        (root / name / "bin" / "python").touch()
    (root / "models").mkdir()
    (root / "models" / "manifest.json").write_text('{"matmul_512": {}, "bert_2l_128": {}}')
    monkeypatch.setenv("PEERS_ROOT", str(root))
    return harness.located(folder)


def test_what_is_missing_is_one_line(made, monkeypatch, tmp_path):
    with pytest.raises(ToolError, match=r"no harness of the peers \(.*_peers\.py\); --harness"):
        harness.located(tmp_path)
    monkeypatch.setenv("PEERS_ROOT", str(tmp_path))
    with pytest.raises(ToolError, match="not set up: no venv, venv_ort, .*setup && .*models`") as e:
        harness.located(made.folder)
    assert "\n" not in str(e.value)


def test_a_figure_is_measured_and_leaves_nothing(made, monkeypatch):
    monkeypatch.setenv("WEBNN_VK_CACHE", "/home/me/cache")
    monkeypatch.setenv("WEBNN_VK_TUNE", "1")
    found = made.measure("webnn_vk", "matmul_512", 0.5, 60.4, 0)
    assert (found["ms"], found["first_run_s"], found["limit"]) == (2.0, 0.5, "60")
    assert found["ours"] == sys.prefix
    assert found["cache"] is found["tune"] is None
    # Ours is the checkout that contains the command.
    assert f"PYTHONPATH={harness.CHECKOUT}" in found["arguments"]
    assert "--env" not in made.measure("ncnn_vulkan", "matmul_512", 0.5, 60, 0)["arguments"]
    assert list((made.root / "results").iterdir()) == []


def test_a_failure_is_a_result(made):
    failure = made.measure("ort_cpu", "matmul_512", 0.5, 60, 0)
    assert failure == {"peer": "ort_cpu", "workload": "matmul_512", "error": "no such library"}


def test_what_hangs_is_ended_with_all_it_started(made, tmp_path):
    command = [sys.executable, str(made.program), "run", "--peers", "ort_webgpu", "--workloads",
               "matmul_512", "--budget", "1", "--suffix", "_x"]
    # Ends when the process exists, however long its start takes.
    marker, limit = made.root / "waiting", 0.5
    while not (marker.exists() and marker.read_text()):
        assert harness.run(command, dict(os.environ), limit) is None
        limit *= 2
    number = int(marker.read_text())
    while _runs(number):
        time.sleep(0.01)


def _runs(number):
    try:
        with open(f"/proc/{number}/stat") as file:
            # A zombie counts as ended: in a container there may be no process to reap it.
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_whole_report(made, monkeypatch, capsys, tmp_path):
    about = {"processor": "A CPU", "device": "llvmpipe", "slow_gathers": True,
             "storage_to_texel_time": 11.5, "pack": True}
    monkeypatch.setattr(report, "machine", lambda: about)
    asked = {"seconds": 0.5, "limit": 60, "wait": 0, "chart": None}
    report.main(
        made.folder, ["ncnn_vulkan", "ort_cpu"], ["matmul_512"], file=tmp_path / "p.json", **asked
    )
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("A CPU; gathers are slow") and "11.5 times" in shown[0]
    assert [line.split()[2:] for line in shown if line.startswith("matmul 512³")] == [
        ["2.0", "8.0", "failed", "ncnn", "4.00"], ["1.50", "1.50", "failed", "ncnn", "1.00"],
    ]
    assert shown[-1] == "ORT CPU, matmul 512³: no such library"
    written = json.loads((tmp_path / "p.json").read_text())
    assert written["steady"] == {"geometric_mean": 4.0, "ratios": {"matmul_512": 4.0}}
    assert [one["peer"] for one in written["measured"]] == ["webnn_vk", "ncnn_vulkan", "ort_cpu"]
    with pytest.raises(ToolError, match="no environment of iree_vulkan"):
        report.main(made.folder, ["iree_vulkan"], ["matmul_512"], file=None, **asked)
    with pytest.raises(ToolError, match="no models of resnet50_v1_224"):
        report.main(made.folder, ["ncnn_vulkan"], ["resnet50_v1_224"], file=None, **asked)


def test_an_interrupted_run_keeps_what_it_has(made, monkeypatch, capsys):
    monkeypatch.setattr(report, "machine", lambda: {
        "processor": "A CPU", "device": "llvmpipe", "slow_gathers": False,
        "storage_to_texel_time": 1.0, "pack": False,
    })
    measure = harness.Harness.measure

    def interrupted(self, peer, workload, *others):
        if workload == "bert_2l_128":
            raise KeyboardInterrupt
        return measure(self, peer, workload, *others)

    monkeypatch.setattr(harness.Harness, "measure", interrupted)
    report.main(
        made.folder, ["ncnn_vulkan"], ["matmul_512", "bert_2l_128"], seconds=0.5, limit=60, wait=0,
        file=None, chart=None,
    )
    assert "4.00, 1 of 1 workloads" in capsys.readouterr().out
