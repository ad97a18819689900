"""What a model's weights cost in resident memory, in a process of its own."""

import json
import os
import subprocess
import sys

from tests.support.drivers import require_vulkan
from tests.support.paths import ROOT

MEGABYTES = 64
CODE = """
import json, sys
from dataclasses import asdict
from bench.memory import measure
from webnn_vk.tools.devices import open_context
with open_context("vulkan") as context:
    figures = asdict(measure(context, int(sys.argv[1])))
    figures["mapped"] = context._state.device.create_storage(16).backing.mapped is not None
    print(json.dumps(figures))
"""
#: What varies from run to run: the allocator's blocks, the driver's own memory.
NOISE = 12e6


def test_weights_are_in_memory_once():
    """On a software driver device memory is resident memory: after the build there is the device's
    copy, and neither the host's nor staging memory."""
    require_vulkan()
    # The layer keeps records of its own.
    environment = os.environ | {"WEBNN_VK_VALIDATE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(MEGABYTES)], env=environment, cwd=ROOT,
        capture_output=True, text=True, timeout=300,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    weights = figures["weights"]
    assert abs(weights - MEGABYTES * 1e6) < 1e6
    assert weights <= figures["on_device"] < 1.02 * weights
    for name in ("steady", "after_run"):
        assert figures[name] < 1.2 * weights + NOISE, figures
        if figures["mapped"]:
            # It does measure what it says.
            assert figures[name] > 0.9 * weights - NOISE, figures
