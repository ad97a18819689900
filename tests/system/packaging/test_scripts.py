"""scripts/setup.sh installs missing packages, or names them and goes on."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT

USE = """
source "$1/scripts/setup.sh"
missing() { return 1; }
there() { return 0; }
need missing some-package "does something"
need there other-package "is there already"
install_packages
echo "went on"
"""


@pytest.fixture
def programs(tmp_path):
    """A folder for PATH with the few programs that the functions use, and no apt-get."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "env", "dirname", "mktemp", "rm", "tail", "cat"):
        (folder / name).symlink_to(shutil.which(name))
    return folder


def add(programs, name, text):
    path = programs / name
    path.write_text(f"#!{shutil.which('bash')}\n{text}\n")
    path.chmod(0o755)


def run(programs, *before):
    # The checkout may be unreadable for another user: only the script is needed.
    root = programs.parent / "root"
    (root / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "setup.sh", root / "scripts")
    os.chmod(programs.parent, 0o755)
    return subprocess.run(
        [*before, shutil.which("bash"), "-c", USE, "bash", str(root)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={"PATH": str(programs), "TMPDIR": "/tmp"},
        cwd="/",
    )


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@needs_root
def test_installs_what_is_missing_and_says_why(programs):
    add(programs, "apt-get", f'echo "$DEBIAN_FRONTEND $*" >> {programs}/calls')
    done = run(programs)
    assert done.returncode == 0 and done.stdout == "went on\n"
    assert "Installing with apt-get:\n  some-package: does something\n" in done.stderr
    assert "other-package" not in done.stderr
    assert (programs / "calls").read_text().splitlines() == [
        " update -qq",
        "noninteractive install -y -qq --no-install-recommends some-package",
    ]


@needs_root
def test_goes_on_when_apt_fails(programs):
    add(programs, "apt-get", "echo 'E: no such package'; exit 100")
    done = run(programs)
    assert done.stdout == "went on\n"
    assert "E: no such package" in done.stderr
    assert "apt-get failed; going on without: some-package" in done.stderr


def test_without_apt(programs):
    done = run(programs)
    assert done.stdout == "went on\n"
    assert "there is no apt here" in done.stderr
    assert "  some-package: does something\nGoing on with what is there.\n" in done.stderr


def test_without_root_or_sudo(programs):
    add(programs, "apt-get", f"touch {programs}/calls")
    before = [shutil.which("setpriv"), "--reuid=65534", "--"] if os.geteuid() == 0 else []
    if before and before[0] is None:
        pytest.skip("no setpriv to leave root with")
    for folder in programs.parents:
        if folder == Path(tempfile.gettempdir()):
            break
        folder.chmod(0o755)
    done = run(programs, *before)
    assert done.stdout == "went on\n", done.stderr
    assert "installing them takes root (run: apt-get install some-package)" in done.stderr
    assert not (programs / "calls").exists()
