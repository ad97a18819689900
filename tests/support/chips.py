"""The compilers of chips that are not in the machine. CI installs them while tests run already."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable

from webnn_vk.codegen.isa import chips


def missing(why: Callable[[], str | None]) -> str | None:
    """The result of ``why`` as soon as it is None, or scripts/install-chips has ended."""
    while why() and _installing():
        time.sleep(1)
    return why()


def _installing() -> bool:
    try:
        lock = (chips.folder() / "lock").open("rb")
    except OSError:
        return False
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
