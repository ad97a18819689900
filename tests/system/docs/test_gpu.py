"""The first example of docs/gpu.md runs as it stands."""

import re
import subprocess
import sys

from tests.support.gpu_shaders import needs_compiler
from tests.support.paths import ROOT

TEXT = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")


def test_the_example(vulkan):
    needs_compiler()
    example = re.search(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)[1]
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.match(r"\[ *0\. +2\. +4\. ", done.stdout), done.stdout
