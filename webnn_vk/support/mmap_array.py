"""Arrays in memory pages of their own, which can be freed one by one, and in mapped files."""

from __future__ import annotations

import errno
import mmap
import os
import stat
from pathlib import Path
from typing import BinaryIO

import numpy as np

#: Arrays of at least this many bytes have pages of their own.
PAGED_BYTES = 1 << 16


def own_pages(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of zeros. The memory of a large one returns to the system when it is freed; memory
    that the C library frees may stay in its heap. MemoryError if there is none."""
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


class _FileMap(mmap.mmap):
    """A read-only map of a file. Its pages can be dropped at any time, and are read again when
    needed."""


def mapped_file(path: Path) -> np.ndarray:
    """A file's bytes, read-only, mapped into memory."""
    with path.open("rb") as file:
        return mapped(file)


def mapped_real_file(path: Path) -> np.ndarray:
    """``mapped_file`` for a path without links, as ``resolve`` returns it. OSError if a part of it
    has become a link, and for what is no regular file: what is opened is checked."""
    with open(_open_real(path), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        return mapped(file)


def _open_real(path: Path) -> int:
    # Not waiting: a file may have become a pipe.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if os.open not in os.supports_dir_fd:
        return os.open(path, flags | getattr(os, "O_BINARY", 0))
    folder = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
    at = os.open(path.anchor, folder)
    try:
        for name in path.parts[1:-1]:
            inner = os.open(name, folder, dir_fd=at)
            os.close(at)
            at = inner
        return os.open(path.name, flags, dir_fd=at)
    finally:
        os.close(at)


def mapped(file: BinaryIO) -> np.ndarray:
    """The bytes of an open file, read-only, mapped into memory. The file may be closed then."""
    size = os.fstat(file.fileno()).st_size
    return np.frombuffer(
        _FileMap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b"", np.uint8
    )


def owner_of(array: np.ndarray) -> object:
    """The object that owns an array's memory: a map, a buffer, or None where NumPy does."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base.obj if isinstance(base, memoryview) else base


def file_range(array: np.ndarray) -> str | None:
    """The identity of the range of a file that a read-only ``np.memmap`` is: the file, its age and
    size, and where the range begins; None for other arrays, and where the file is gone."""
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or not isinstance(root.base, mmap.mmap):
        return None
    if root.mode != "r" or root.filename is None or not array.flags.c_contiguous:
        return None
    try:
        file = os.stat(root.filename)
    except OSError:
        return None
    start = root.offset + _address(array) - _address(root)
    return f"{file.st_dev} {file.st_ino} {file.st_mtime_ns} {file.st_size} {start}"


def drop_pages(array: np.ndarray) -> None:
    """Take the pages of an array of a mapped file out of this process's resident memory, as its
    bytes won't be read soon. The array stays valid; its neighbours' bytes in the same pages too.
    Other arrays are left alone."""
    pages = owner_of(array)
    if not isinstance(pages, _FileMap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    if not array.size or not array.flags.forc:
        return
    start = _address(array) - _address(np.frombuffer(pages, np.uint8))
    page = start // mmap.PAGESIZE * mmap.PAGESIZE
    pages.madvise(mmap.MADV_DONTNEED, page, start + array.nbytes - page)


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
