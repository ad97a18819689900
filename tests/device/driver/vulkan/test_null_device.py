"""A device without memory: RADV's null device (no hardware, no heaps), alone and beside lavapipe.

Each test runs in a new process, since the loader reads its drivers once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ICDS = Path("/usr/share/vulkan/icd.d")
RADV, LAVAPIPE = ICDS / "radeon_icd.x86_64.json", ICDS / "lvp_icd.x86_64.json"
REASON = "Null hardware (RADV NAVI21): the device reports no memory heaps"

OPEN = """
import webnn_vk

for info in webnn_vk.devices():
    print(info.index, info.type, info.unusable)
try:
    with webnn_vk.ml.create_context().result() as context:
        print("on", context.device_info.type)
except webnn_vk.DOMException as error:
    print(type(error).__name__, error)
"""


def opened(drivers: list[Path], device: str = "") -> tuple[list[str], str]:
    """The lines that OPEN prints with these drivers and WEBNN_VK_DEVICE, and its warnings."""
    missing = [str(path) for path in drivers if not path.is_file()]
    if missing:
        pytest.skip(f"no driver at {', '.join(missing)}")
    environment = {
        **os.environ, "RADV_FORCE_FAMILY": "NAVI21", "WEBNN_VK_DEVICE": device,
        "VK_ICD_FILENAMES": ":".join(map(str, drivers)), "WEBNN_VK_VALIDATE": "0",
    }
    environment.pop("VK_DRIVER_FILES", None)  # it would outrank VK_ICD_FILENAMES
    result = subprocess.run([sys.executable, "-c", OPEN], env=environment, text=True,
                            capture_output=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    return result.stdout.splitlines(), result.stderr


def test_alone_it_is_listed_and_the_cpu_is_used() -> None:
    lines, warned = opened([RADV])
    assert lines == ["0 discrete the device reports no memory heaps", "None numpy None",
                     "on numpy"]
    assert f"no GPU ({REASON}); the CPU device is used\n" in warned


@pytest.mark.parametrize("device", ["0", "navi21"])
def test_asked_for(device: str) -> None:
    lines, _ = opened([RADV], device)
    assert lines[2:] == [
        f"NotSupportedError WEBNN_VK_DEVICE='{device}': Null hardware (RADV NAVI21) can't be used: "
        "the device reports no memory heaps"]


def test_any_vulkan_device_asked_for() -> None:
    lines, _ = opened([RADV], "vulkan")
    assert lines[2:] == ["NotSupportedError WEBNN_VK_DEVICE='vulkan': no usable Vulkan device "
                         f"(0: {REASON})"]


@pytest.mark.parametrize("drivers", [[RADV, LAVAPIPE], [LAVAPIPE, RADV]])
def test_beside_a_usable_device(drivers: list[Path]) -> None:
    lines, warned = opened(drivers)
    # Mesa's device selection lists a discrete device first, whatever the order of the drivers.
    assert sorted(lines) == ["0 discrete the device reports no memory heaps", "1 cpu None",
                             "None numpy None", "on numpy"]
    assert "WEBNN_VK_DEVICE=vulkan takes a software Vulkan device" in warned
    lines, _ = opened(drivers, "vulkan")
    assert lines[-1] == "on cpu"
