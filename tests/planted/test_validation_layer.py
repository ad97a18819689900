"""The validation layer is on and its messages fail a test: shown with mistakes made on purpose."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.drivers import require_vulkan

ROOT = Path(__file__).parents[2]
MISTAKES = Path(__file__).with_name("mistakes.py")


def run(name):
    if os.environ["WEBNN_VK_VALIDATE"] in ("", "0"):
        pytest.skip("validation layer off: not installed, or WEBNN_VK_VALIDATE=0")
    require_vulkan()
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{MISTAKES}::{name}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("test_buffer_of_no_size", "VUID-VkBufferCreateInfo-size-00912"),
        ("test_two_writes_without_a_barrier", "SYNC-HAZARD-WRITE-AFTER-WRITE"),
    ],
)
def test_mistake_fails_the_test(name, message):
    done = run(name)
    assert done.returncode == 1, done.stdout + done.stderr
    assert message in done.stdout


def test_without_a_mistake_it_passes():
    done = run("test_no_mistake")
    assert done.returncode == 0, done.stdout + done.stderr
