"""The README's first commands on a bare machine: a fresh clone, an empty home, a new virtual
environment, and only the environment variables that any shell has. Packages that pip would download
are in a folder."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import blocks
from tests.support.paths import ROOT
from tests.system.packaging.conftest import copy_clone, quiet
from webnn_vk.support.environment import cache_folder

# The first of them waits for the installation.
pytestmark = pytest.mark.timeout(900)

README = ROOT / "README.md"
#: The block of the README with the library's installation.
(FIRST,) = [block for block in blocks(README, "sh") if block.startswith("pip install .\n")]
INSTALL, *COMMANDS = FIRST.splitlines()
SNIPPETS = blocks(README, "python")
PRINTS = {
    "webnn-vk devices": r"cpu ", "webnn-vk doctor": r"Problems +none",
    SNIPPETS[0]: r"\[\[1\. 1\.\]\n \[1\. 1\.\]\]\n", SNIPPETS[1]: r"\[0\. 0\. 0\. 1\.\]\n",
}

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, needed: Path) -> tuple[Path, Run]:
    """The folder with `clone` and `home`, and a function that runs a command there as a shell
    would."""
    folder = tmp_path_factory.mktemp("machine")
    copy_clone(folder / "clone")
    (folder / "home").mkdir()
    quiet([sys.executable, "-m", "venv", folder / "environment"])
    variables = {
        "PATH": f"{folder / 'environment' / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(folder / "home"), "LANG": "C.UTF-8", "TMPDIR": str(folder),
        "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(needed), "PIP_CONFIG_FILE": "/dev/null",
        "PIP_COMPILE": "0",  # it takes seconds, and Python does it where a module is imported
    }

    def run(command: str, place: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, cwd=folder / place,
            env={**variables, **more}, stdin=subprocess.DEVNULL,
        )

    return folder, run


@pytest.fixture(scope="module")
def installed(machine: tuple[Path, Run]) -> Run:
    """As `machine`, after the first command. Shaders that another test has compiled are reused."""
    _, run = machine
    done = run(INSTALL, "clone", WEBNN_VK_CACHE=str(cache_folder()))
    assert done.returncode == 0, done.stdout + done.stderr
    return run


def test_the_readme_begins_with_these():
    assert INSTALL == "pip install ." and COMMANDS == ["webnn-vk devices", "webnn-vk doctor"]
    assert set(COMMANDS) | set(SNIPPETS) == set(PRINTS)


@pytest.mark.parametrize("command", COMMANDS)
def test_command(installed, command):
    done = installed(command, "home")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stdout + done.stderr
    assert re.search(PRINTS[command], done.stdout), done.stdout


@pytest.mark.parametrize(("number", "place"), [(0, "clone"), (1, "clone"), (1, "home")])
def test_snippet(machine, installed, place, number):
    folder, _ = machine
    (folder / "snippet.py").write_text(SNIPPETS[number])
    # As pasted by a user: modules are looked up in the current folder first.
    done = installed('python -c "$(cat ../snippet.py)"', place)
    assert done.returncode == 0, done.stderr
    assert re.match(PRINTS[SNIPPETS[number]], done.stdout), done.stdout


@pytest.mark.parametrize("place", ["clone", "home"])
def test_module(installed, place):
    done = installed('python -c "import webnn_vk; webnn_vk.ml" && python -m webnn_vk --version',
                     place)
    assert done.returncode == 0 and done.stdout.startswith("webnn_vk 0."), done.stderr
    assert done.stderr == ""


def test_nothing_is_left_in_the_clone(machine, installed):
    """pip's build leaves nothing else in the clone, which stays usable."""
    folder, _ = machine
    tracked = {path.relative_to(ROOT).parts[0] for path in ROOT.iterdir()}
    left = {path.name for path in (folder / "clone").iterdir()} - tracked
    assert left <= {"build", "webnn_vk.egg-info"}
