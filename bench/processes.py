"""Processes that are measured: their environment, without the developer's settings, and results."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: The settings that select the measured library and device.
_KEPT = ("WEBNN_VK_PACK", "WEBNN_VK_DEVICE")
#: The time at which the process was started, by the clock of this machine.
BEGUN = "BENCH_BEGUN"
#: The folders whose modules are compiled to bytecode before a process is measured.
_SOURCES = ("webnn_vk", "codegen", "bench")


def environment(**more: str) -> dict[str, str]:
    """This process's environment without our library's settings (a cache folder, tuning, an
    engine), except the ones that are kept, with ``more``. Python finds bytecode, as it does in an
    installed package: without it, imports take twice the time."""
    _compile_bytecode()
    kept = {n: v for n, v in os.environ.items() if not n.startswith("WEBNN_VK_") or n in _KEPT}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, **more}


@functools.cache
def _compile_bytecode() -> None:
    import compileall  # not in a process that is measured

    root = Path(__file__).resolve().parent.parent
    for folder in _SOURCES:
        compileall.compile_dir(root / folder, quiet=1)


def cold_environment(folder: str) -> dict[str, str]:
    """The environment of a process that begins now. Its caches of shaders, also the driver's where
    the driver is Mesa's, are in ``folder``."""
    return environment(
        WEBNN_VK_CACHE=f"{folder}/ours", MESA_SHADER_CACHE_DIR=f"{folder}/mesa",
        WEBNN_VK_VALIDATE="0",
    ) | {BEGUN: str(time.perf_counter())}


def json_of(
    *arguments: str, variables: Mapping[str, str] | None = None, title: str = ""
) -> Any:
    """The JSON that a Python process with these arguments prints. `ToolError` with the last line of
    its errors, after the ``title``."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=variables
    )
    if done.returncode:
        from webnn_vk.tools import ToolError  # not before a process is measured

        raise ToolError(title + (done.stderr.strip().splitlines() or ["no message"])[-1])
    return json.loads(done.stdout)


def begun() -> float:
    """The time at which this process was started (`time.perf_counter`), as given by its starter."""
    return float(os.environ.get(BEGUN) or time.perf_counter())
