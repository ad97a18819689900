"""Room in memory, asked for before what crashes or hangs where it finds none.

Between the question and the use another thread may take it: this makes such ends rare, not
impossible. With plain limits (a container's) the system ends processes instead, unasked.
"""

from __future__ import annotations

import mmap
import threading

#: What a thread needs beside its stack until it can say by itself that it has too little.
_THREAD_BYTES = 1 << 20
#: For what protobuf makes beside the bytes of a model: it crashes the process where it gets no
#: memory (7.36: it does not look at what its allocator returns).
PROTOBUF_BYTES = 4 << 20
#: A thread's stack where nothing else was asked for.
_STACK_BYTES = 8 << 20


def require(size: int) -> None:
    """MemoryError unless this many bytes are available now. Touches none of them."""
    try:
        mmap.mmap(-1, size, access=mmap.ACCESS_COPY).close()
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no room for {size} bytes: {error}") from None


def require_for_thread() -> None:
    """RuntimeError, as when the system has no more threads, where a new one would find no memory to
    begin: ``Thread.start`` waits for such a one for ever (CPython's issue 140746)."""
    try:
        require((threading.stack_size() or _STACK_BYTES) + _THREAD_BYTES)
    except MemoryError as error:
        raise RuntimeError(f"can't start new thread: {error}") from None
