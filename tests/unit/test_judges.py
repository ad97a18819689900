"""A missing judge fails in CI where it could have been installed, and is loud elsewhere."""

from types import SimpleNamespace

import pytest

from tests.support import judges


class Terminal:
    """What `summarise` uses of pytest's terminal reporter."""

    def __init__(self, **stats):
        self.stats = stats
        self.lines = []

    def section(self, title, **_):
        self.lines.append(f"= {title}")

    def write_line(self, line):
        self.lines.append(line)


@pytest.mark.parametrize("ci, apt", [("1", True), ("1", False), ("", True)])
def test_missing(monkeypatch, ci, apt):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(judges.shutil, "which", lambda name: "/usr/bin/apt-get" if apt else None)
    outcome = pytest.fail.Exception if ci and apt else pytest.skip.Exception
    with pytest.raises(outcome, match="MISSING JUDGE: no driver"):
        judges.missing("no driver")


def test_summary():
    properties = []
    judges.say(lambda name, value: properties.append((name, value)), ["all compiled"])
    judged = SimpleNamespace(user_properties=[*properties, ("other", "thing")])
    skipped = [
        SimpleNamespace(longrepr=("file.py", 1, f"Skipped: {judges.MISSING}: no driver")),
        SimpleNamespace(longrepr=("file.py", 2, f"Skipped: {judges.MISSING}: no driver")),
        SimpleNamespace(longrepr=("file.py", 3, "Skipped: something else")),
    ]
    terminal = Terminal(passed=[judged], skipped=skipped)
    judges.summarise(terminal)
    assert terminal.lines == [
        "= judges", "all compiled", "= MISSING JUDGE", "2 tests skipped: no driver"
    ]
    quiet = Terminal()
    judges.summarise(quiet)
    assert quiet.lines == []
