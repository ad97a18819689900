"""Memory in pages of its own, for large arrays that go one by one while others come."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

import numpy as np

#: Arrays of so many bytes have pages of their own.
PAGED_BYTES = 1 << 16


def own_pages(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of zeros. The memory of a large one goes back to the system when it goes: what the C
    library frees may stay in its heap. MemoryError where there is none."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if size < PAGED_BYTES:
        return np.zeros(shape, dtype)
    try:
        if hasattr(mmap, "MAP_ANONYMOUS"):
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # not shared with forked children
            pages = mmap.mmap(-1, size, flags=flags)
        else:
            pages = mmap.mmap(-1, size)
    except OSError as error:
        if error.errno not in (errno.ENOMEM, errno.EAGAIN):
            raise
        raise MemoryError(f"no memory for an array of {size} bytes") from error
    return np.frombuffer(pages, dtype).reshape(shape)


def own_copy(given: np.ndarray) -> np.ndarray:
    """A copy, contiguous and in pages of its own."""
    copy = own_pages(given.shape, given.dtype)
    copy[...] = given
    return copy


def mapped_file(path: Path) -> np.ndarray:
    """A file's bytes, read-only, mapped into memory."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    return np.frombuffer(mapped, np.uint8)
