"""Calls that create or destroy Vulkan's instances and devices, and messages during a call.

The Vulkan loader holds its own lock during such calls. Messages of layers and drivers during them
call Python, which needs the GIL. Kompute holds the GIL in all its calls, so without a lock above
both, two calls could deadlock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from webnn_vk.support import forks

#: Held around a call that makes or destroys an instance or a device, or lists devices.
alone = threading.RLock()
_amid = threading.local()

forks.renew(globals(), alone=threading.RLock, _amid=threading.local)


@contextmanager
def message() -> Iterator[None]:
    """Around the handling of a message, while its call is still running on this thread."""
    _amid.message = True
    try:
        yield
    finally:
        _amid.message = False


def from_destructor(close: Callable[[], Any]) -> None:
    """``close()``; on another thread if the garbage collector runs during a message, whose call
    may hold locks that ``close`` needs."""
    if getattr(_amid, "message", False):
        threading.Thread(target=close, name="webnn_vk-close", daemon=True).start()
    else:
        close()
