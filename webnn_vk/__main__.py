"""The command `webnn-vk`, and `python -m webnn_vk`: Ctrl-C from the first import on."""

from __future__ import annotations

import signal
import sys
from types import FrameType

#: As `tools.cli.INTERRUPTED`, which is not loaded yet.
_INTERRUPTED = 130


def main() -> int:
    """Run one command; the exit status."""
    interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    # Not where it is ignored, as in the background of a script.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        from .tools.cli import main as run

        return run()
    except BaseException as error:
        # Modules that are interrupted while they are loaded may raise something else: extensions
        # an ImportError, libraries what they make of that.
        if not interrupted or isinstance(error, SystemExit):
            raise
    print("webnn-vk: interrupted", file=sys.stderr)
    return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
