"""The npm package's own tests, which Node runs: js/test."""

from __future__ import annotations

import json
import re

import pytest

from tests.support import commands, judges, node
from tests.support.paths import ROOT
from webnn_vk import __version__

#: The number of tests in each file.
FILES = {"browser": 2, "interfaces": 11, "lifetimes": 9, "server": 6}


def run_tests(name: str, folder, **environment: str) -> str:
    done = node.run("--test", f"test/{name}.test.js", folder=folder, **environment)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


def test_files_are_known():
    found = {path.name.removesuffix(".test.js") for path in (node.JS / "test").glob("*.test.js")}
    assert found == {*FILES, "onnxruntime-web"}


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("name", FILES)
def test_file(name, tmp_path):
    output = run_tests(name, tmp_path)
    passed, skipped = (
        int(found[1]) if (found := re.search(rf"^. {what} (\d+)$", output, re.MULTILINE)) else 0
        for what in ("pass", "skipped")
    )
    if name == "browser" and skipped == 1 and passed == FILES[name] - 1:
        judges.skip("a browser: chromium is not installed")
    assert passed == FILES[name], output[-3000:]
    assert list(tmp_path.glob("webnn-vk-*")) == []


@pytest.mark.explore
@pytest.mark.timeout(1800)
def test_full_lengths(tmp_path):
    run_tests("lifetimes", tmp_path, LONG="1", timeout=1700)


def test_the_page_computes(tmp_path):
    """The first program of docs/javascript.md prints what its comment says."""
    program = commands.blocks(ROOT / "docs" / "javascript.md", "js")[0]
    done = node.run(
        "--input-type=module", "-e", program, folder=tmp_path, WEBNN_VK_DEVICE="cpu"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Float32Array(3) [ 2, 3, 4 ]\n"


def test_versions_agree():
    package = json.loads((node.JS / "package.json").read_text())
    assert package["version"] == __version__
    assert "dependencies" not in package


def test_doctor(tmp_path):
    done = node.run("bin/webnn-vk.js", "doctor", folder=tmp_path, WEBNN_VK_DEVICE="cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 + 1 = 2" in done.stdout and f"webnn_vk {__version__}" in done.stdout
    missing = node.run(
        "bin/webnn-vk.js", "doctor", folder=tmp_path, WEBNN_VK_PYTHON="/nowhere/python3"
    )
    assert missing.returncode == 1 and "WEBNN_VK_PYTHON" in missing.stdout
    wrong = node.run("bin/webnn-vk.js", "dance", folder=tmp_path)
    assert wrong.returncode == 2 and "doctor" in wrong.stderr
