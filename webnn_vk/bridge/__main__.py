"""``python -m webnn_vk.bridge``: serves the process that started it.

A folder of its own, which only the user may enter, holds two FIFOs, ``requests`` and ``replies``.
Its path is the first line on standard output; then, one byte each time that a reply waits. Standard
input says when the client is gone. When both sides have the FIFOs open, the folder goes: nothing is
left however the processes end.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from webnn_vk.support import packages


def main() -> int:
    # Ctrl-C reaches the client's whole group. The client decides; the bridge ends with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wake = os.dup(1)
    os.dup2(2, 1)
    try:
        packages.require("the bridge needs", "bridge")
    except packages.MissingPackages as error:
        print(error, file=sys.stderr)
        return 1
    # While there is a folder to remove, the client's SIGTERM ends the bridge by an exception.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix="webnn-vk-"))
    try:
        opened = _open(folder, wake)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if opened is None:
        return 0
    return _serve(*opened, wake)


def _open(folder: Path, wake: int) -> tuple[int, int] | None:
    """The requests' and replies' descriptors; None when the client ended before it opened both."""
    for name in ("requests", "replies"):
        os.mkfifo(folder / name, 0o600)
    requests = os.open(folder / "requests", os.O_RDONLY | os.O_NONBLOCK)
    with suppress(BrokenPipeError):
        os.write(wake, f"{folder}\n".encode())
    # The client opens both FIFOs, then writes its first frame.
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    poll.register(0, select.POLLIN)
    if not any(fd == requests and state & select.POLLIN for fd, state in poll.poll()):
        return None
    os.set_blocking(requests, True)
    os.set_blocking(wake, False)
    with suppress(OSError):  # a small pipe costs bandwidth, nothing else
        import fcntl

        fcntl.fcntl(requests, fcntl.F_SETPIPE_SZ, 2**20)
    replies = os.open(folder / "replies", os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(replies, True)
    with suppress(OSError):
        fcntl.fcntl(replies, fcntl.F_SETPIPE_SZ, 2**20)
    return requests, replies


def _serve(requests: int, replies: int, wake: int) -> int:
    from .frames import DamagedFrame, Frame, Kind, RawMemory, read_frame, write_frame
    from .session import Session, VersionMismatch, error_reply

    def ring() -> None:
        # A full pipe wakes the client, too; without a client nobody needs to wake.
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(wake, b"\0")

    session = Session(ring)
    memory = RawMemory()  # methods copy what they keep of it
    status = 0
    try:
        while (frame := read_frame(requests, memory)) is not None:
            for reply in session.handle(frame):
                try:
                    write_frame(replies, reply)
                except MemoryError as error:  # nothing was written
                    write_frame(replies, error_reply(reply.request, error))
            if frame.kind == Kind.HELLO:
                ring()
    except (DamagedFrame, VersionMismatch) as error:
        status = 1
        print(f"webnn_vk.bridge: {error}", file=sys.stderr)
        with suppress(OSError):
            write_frame(replies, Frame(Kind.ERROR, 0, ["OperationError", str(error)]))
            ring()
    except BrokenPipeError:
        pass  # the client is gone
    session.close()
    sys.stderr.flush()
    # A build that is under way would keep the process; nobody waits for its graph.
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
