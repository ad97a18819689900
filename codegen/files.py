"""Reading and writing files at untrusted paths: FIFOs, devices, folders, other users' files."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import struct
from pathlib import Path

from webnn_vk.support.dataclass import dataclass

#: Temporary shortages of a process or its disk.
_SHORTAGES = {
    errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EFBIG,
    *([errno.EDQUOT] if hasattr(errno, "EDQUOT") else []),
}


def is_shortage(error: OSError) -> bool:
    """Whether the error is a shortage of files, memory, processes or disk space."""
    return error.errno in _SHORTAGES


def no_file_can_be_opened() -> bool:
    """Whether no file descriptor is left, which the dynamic linker doesn't report."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return is_shortage(error)
    return False


def open_regular(path: str | os.PathLike[str]) -> int:
    """A descriptor of a plain file, for reading. OSError for anything else. Never waits for the
    writer of a FIFO and never moves a tape."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    flags |= getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", os.fspath(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: str | os.PathLike[str], largest: int) -> bytes:
    """The bytes of a plain file. OSError for anything else, or more than ``largest`` bytes."""
    with open(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise OSError(errno.EFBIG, f"{size} bytes, at most {largest} are read", str(path))
        # With the limit instead, Python would make a buffer of that size first.
        return file.read(size)


def write_atomically(path: Path, data: bytes, mode: int) -> None:
    """Write the whole file or nothing: a temporary file in the same folder is renamed."""
    import tempfile

    handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def identity_of(path: str) -> str:
    """Name, size and time of the file: changes with the compiler, and needs only one stat."""
    try:
        real = os.path.realpath(path)
        about = os.stat(real)
    except OSError:
        return path
    return f"{os.path.basename(real)} {about.st_size} {about.st_mtime_ns}"


def belongs_to_user(about: os.stat_result) -> bool:
    """Whether a folder belongs to this user and no other user may write to it."""
    return not hasattr(os, "geteuid") or (
        about.st_uid == os.geteuid() and not about.st_mode & 0o022
    )


# magic, version, bytes of data, key, SHA-256 of the data
_HEADER = struct.Struct("<8sII32s32s")


@dataclass(frozen=True)
class CacheFiles:
    """Files of a cache, each with a header that identifies its kind and key and protects its data.
    """

    magic: bytes
    version: int
    largest: int

    def write(self, path: Path, key: bytes, data: bytes) -> None:
        """Raises OSError."""
        digest = hashlib.sha256(data).digest()
        header = _HEADER.pack(self.magic, self.version, len(data), key, digest)
        write_atomically(path, header + data, mode=0o600)

    def read(self, path: Path, key: bytes) -> bytes | None:
        """The data; None where the file can't be read, is damaged or has another key."""
        try:
            text = read_regular(path, self.largest)
        except OSError:
            return None
        data = text[_HEADER.size:]
        digest = hashlib.sha256(data).digest()
        expected = _HEADER.pack(self.magic, self.version, len(data), key, digest)
        return data if len(key) == 32 and text[:_HEADER.size] == expected else None
