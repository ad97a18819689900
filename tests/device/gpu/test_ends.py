"""Processes that end or fork while buffers are exported and work is in flight."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from tests.support.paths import ROOT

START = """
import os, sys
import numpy as np
import webnn_vk
from webnn_vk import gpu

device = gpu.request_adapter().result().request_device().result()
shared = sys.argv[1] == "same"
context = webnn_vk.ml.create_context(device if shared else None).result()
descriptor = {"data_type": "float32", "shape": [100000], "writable": True, "readable": True}
tensor = context.create_exportable_tensor(descriptor, device).result()
for i in range(100):
    context.write_tensor(tensor, np.full(100000, i, np.float32))
    buffer = context.export_to_gpu(tensor)
    device.queue.write_buffer(buffer, 0, b"1234")
    read = device.queue.read_buffer(buffer)
    if i < 99:
        buffer.destroy()
"""

FORK = """
if os.fork() == 0:
    for call in (
        lambda: device.create_buffer(size=4, usage=128), lambda: device.queue.submit([]),
        lambda: context.export_to_gpu(tensor), lambda: device.queue.read_buffer(buffer),
        lambda: device.queue.write_buffer(buffer, 0, b"1234"), buffer.destroy, device.destroy,
    ):
        try:
            call()
        except webnn_vk.InvalidStateError as error:
            assert "fork" in str(error), error
        else:
            raise AssertionError("not refused")
    with device, buffer:
        pass
    sys.exit(0)
pid, status = os.wait()
assert status == 0, status
assert read.result(60).view(np.float32)[1] == 99
"""


def run(adapter: Any, code: str, where: str) -> subprocess.CompletedProcess[str]:
    if where == "two" and "external_memory_fd" not in adapter.features:
        pytest.skip("the device has no external memory")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment["WEBNN_VK_DEVICE"] = str(adapter.info.index)
    return subprocess.run(
        [sys.executable, "-c", code, where], capture_output=True, text=True, timeout=60,
        env=environment,
    )


@pytest.mark.parametrize("where", ["same", "two"])
@pytest.mark.parametrize("code", [START, START + FORK], ids=["exit", "fork"])
def test_ends(adapter: Any, code: str, where: str) -> None:
    done = run(adapter, code, where)
    assert (done.returncode, done.stderr) == (0, "")
