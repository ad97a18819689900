"""`python -m bench scaling`, on sizes that are computed quickly."""

import json
import os
import subprocess
import sys

import pytest

from bench.models import mobilenet_v2
from bench.scaling import measure
from bench.scaling.sweeps import SWEEPS
from tests.support.paths import ROOT


def test_a_size_is_measured(vulkan_context, monkeypatch):
    monkeypatch.setattr(measure, "_ENOUGH", 0)
    point = measure.measure(vulkan_context, SWEEPS["image"], 32, 2)
    assert (point.size, point.multiply_adds) == (32, mobilenet_v2.multiply_adds(1, 32))
    assert (point.failure, point.on_host) == ("", 0)
    assert point.clock > 0 and point.processor > 0 and point.build > 0 and point.peak > 10


@pytest.mark.device
def test_the_command(tmp_path):
    file = tmp_path / "scaling.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench", "scaling", "--sweep", "batch", "--size", "1", "--size", "2",
         "--runs", "1", "--device", "vulkan", "--json", str(file)],
        capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "WEBNN_VK_CACHE": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "MobileNetV2, 224²: batch" in done.stdout
    (sweep,) = json.loads(file.read_text())["sweeps"]
    assert [(point["size"], point["failure"]) for point in sweep["points"]] == [(1, ""), (2, "")]


def test_a_size_that_takes_too_long_is_a_failure():
    point = measure.measured("batch", 64, "vulkan", 1, 0.01)
    assert point.failure == "more than 0 s" and point.multiply_adds > 0
