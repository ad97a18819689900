"""The stress test under the validation layer, if it is on: a fixed number of calls from one thread;
with --explore, calls of many threads for 10 minutes."""

import os
import re
import subprocess
import sys

import pytest

from tests.support import selection
from tests.support.paths import ROOT


@pytest.mark.parametrize("length", [
    pytest.param(("--steps", "150"), id="one thread"),
    pytest.param(("--seconds", "600"), id="many threads", marks=pytest.mark.explore),
])
def test_every_value_is_right_and_nothing_left(length, vulkan):
    seed = str(selection.chance("stress").randrange(10**6))
    done = subprocess.run([sys.executable, "-m", "tests.system.stress", "--seed", seed, *length],
                          capture_output=True, text=True, cwd=ROOT)
    print(done.stdout)
    # Of many threads the one that crashed comes first: reports of CI are cut.
    _, crashed, stack = done.stderr.partition("Current thread")
    assert done.returncode == 0, f"{crashed}{stack[:2000]}\n{done.stdout}{done.stderr}"
    assert "every value right, nothing left" in done.stdout
    validating = os.environ.get("WEBNN_VK_VALIDATE", "0") not in ("", "0")
    assert validating != ("validation layer OFF" in done.stdout)
    for title in ("calls", "faults"):
        (line,) = re.findall(rf"^{title}: (.*)$", done.stdout, re.MULTILINE)
        counts = dict(item.rsplit(" ", 1) for item in line.split(", "))
        assert all(int(count) > 0 for count in counts.values()), counts
