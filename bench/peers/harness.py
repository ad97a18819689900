"""The peers' harness: a folder with ``bench_peers.py``, which is not in this repository. It runs a
workload with each peer, in a separate environment and process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webnn_vk.tools import ToolError

from ..processes import environment
from .results import OURS, OURS_ON_CPU

#: The checkout, which is measured, and the default folder of the harness beside it.
CHECKOUT = Path(__file__).resolve().parents[2]
FOLDER = CHECKOUT.parent / "shared" / "peers"
#: The folders under the harness's root that peers need; ours needs this process's environment.
_ENVIRONMENTS = {
    "ncnn_vulkan": "venv", "ort_webgpu": "venv", "ort_cpu": "venv_ort",
    "iree_vulkan": "venv_iree", "tinygrad_webgpu": "venv_tiny",
}
#: Without these there is no reference.
_NEEDED = ("venv", "venv_ort", "models/manifest.json")


@dataclass(frozen=True)
class Harness:
    """``folder`` has the program, ``root`` the environments, models and results that it set up."""

    folder: Path
    root: Path

    @property
    def program(self) -> Path:
        return self.folder / "bench_peers.py"

    def has(self, peer: str) -> bool:
        """Whether the peer's environment exists."""
        if peer in (OURS, OURS_ON_CPU):
            return (Path(sys.prefix) / "bin" / "python").exists()
        return (self.root / _ENVIRONMENTS[peer] / "bin" / "python").exists()

    def workloads(self) -> set[str]:
        """The workloads with existing models."""
        return set(json.loads((self.root / "models" / "manifest.json").read_text("utf-8")))

    def measure(
        self, peer: str, workload: str, seconds: float, limit: float, wait: float
    ) -> dict[str, Any]:
        """The harness's result for one peer and workload: ``seconds`` of runs within ``limit``
        seconds, after at most ``wait`` seconds for a quiet machine. A failure is a result too."""
        suffix = f"_bench_{os.getpid()}"
        file = self.root / "results" / f"peer_{peer}{suffix}.json"
        command = [
            sys.executable, str(self.program), "run", "--peers", peer, "--workloads", workload,
            "--budget", str(seconds), "--suffix", suffix,
        ]
        if peer in (OURS, OURS_ON_CPU):
            command += ["--env", f"PYTHONPATH={CHECKOUT}", "--env", "WEBNN_VK_VALIDATE=0"]
        variables = environment(
            PEERS_ROOT=str(self.root), PEERS_TIMEOUT=str(round(limit)), PEERS_IDLE_WAIT=str(wait),
            WEBNN_VK_VENV=sys.prefix,
        )
        failure = f"timeout after {limit:.0f}s"
        try:
            # The harness has limit seconds for the peer, and needs some itself.
            output = run(command, variables, limit + wait + 30)
            if output is not None:
                lines = output.strip().splitlines()
                failure = lines[-1] if lines else "the harness wrote no result"
            return json.loads(file.read_text("utf-8"))[workload]
        except (OSError, ValueError, KeyError):
            return {"peer": peer, "workload": workload, "error": failure}
        finally:
            file.unlink(missing_ok=True)


def located(folder: Path | None) -> Harness:
    """The harness in that folder, ready to run. `ToolError` names missing parts."""
    folder = (folder or FOLDER).resolve()
    root = Path(os.environ.get("PEERS_ROOT") or Path(tempfile.gettempdir()) / "peers").resolve()
    harness = Harness(folder, root)
    if not harness.program.is_file():
        raise ToolError(f"no harness of the peers ({harness.program}); --harness names its folder")
    missing = [name for name in _NEEDED if not (root / name).exists()]
    if missing:
        program = f"PEERS_ROOT={root} {{}} {harness.program}"
        raise ToolError(
            f"the peers are not set up: no {', '.join(missing)} in {root} (PEERS_ROOT names "
            f"another folder); `{program.format('python3')} setup && "
            f"{program.format(root / 'venv_ort/bin/python')} models` does it (3 GB)"
        )
    return harness


def run(command: Sequence[str], environment: dict[str, str], limit: float) -> str | None:
    """The command's output, None where it took longer. All processes that it started end with
    it."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # The harness ends a peer that takes too long, but not the compiler which that started.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return output.read().decode("utf-8", "replace")
