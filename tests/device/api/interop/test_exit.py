"""The interpreter exits while views, weights and exported buffers are alive."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.drivers import require_vulkan

SCRIPT = """
import sys
import numpy as np
from webnn_vk import MLGraphBuilder, Settings, ml
context = ml.create_context(settings=Settings(device=sys.argv[1])).result()
descriptor = {"data_type": "float32", "shape": [4], "readable": True, "writable": True}
views = [context.create_tensor(descriptor).result().to_numpy() for _ in range(2)]
capsule = context.create_tensor(descriptor).result().__dlpack__()
weights = np.zeros(4096, np.float32)
weights = weights[-weights.ctypes.data % 64 // 4:][:4]
shared = context.import_constant_tensor({"data_type": "float32", "shape": [4]}, weights).result()
try:
    import wgpu
except ImportError:
    adapters = []
else:
    adapters = wgpu.gpu.enumerate_adapters_sync()
if adapters:
    lent = context.create_exportable_tensor(descriptor, adapters[0].request_device_sync()).result()
    buffer = context.export_to_gpu(lent)
views[0][0] = 1
print("reached")
"""


@pytest.mark.parametrize("kind", ["cpu", "vulkan"])
def test_exit(kind):
    if kind == "vulkan":
        require_vulkan()
    done = subprocess.run([sys.executable, "-c", SCRIPT, kind], capture_output=True, text=True,
                          timeout=120)
    assert (done.returncode, done.stdout) == (0, "reached\n"), done.stderr
