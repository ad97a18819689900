"""The signal handlers that a test run sets for itself, whatever started it."""

import signal
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

INTERRUPTED = "tests/unit/tools/test_cli.py::TestOutside::test_ctrl_c"


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("processes", ["0", "1"])
def test_interrupts_work_where_they_were_ignored_at_the_start(processes):
    """As with `nohup scripts/test`, or `scripts/test &` in a script: Python keeps the signals
    ignored."""
    done = subprocess.run(
        [sys.executable, "-c", "import os, signal, sys\n"
         "signal.signal(signal.SIGINT, signal.SIG_IGN)\nos.execv(sys.executable, sys.argv[1:])",
         sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", processes,
         INTERRUPTED],
        capture_output=True, text=True, cwd=ROOT, timeout=250,
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
    assert signal.getsignal(signal.SIGINT) != signal.SIG_IGN
