"""The CUDA example: it runs where it can and says in one line why not elsewhere."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "share_with_cuda.py"


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("share_with_cuda", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_it_runs_or_says_why_not(device: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, cwd=ROOT, timeout=120,
        env={**os.environ, "WEBNN_VK_DEVICE": device, "PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        (line,) = done.stderr.strip().splitlines()
        assert line.startswith("share_with_cuda: ")
        assert not done.stdout
    else:
        assert "= 42" in done.stdout


def test_structures(example: Any) -> None:
    """Their sizes and offsets are those of cuda.h on 64-bit Linux."""
    handle, mapped = example.MemoryHandle, example.MappedBuffer
    assert ctypes.sizeof(handle) == 104
    assert [getattr(handle, name).offset for name, *_ in handle._fields_] == [0, 8, 16, 24, 32, 36]
    assert ctypes.sizeof(mapped) == 88
    assert [getattr(mapped, name).offset for name, *_ in mapped._fields_] == [0, 8, 16, 20]
