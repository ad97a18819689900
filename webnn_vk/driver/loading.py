"""Calls that make or destroy Vulkan's instances and devices, and messages that come amid a call.

The Vulkan loader makes such calls under a lock of its own, and what layers and drivers say amid
them goes to Python, which needs the interpreter's lock. Kompute holds that one in all its calls:
without a lock above both, two calls wait for each other for ever.
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
    """Around what is done with a message: the call that it came from goes on on this thread."""
    _amid.message = True
    try:
        yield
    finally:
        _amid.message = False


def from_destructor(close: Callable[[], Any]) -> None:
    """``close()``, on another thread where the collector runs amid a message: below may be locks
    that the call which it came from holds."""
    if getattr(_amid, "message", False):
        threading.Thread(target=close, name="webnn_vk-close", daemon=True).start()
    else:
        close()
