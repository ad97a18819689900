"""CI repeats what may fail by chance, and nothing else."""

import re
import sys
from types import SimpleNamespace

import pytest

from tests.support import repeats
from tests.support.paths import ROOT


def failed(nodeid, crash=False):
    if crash:
        text = f"worker 'gw0' crashed while running {nodeid!r}"
        return SimpleNamespace(nodeid=nodeid, when="???", longrepr=text)
    return SimpleNamespace(nodeid=nodeid, when="call", longrepr="assert 1 == 2")


def test_the_list_is_short_and_names_tests():
    names = repeats.listed()
    assert len(names) <= repeats.MOST
    for line in repeats.FLAKY.read_text(encoding="utf-8").splitlines():
        assert line[0] == "#" or re.fullmatch(r"\d{4}-\d\d-\d\d \d+/\d+ \S+::\S+ .+", line), line
    for name in names:
        assert (ROOT / name.split("::")[0]).is_file(), name


@pytest.mark.parametrize(("reports", "expected"), [
    ([failed("t.py::listed")], ["t.py::listed"]),
    ([failed("t.py::a", crash=True), failed("t.py::listed")], ["t.py::a", "t.py::listed"]),
    ([failed("t.py::a", crash=True), failed("t.py::b")], []),
    ([failed("t.py::a")], []),
    ([failed(f"t.py::{i}", crash=True) for i in range(5)], [f"t.py::{i}" for i in range(5)]),
    ([failed(f"t.py::{i}", crash=True) for i in range(6)], []),
    ([], []),
])
def test_what_may_be_repeated(reports, expected):
    stats = {"failed": reports[::2], "error": reports[1::2], "passed": [failed("t.py::c")]}
    assert sorted(repeats.repeatable(stats, ["t.py::listed"])) == expected


PASSES_SECOND = """
import os, pathlib, signal

def test_crashes_once(request):
    mark = pathlib.Path(__file__).with_name("ran")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)

def test_crashes_always():
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("name", "passes"), [("once", True), ("always", False)])
def test_a_process_that_crashed(name, passes, tmp_path, monkeypatch):
    """Its test runs once more, in a process of its own; the run passes if that does."""
    test = tmp_path / "test_x.py"
    test.write_text(PASSES_SECOND)
    nodeid = f"{test}::test_crashes_{name}"
    stats = {"failed": [failed(nodeid, crash=True)]}
    (tmp_path / "ran").touch()
    config = SimpleNamespace(option=SimpleNamespace(numprocesses=2))
    monkeypatch.setenv("CI", "1")
    lines, passed = repeats.repeat(config, stats)
    outcome = "passed" if passes else "failed again"
    assert passed == passes and lines[0] == f"REPEATED, {outcome}: {nodeid}"
    monkeypatch.delenv("CI")
    assert repeats.repeat(config, stats) == ([], False)


def test_a_failure_is_no_crash(monkeypatch):
    monkeypatch.setenv("CI", "1")
    config = SimpleNamespace(option=SimpleNamespace(numprocesses=2))
    monkeypatch.setattr(sys, "executable", "/nonexistent")  # nothing runs
    assert repeats.repeat(config, {"failed": [failed("t.py::a")]}) == ([], False)
