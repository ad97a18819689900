"""The progress bar: drawn on a terminal, silent elsewhere, gone at the end."""

import io

from webnn_vk.tools.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_silent_without_a_terminal():
    stream = io.StringIO()
    with Progress(2, stream) as bar:
        bar.step("build")
    assert stream.getvalue() == "" and bar.done == 1


def test_fills_up_and_disappears():
    stream = Terminal()
    with Progress(2, stream) as bar:
        bar.step("build")
        assert stream.getvalue().count("█") == Progress.WIDTH // 2
        bar.step("encode")
        bar.step("one too many")
    assert "build" in stream.getvalue() and "encode" in stream.getvalue()
    assert bar.done == 2
    assert stream.getvalue().endswith("\r")
    last = stream.getvalue().split("\r")[-2]
    assert last.strip() == ""
