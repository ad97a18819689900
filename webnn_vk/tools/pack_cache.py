"""The user's cache of whole packs: a build from the same sources, which takes a minute of a
processor, is done once. Another extra, another environment, and a clone beside it find it there.

A file is named by the hash of all that decides what is in a pack. It is untrusted input like the
rest of the cache: a foreign or world-writable folder is not used, a bad file is a miss.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from webnn_vk.codegen.files import CacheFiles, belongs_to_user
from webnn_vk.support import environment

#: The name of the folder among the user's caches.
FOLDER = "packs"
#: How many packs are kept: as many versions of the sources.
KEPT = 4

_FORMAT = 2
_ENTRIES = CacheFiles(b"WNNVKPKC", _FORMAT, largest=256 << 20)
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


def get(wanted: bytes) -> bytes | None:
    """The pack of a key; None where there is none, or one that was damaged."""
    place = folder()
    try:
        if place is None or not belongs_to_user(place.stat()):
            return None
        path = _path(place, wanted)
        pack = _ENTRIES.read(path, wanted)
        if pack is not None:
            os.utime(path)  # it was of use: others go first
        return pack
    except OSError:
        return None


def put(wanted: bytes, pack: bytes) -> None:
    """Keeps a pack, and of the others the latest; whatever fails only means another build."""
    place = folder()
    if place is None:
        return
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        if belongs_to_user(place.stat()):
            _ENTRIES.write(_path(place, wanted), wanted, pack)
            for path in sorted(files(place), key=lambda p: p.stat().st_mtime)[:-KEPT]:
                path.unlink(missing_ok=True)
    except OSError:
        pass


def _path(place: Path, wanted: bytes) -> Path:
    return place / f"{wanted.hex()}.pack"


def files(place: Path) -> Iterable[Path]:
    """The packs in a folder."""
    return (p for p in place.glob("*.pack") if p.is_file() and not p.is_symlink())
