"""A missing judge fails in CI if it could have been installed, and is reported elsewhere."""

from types import SimpleNamespace

import pytest

from tests.support import judges


@pytest.mark.parametrize("ci, apt", [("1", True), ("1", False), ("", True)])
def test_missing(monkeypatch, ci, apt):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(judges.shutil, "which", lambda name: "/usr/bin/apt-get" if apt else None)
    outcome = pytest.fail.Exception if ci and apt else pytest.skip.Exception
    with pytest.raises(outcome, match="MISSING JUDGE: no driver"):
        judges.missing("no driver")


def test_those_that_are_missing_are_counted():
    skipped = [
        SimpleNamespace(longrepr=("file.py", 1, f"Skipped: {judges.MISSING}: no driver")),
        SimpleNamespace(longrepr=("file.py", 2, f"Skipped: {judges.MISSING}: no driver")),
        SimpleNamespace(longrepr=("file.py", 3, "Skipped: something else")),
    ]
    assert judges.missing_ones({"skipped": skipped}) == ["2 tests skipped: no driver"]
    assert judges.missing_ones({}) == []
