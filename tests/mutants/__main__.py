"""Draws mutants, and runs the tests on each until the first failure.

    python -m tests.mutants --seed 2201 --count 30             lists them
    python -m tests.mutants --seed 2201 --count 30 --run       scripts/test on each of them
    python -m tests.mutants --seed 2201 --only 3,17 --run --all     the whole fixed suite on two
    python -m tests.mutants --seed 2201 --only 3 --run tests/device/compiler/kernels/test_pad.py
                                                               the tests of a file, as far as
                                                               scripts/test runs them

Each mutant has a clone of the last commit of its own, below a temporary folder, and this
interpreter. Which are drawn depends on the count too. A line for each: killed, with the test that
failed first, or SURVIVED.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.drawing import Mutant, draw
from tests.support.paths import ROOT

_FAILED = re.compile(r"^(?:FAILED|ERROR)(?: so far \(\w+\):)? (\S+)", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--only", help="numbers of the mutants, with commas")
    parser.add_argument("--run", action="store_true", help="run the tests")
    parser.add_argument("--all", action="store_true", help="the whole fixed suite")
    parser.add_argument("tests", nargs="*", help="files or folders of tests (default: all)")
    given = parser.parse_args()
    drawn = dict(enumerate(draw(given.seed, given.count), 1))
    only = [int(number) for number in given.only.split(",")] if given.only else list(drawn)
    if unknown := sorted(set(only) - set(drawn)):
        parser.error(f"no mutant {unknown[0]}: {len(drawn)} are drawn (--count)")
    survived = 0
    for number in only:
        print(f"{number:2}  {drawn[number]}", flush=True)
        if given.run:
            begun = time.monotonic()
            failed = run(drawn[number], given.all, given.tests)
            survived += failed is None
            outcome = f"killed by {failed}" if failed else "SURVIVED"
            print(f"    {outcome}, {time.monotonic() - begun:.0f} s", flush=True)
    if given.run:
        print(f"{len(only) - survived} of {len(only)} killed")


def run(mutant: Mutant, whole: bool, tests: Sequence[str] = ()) -> str | None:
    """The first test that fails on a mutant, of those given or of all; or None."""
    with tempfile.TemporaryDirectory(prefix="webnn_vk-mutant-") as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        (Path(folder) / "shared").symlink_to(ROOT.parent / "shared")
        mutant.apply(clone)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "--dist", "loadfile",
                   "-p", "no:cacheprovider"]
        command += [*([] if whole else ["-m", "not full"]), *tests]
        done = subprocess.run(command, cwd=clone, capture_output=True, text=True)
        if done.returncode == 0:
            return None
        failed = _FAILED.search(done.stdout)
        return failed[1] if failed else f"pytest's exit status {done.returncode}"


if __name__ == "__main__":
    main()
