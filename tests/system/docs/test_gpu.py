"""The self-contained examples of docs/gpu.md run."""

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


def test_the_times_of_a_pass(vulkan):
    """The second example, which uses a pass from the first."""
    needs_compiler()
    first, times = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)[:2]
    body = re.search(r"^with .*?:\n((?:    .*\n)+)", first, re.MULTILINE)[1]
    assert times.count("    ...\n") == 1
    code = f"{first}\n{times.replace('    ...', body.rstrip())}\nassert 0 < begin < end"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
