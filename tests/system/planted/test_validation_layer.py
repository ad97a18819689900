"""The validation layer is on and its messages fail a test: shown with planted mistakes."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.drivers import require_vulkan
from tests.support.paths import ROOT

MISTAKES = Path(__file__).with_name("mistakes.py")


@pytest.fixture
def run(tmp_path):
    # In a separate folder: otherwise it would check the modules of the whole run again each time.
    variables = {**os.environ, "WEBNN_VK_DUMP_SPIRV": str(tmp_path)}
    return partial(run_mistake, env=variables)


def run_mistake(name, **options):
    if os.environ["WEBNN_VK_VALIDATE"] in ("", "0"):
        pytest.skip("validation layer off: not installed, or WEBNN_VK_VALIDATE=0")
    require_vulkan()
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{MISTAKES}::{name}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        **options,
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("test_buffer_of_no_size", "VUID-VkBufferCreateInfo-size-00912"),
        ("test_two_writes_without_a_barrier", "SYNC-HAZARD-WRITE-AFTER-WRITE"),
    ],
)
def test_mistake_fails_the_test(run, name, message):
    done = run(name)
    assert done.returncode == 1, done.stdout + done.stderr
    assert message in done.stdout


@pytest.mark.parametrize(
    "name", ["test_a_hazard_inside_a_command_buffer", "test_a_hazard_across_two_submits"]
)
def test_hazards_of_dispatches_fail_the_test(run, name):
    """Messages are found although they occur on the timeline, as errors of work that is never read.
    """
    done = run(name)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "validation layer:" in done.stdout, done.stdout
    assert "SYNC-HAZARD-" in done.stdout, done.stdout


@pytest.mark.parametrize("name", ["test_no_mistake", "test_no_hazard"])
def test_without_a_mistake_it_passes(run, name):
    done = run(name)
    assert done.returncode == 0, done.stdout + done.stderr
