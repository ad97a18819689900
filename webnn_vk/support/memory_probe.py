"""Checks for free memory before calls that crash or hang without it.

Another thread may take the memory between check and use, so such crashes become rare, not
impossible. Under a container's limit the system kills the process instead.
"""

from __future__ import annotations

import mmap
import threading

#: Bytes that a thread needs beside its stack until it can raise MemoryError itself.
_THREAD_BYTES = 1 << 20
#: Bytes for protobuf beside a model's own: it crashes the process without memory (7.36 doesn't
#: check the result of its allocator).
PROTOBUF_BYTES = 4 << 20
#: The default size of a thread's stack.
_STACK_BYTES = 8 << 20


def require(size: int) -> None:
    """MemoryError unless this many bytes are available now. Touches none of them."""
    try:
        mmap.mmap(-1, size, access=mmap.ACCESS_COPY).close()
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no room for {size} bytes: {error}") from None


def require_for_thread() -> None:
    """RuntimeError, as if the system had no more threads, if a new thread would lack memory to
    start: ``Thread.start`` would wait for it for ever (CPython's issue 140746)."""
    try:
        require((threading.stack_size() or _STACK_BYTES) + _THREAD_BYTES)
    except MemoryError as error:
        raise RuntimeError(f"can't start new thread: {error}") from None
