"""The progress bar: drawn on a terminal, silent elsewhere, removed at the end."""

import io
import sys

from webnn_vk.tools.output import working


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_silent_without_a_terminal(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with working("build", 2) as bar:
        bar.step("build")
        assert bar._progress.tasks[0].completed == 1
    assert stream.getvalue() == ""


def test_fills_up_and_disappears(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with working("load", 2) as bar:
        bar.step("build")
        bar._progress.refresh()
        # Half of the line has the colour of finished work.
        done, left = stream.getvalue().rsplit("build ", 1)[1].split("╺")
        assert done.count("━") == 20 and left.count("━") == 19
        bar.step("encode")
        bar._progress.refresh()
        bar.step("one too many")
        assert bar._progress.tasks[0].finished
    shown = stream.getvalue()
    assert "build" in shown and "encode" in shown and "one too many" in shown
    # One line up, erased, and nothing after it.
    assert shown.endswith("\x1b[1A\x1b[2K")
