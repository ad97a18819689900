"""What a stage runs with: its options, the file for its rows, its time limit, the GPU's clocks."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, TextIO, TypeVar

T = TypeVar("T")
#: What a job is called, and what it does. It adds its own rows.
Job = tuple[str, Callable[[], Any]]

ROOT = Path(__file__).resolve().parents[2]
#: Beside the checkout: the vectors of the suite and the peers' models.
SHARED = ROOT.parent / "shared"
#: Seconds of work before a measurement: an idle GPU has lowered its clocks.
WARM, WARM_SMALL = 0.5, 0.02


class Session:
    """A stage's process. ``small``: tiny sizes, for a try on software Vulkan. ``mask``: features of
    the device to do without. ``llama`` and ``ort``: the folders of llama-server and of ONNX Runtime
    WebGPU, "" for none. ``out``: rows go there, as lines of JSON. ``seconds``: the time limit."""

    def __init__(self, out: TextIO, *, seconds: float, small: bool = False,
                 mask: Sequence[str] = (), llama: str = "", ort: str = "") -> None:
        self.small, self.mask, self.llama, self.ort = small, tuple(mask), llama, ort
        self.device = os.environ.get("WEBNN_VK_DEVICE", "vulkan")
        self._out = out
        self.deadline = time.monotonic() + seconds

    def tell(self, kind: str, **data: Any) -> None:
        """Append a row."""
        self._out.write(json.dumps({"kind": kind, **data}, default=str) + "\n")
        self._out.flush()

    def attempt(self, what: str, function: Callable[[], T], kind: str = "peer error") -> T | None:
        """The function's result. Where it fails: None, and a row with the error."""
        try:
            return function()
        except Exception as error:
            self.tell(kind, what=what, error=f"{type(error).__name__}: {error}"[:600])
            return None

    def run(self, jobs: Sequence[Job]) -> None:
        """Run the jobs of a stage. A job that fails costs its own result only."""
        self.tell("expected", count=len(jobs))
        for what, job in jobs:
            if time.monotonic() > self.deadline:
                self.tell("left out", what=what)
            elif self.attempt(what, partial(_done, job), "error"):
                self.tell("found")

    def choose(self, usual: T, small: T) -> T:
        return small if self.small else usual

    def warm(self, function: Callable[[], Any], seconds: float | None = None) -> None:
        """Call the function, which waits for the device, again and again."""
        wanted = self.choose(WARM, WARM_SMALL) if seconds is None else seconds
        end = time.perf_counter() + wanted
        function()
        while time.perf_counter() < end:
            function()

    def clock(self) -> int | None:
        """MHz of the multiprocessors of the first NVIDIA GPU, None without one."""
        return self.attempt("clock", _clock())

    def settings(self, mask: Sequence[str] = (), **more: Any) -> Any:
        """The settings of a context without the masked features."""
        import webnn_vk

        return webnn_vk.Settings(device=self.device, mask=(*self.mask, *mask), **more)

    def open_context(self, mask: Sequence[str] = (), **more: Any) -> Any:
        import webnn_vk

        return webnn_vk.ml.create_context(settings=self.settings(mask, **more)).result()


def _done(job: Callable[[], Any]) -> bool:
    job()
    return True


@cache
def _clock() -> Callable[[], int | None]:
    try:
        import pynvml

        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        return lambda: int(pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM))
    except Exception:
        return lambda: next(iter(query_smi("clocks.sm")), None)


def query_smi(fields: str) -> list[Any]:
    """Ask nvidia-smi about the first GPU; an empty list without it."""
    try:
        text = subprocess.run(
            ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return []
    return [int(v) if v.isdigit() else v for v in (v.strip() for v in text.split(","))]


def with_paths(*folders: str | Path) -> dict[str, str]:
    """The environment of a Python process that finds modules in these folders first."""
    paths = [str(Path(folder).resolve()) for folder in folders]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])}
