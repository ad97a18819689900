"""The user's cache of whole packs: a build from the same sources, which takes a minute of a
processor, is done once. Another extra, another environment, and a clone beside it find it there.

A file is named by the hash of all that decides what is in a pack. It is untrusted input like the
rest of the cache: a foreign or world-writable folder is not used, a bad file is a miss.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from webnn_vk.codegen.files import read_regular, write_atomically
from webnn_vk.support import environment

#: The name of the folder among the user's caches.
FOLDER = "packs"
#: How many packs are kept: as many versions of the sources.
KEPT = 4

_MAGIC, _FORMAT = b"WNNVKPKC", 1
# magic, format, key, bytes of the pack, its SHA-256
_HEADER = struct.Struct("<8sI32sQ32s")
_LARGEST = 256 << 20
#: What decides it, of the files of a package.
_SUFFIXES = (".py", ".j2", ".json")


def key(sources: Mapping[str, Path], made_with: Sequence[str]) -> bytes:
    """Stands for a pack: all sources, in folders with the names that they have in a clone, and what
    else they are rendered and compiled with, compilers' versions above all."""
    digest = hashlib.sha256(f"{_FORMAT} {sys.version_info[:2]}\n".encode())
    for text in made_with:
        digest.update(f"{len(text)} {text}\n".encode())
    folders = set(sources.values())
    for name, folder in sorted(sources.items()):
        for path in sorted(p for p in folder.rglob("*") if p.suffix in _SUFFIXES):
            if folder == next(parent for parent in path.parents if parent in folders):
                data = path.read_bytes()
                place = path.relative_to(folder).as_posix()
                digest.update(f"{name}/{place}\0{len(data)}\0".encode() + data)
    return digest.digest()


def folder() -> Path | None:
    """Where packs are kept; None without a cache."""
    try:
        found = environment.cache_folder()
    except (ImportError, ValueError):
        return None  # of a build without platformdirs, or WEBNN_VK_CACHE=~nobody
    return None if found is None else found / FOLDER


def _usable(place: Path) -> bool:
    about = place.stat()
    return not hasattr(os, "geteuid") or (
        about.st_uid == os.geteuid() and not about.st_mode & 0o022
    )


def get(wanted: bytes) -> bytes | None:
    """The pack of a key; None where there is none, or one that was damaged."""
    place = folder()
    try:
        if place is None or not _usable(place):
            return None
        path = _path(place, wanted)
        data = read_regular(path, _LARGEST)
        if len(data) < _HEADER.size:
            return None
        magic, version, owner, size, digest = _HEADER.unpack_from(data)
        pack = data[_HEADER.size:]
        if (magic, version, owner, size) != (_MAGIC, _FORMAT, wanted, len(pack)):
            return None
        if hashlib.sha256(pack).digest() != digest:
            return None
        os.utime(path)  # it was of use: others go first
        return pack
    except OSError:
        return None


def put(wanted: bytes, pack: bytes) -> None:
    """Keeps a pack, and of the others the latest; whatever fails only means another build."""
    place = folder()
    if place is None:
        return
    header = _HEADER.pack(_MAGIC, _FORMAT, wanted, len(pack), hashlib.sha256(pack).digest())
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        if _usable(place):
            write_atomically(_path(place, wanted), header + pack, mode=0o600)
            for path in sorted(files(place), key=lambda p: p.stat().st_mtime)[:-KEPT]:
                path.unlink(missing_ok=True)
    except OSError:
        pass


def _path(place: Path, wanted: bytes) -> Path:
    return place / f"{wanted.hex()}.pack"


def files(place: Path) -> Iterable[Path]:
    """The packs in a folder."""
    return (p for p in place.glob("*.pack") if p.is_file() and not p.is_symlink())
