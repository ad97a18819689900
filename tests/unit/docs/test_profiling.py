"""The example of docs/profiling.md runs, and uses existing names."""

import dataclasses
import os
import re
import subprocess
import sys

from tests.support.paths import ROOT
from webnn_vk.profiler import ProfileReport

TEXT = (ROOT / "docs" / "profiling.md").read_text(encoding="utf-8")


def test_the_example(tmp_path):
    example = re.search(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)[1]
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True,
                          cwd=tmp_path, env={**os.environ, "WEBNN_VK_DEVICE": "cpu"})
    assert done.returncode == 0, done.stderr
    assert re.search(r"^100\.0% .* 10 +matmul \+ relu +cpu +numpy", done.stdout, re.MULTILINE)
    assert (tmp_path / "trace.json").is_file() and (tmp_path / "report.html").is_file()


def test_the_table_names_the_report():
    named = set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE))
    fields = {field.name for field in dataclasses.fields(ProfileReport)}
    assert named == fields - {"device", "seconds", "runs", "timed"}
