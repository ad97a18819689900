"""The Python of the documentation runs, page by page, and prints the output that the page shows.

A page is one program: its blocks run in order. A text block after a Python block is its output.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.support.drivers import require_vulkan
from tests.support.paths import ROOT

#: Pages whose snippets need additional names: test_fragments counts and runs them, or says which
#: test does.
ELSEWHERE = {
    "adding-a-data-type", "adding-a-driver", "adding-a-kernel", "adding-a-pass",
    "adding-an-operator", "distributed", "drivers", "generation", "gpu", "interop", "onnx",
    "profiling", "webnn-file",
}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
PAGES = {
    page: blocks
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if (page := path.relative_to(ROOT / "docs").with_suffix("").as_posix()) not in ELSEWHERE
    and (blocks := [b for b in BLOCK.findall(path.read_text(encoding="utf-8")) if b[0] == "python"])
}
#: Runs the blocks from standard input in one namespace and prints the output of each.
RUN = """
import contextlib, io, json, sys
names, printed = {"__name__": "__main__"}, []
for number, code in enumerate(json.load(sys.stdin)):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, f"<block {number}>", "exec"), names)
    printed.append(out.getvalue())
print(json.dumps(printed))
"""


def test_pages_are_found():
    assert {"quick-start", "concepts", "serving", "shaders"} <= set(PAGES)
    assert sum(bool(text) for blocks in PAGES.values() for *_, text in blocks) >= 15


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
@pytest.mark.parametrize("page", PAGES)
def test_page(page, device, tmp_path):
    if device == "vulkan":
        require_vulkan()
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps([code for _, code, _ in PAGES[page]]),
        capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "WEBNN_VK_DEVICE": device, "WEBNN_VK_CACHE": str(tmp_path / "cache")},
    )
    assert done.returncode == 0, done.stderr
    for (_, code, expected), printed in zip(
        PAGES[page], json.loads(done.stdout.splitlines()[-1]), strict=True
    ):
        if expected:
            assert printed == expected, code
