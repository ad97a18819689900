"""20 seconds of the stress test, under the validation layer where it is on."""

import os
import re
import subprocess
import sys

from tests.support.drivers import require_vulkan
from tests.support.paths import ROOT


def test_20_seconds():
    require_vulkan()
    done = subprocess.run(
        [sys.executable, "-m", "tests.system.stress", "--seed", "5", "--seconds", "20"],
        capture_output=True, text=True, cwd=ROOT, timeout=280,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every value right, nothing left" in done.stdout
    validating = os.environ.get("WEBNN_VK_VALIDATE", "0") not in ("", "0")
    assert validating != ("validation layer OFF" in done.stdout)
    for title in ("calls", "faults"):
        (line,) = re.findall(rf"^{title}: (.*)$", done.stdout, re.MULTILINE)
        counts = dict(item.rsplit(" ", 1) for item in line.split(", "))
        assert all(int(count) > 0 for count in counts.values()), counts
