"""The CUDA example runs where it can; elsewhere it says why not, in one line."""

from __future__ import annotations

import ctypes
import importlib.util
import mmap
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.support.paths import ROOT
from webnn_vk.api.tensor_export import TensorMemory

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


class PretendedCuda:
    """The driver API on lavapipe's memory, which is a memfd after a page of llvmpipe's own."""

    PAGE = 4096

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._mapping: Any = None

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            own = getattr(type(self), f"_{name}", None)
            return own(self, *arguments) if own else 0

        return call

    def _cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 1
        return 0

    def _cuDeviceGetUuid(self, found: Any, index: int) -> int:
        found.raw = self.uuid
        return 0

    def _cuImportExternalMemory(self, external: Any, handle: Any) -> int:
        handle = handle._obj
        assert (handle.type, handle.flags) == (1, 1)
        self._mapping = mmap.mmap(handle.fd, self.PAGE + handle.size)
        os.close(handle.fd)
        return 0

    def _cuExternalMemoryGetMappedBuffer(self, pointer: Any, external: Any, part: Any) -> int:
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
        pointer._obj.value = start + self.PAGE + part._obj.offset
        return 0

    def _cuMemcpyDtoH_v2(self, target: Any, source: Any, size: Any) -> int:
        ctypes.memmove(ctypes.addressof(target._obj), source.value, size.value)
        return 0

    def _cuMemsetD32_v2(self, target: Any, bits: int, count: Any) -> int:
        words = (ctypes.c_uint32 * count.value).from_address(target.value)
        words[:] = [bits] * count.value
        return 0


def test_the_course_of_it(
    example: Any, adapter: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Everything except CUDA itself, over the same memory."""
    if not adapter.info.name.startswith("llvmpipe"):
        pytest.skip("needs lavapipe")
    cuda = PretendedCuda()
    cuda.uuid = bytes.fromhex(adapter._physical.profile.uuid)
    monkeypatch.setenv("WEBNN_VK_DEVICE", str(adapter.info.index))
    load = ctypes.CDLL
    monkeypatch.setattr(
        ctypes, "CDLL", lambda name, *a: cuda if "libcuda" in (name or "") else load(name, *a)
    )
    for library in ("torch", "cupy"):
        monkeypatch.setitem(sys.modules, library, None)
    example.main()
    assert "plain CUDA added 1" in capsys.readouterr().out
    assert cuda.calls[-1] == "cuCtxSynchronize"
    cuda.uuid = bytes(16)
    closed = []
    monkeypatch.setattr(TensorMemory, "close", lambda memory: closed.append(os.close(memory.fd)))
    with pytest.raises(example.Unavailable, match="none of the 1 CUDA devices"):
        example.main()
    assert len(closed) == 1


def test_structures(example: Any) -> None:
    """Their sizes and offsets are those in cuda.h on 64-bit Linux."""
    handle, mapped = example.MemoryHandle, example.MappedBuffer
    assert ctypes.sizeof(handle) == 104
    assert [getattr(handle, name).offset for name, *_ in handle._fields_] == [0, 8, 16, 24, 32, 36]
    assert ctypes.sizeof(mapped) == 88
    assert [getattr(mapped, name).offset for name, *_ in mapped._fields_] == [0, 8, 16, 20]
