"""Runs the fuzzer for some seconds, with --explore until it has made a million calls."""

import re
import subprocess
import sys

import pytest

from tests.support import selection
from tests.support.paths import ROOT


@pytest.mark.parametrize(
    ("calls", "limits"),
    [(8_000, ("--patience", "200")),
     pytest.param(10**6, ("--seconds", "5400", "--patience", "60"), marks=pytest.mark.explore)],
    ids=["8,000 calls", "a million calls"],
)
def test_every_call_is_answered_as_documented(calls, limits, vulkan):
    seed = str(selection.chance("fuzz").randrange(10**6))
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--seed", seed, "--calls", str(calls), *limits],
        capture_output=True, text=True, cwd=ROOT,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every call answered as documented" in done.stdout
    counts = {kind: int(count) for kind, count in re.findall(
        r"(\w+) (\d+)", re.search(r"outcomes: (.*)", done.stdout)[1])}
    # Some calls are refused and some are accepted, and both devices were used.
    assert counts["accepted"] > 100 and counts["TypeError"] > 100
    made, where = re.search(r": (\d+) calls .*; (.*)", done.stdout).groups()
    assert "cpu" in where and "vulkan" in where
    assert int(made) >= calls


def test_a_failure_is_found_and_made_small(tmp_path):
    """With a planted defect: descriptors of rank 4 make ``create_tensor`` raise."""
    code = (
        "import sys, webnn_vk as webnn\n"
        "from tests.fuzz.__main__ import main\n"
        "right = webnn.MLContext.create_tensor\n"
        "def wrong(self, descriptor):\n"
        "    if len(dict(descriptor).get('shape', ())) == 4: raise KeyError('planted')\n"
        "    return right(self, descriptor)\n"
        "webnn.MLContext.create_tensor = wrong\n"
        "sys.argv[1:] = ['--device', 'cpu', '--seed', '1', '--uses', '1', '--calls', '10000',\n"
        "                '--patience', '200']\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "create_tensor raised KeyError('planted'), not its promise" in done.stdout + done.stderr
    fewest = done.stdout.split("the fewest calls that show it")[1]
    assert re.findall(r"^  \d+: (\w+)\(", fewest, re.MULTILINE) == ["create_tensor"]
    again = re.search(r"again: python (-m tests.fuzz --seed 1 --replay \S+)", fewest)[1]
    # Without the defect the same calls succeed.
    assert subprocess.run([sys.executable, *again.split(), "--uses", "1"], cwd=ROOT,
                          capture_output=True).returncode == 0
