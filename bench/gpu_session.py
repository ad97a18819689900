"""One run on a GPU: correctness, speed beside PyTorch and other peers, tuning, cold start.

    python bench/gpu_session.py --out FILE.json [--seconds 330] [--only STAGE,…] [--small]
                                [--mask NAME,…] [--llama FOLDER] [--ort FOLDER]

Each stage (`bench/gpu/stages`) is a process of its own with a time limit, so a lost device or a
hang costs one stage. FILE is written after each stage. Nothing is downloaded. A GPU lowers its
clocks when idle and needs about half a second of work to raise them, so the device works for that
long before each measurement, and each row has the clocks. PyTorch is measured right after webnn_vk,
in the same row; ``ratio`` is its time divided by ours (below 1: PyTorch is faster). Absent peers
are left out. --small uses tiny sizes, for a try on software Vulkan. The exit status is 1 if a
result is wrong or missing, or if a stage failed or ran out of time.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# As a script, it would find the modules of its own folder instead of the repository's packages.
if sys.path[0] == str(Path(__file__).resolve().parent):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.gpu import summary
from bench.gpu.session import ROOT, Session, query_smi
from bench.gpu.stages import PEERS, STAGES, stage

LIBRARIES = ("webnn_vk", "numpy", "vulkan", "vkdispatch-vulkan-native", "torch", "torchvision",
             "transformers", "onnx", "onnxruntime", "onnxruntime-webgpu", "gguf")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _about(mask: str) -> dict[str, Any]:
    """The run: commit, card, driver, date, clocks, versions."""
    try:
        commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], text=True,
                                capture_output=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = f"webnn_vk {_version('webnn_vk')}"
    names = ("name", "driver_version", "memory.total", "clocks.max.sm", "clocks.mem", "clocks.sm",
             "power.limit")
    gpu = dict(zip(names, query_smi(",".join(names)), strict=False))
    began = time.gmtime()
    return {"card": gpu.pop("name", None), "driver": gpu.pop("driver_version", None),
            "date": time.strftime("%Y-%m-%d", began), "time": time.strftime("%H:%M:%SZ", began),
            "commit": commit, "mask": [name for name in mask.split(",") if name], "gpu": gpu,
            "python": sys.version.split()[0],
            "libraries": {name: _version(name) for name in LIBRARIES}}


def _run_stage(name: str, limit: float, part: Path, options: argparse.Namespace) -> str:
    """Run the stage in a process. Returns "" or how it failed."""
    command = [sys.executable, str(Path(__file__).resolve()), "--out", str(part), "--stage", name,
               "--limit", str(limit), "--mask", options.mask, *["--small"] * options.small]
    for peer in PEERS:
        if getattr(options, peer):
            command += [f"--{peer}", str(Path(getattr(options, peer)).resolve())]
    # Temporary files go with the folder of the parts, however the stage ends.
    process = subprocess.Popen(command, start_new_session=True,
                               env={**os.environ, "TMPDIR": str(part.parent)})
    try:
        code = process.wait(limit)
        return f"exit status {code}" if code else ""
    except subprocess.TimeoutExpired:
        return "ran out of time"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
        except ProcessLookupError:
            pass
        process.wait()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--seconds", type=float, help="of all stages (330, more with peers)")
    parser.add_argument("--only", default="", metavar="STAGE,…",
                        help=f"of {', '.join([*STAGES, *PEERS])}")
    parser.add_argument("--mask", default="", help="features of the device to do without")
    parser.add_argument("--llama", default="", help="the folder of llama-server")
    parser.add_argument("--ort", default="", help="the folder of ONNX Runtime WebGPU's package")
    parser.add_argument("--small", action="store_true", help="tiny sizes")
    parser.add_argument("--stage", choices=[*STAGES, *PEERS], help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=float, default=60, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.only = [name for name in options.only.split(",") if name]
    for name in options.only:
        if name not in STAGES | PEERS:
            parser.error(f"no stage is called {name}; there are {', '.join([*STAGES, *PEERS])}")
        if name in PEERS and not getattr(options, name):
            parser.error(f"the stage {name} needs --{name}")
    if not options.out.parent.is_dir():
        parser.error(f"--out {options.out}: there is no folder {options.out.parent}")
    return options


def main() -> int:
    options = _options()
    if options.stage:
        with options.out.open("a") as out:
            stage(options.stage)(Session(
                out, seconds=options.limit - 4, small=options.small, llama=options.llama,
                ort=options.ort, mask=[name for name in options.mask.split(",") if name]))
        return 0
    planned = {**STAGES, **{name: s for name, s in PEERS.items() if getattr(options, name)}}
    if options.only:
        planned = {name: {**STAGES, **PEERS}[name] for name in options.only}
    usual = sum(planned.values()) if options.only else 330 + sum(
        s for name, s in planned.items() if name in PEERS)
    total = later = options.seconds or usual
    scale, begun = total / sum(planned.values()), time.monotonic()
    about, stages = _about(options.mask), list[summary.Row]()
    rows: list[summary.Row] = []
    with tempfile.TemporaryDirectory() as folder:
        parts = {name: Path(folder) / name for name in planned}
        for name, limit in planned.items():
            start = time.monotonic()
            later -= limit * scale
            note = _run_stage(name, total - (start - begun) - later, parts[name], options)
            rows = summary.read_rows(parts)
            stages.append(summary.result_of(name, rows, time.monotonic() - start, note))
            print(f"{name}: {stages[-1]['seconds']} s {note}", flush=True)
            summary.add_shares(rows, str(about["card"]))
            summary.save(options.out, about, stages, rows)
    return 0 if summary.print_summary(rows, stages) else 1


if __name__ == "__main__":
    sys.exit(main())
