"""The user's cache of shader archives. Building an archive takes a minute of processor time, so
builds from the same sources, in other environments or other clones, share one.

A file is named by the hash of everything that determines an archive's contents. It is untrusted
input like the rest of the cache: a folder that other users own or can write to is not used, and a
damaged file counts as missing.
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
#: How many archives are kept, each for another version of the sources.
KEPT = 4

_FORMAT = 2
_ENTRIES = CacheFiles(b"WNNVKPKC", _FORMAT, largest=256 << 20)
#: The files of a package that determine the archive.
_SUFFIXES = (".py", ".j2", ".json")


def key(sources: Mapping[str, Path], made_with: Sequence[str]) -> bytes:
    """The key of an archive: a hash of all sources, in folders named as in a clone, and of what
    they are rendered and compiled with, above all the versions of compilers."""
    digest = hashlib.sha256(f"{_FORMAT} {sys.version_info[:2]}\n".encode())
    for text in made_with:
        digest.update(f"{len(text)} {text}\n".encode())
    folders = set(sources.values())
    for name, folder in sorted(sources.items()):
        if name == "examples":  # no shader is made of them, and a wheel lacks some
            continue
        for path in sorted(p for p in folder.rglob("*") if p.suffix in _SUFFIXES):
            if folder == next(parent for parent in path.parents if parent in folders):
                data = path.read_bytes()
                place = path.relative_to(folder).as_posix()
                digest.update(f"{name}/{place}\0{len(data)}\0".encode() + data)
    return digest.digest()


def folder() -> Path | None:
    """The folder of the archives; None without a cache."""
    try:
        found = environment.cache_folder()
    except (ImportError, ValueError):
        return None  # a build without platformdirs, or WEBNN_VK_CACHE=~nobody
    return None if found is None else found / FOLDER


def get(wanted: bytes) -> bytes | None:
    """The archive with this key; None where there is none, or it is damaged."""
    place = folder()
    try:
        if place is None or not belongs_to_user(place.stat()):
            return None
        path = _path(place, wanted)
        archive = _ENTRIES.read(path, wanted)
        if archive is not None:
            os.utime(path)  # the least recently used are removed first
        return archive
    except OSError:
        return None


def put(wanted: bytes, archive: bytes) -> None:
    """Keeps an archive and removes the oldest. Errors are ignored: they only mean another build."""
    place = folder()
    if place is None:
        return
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        if belongs_to_user(place.stat()):
            _ENTRIES.write(_path(place, wanted), wanted, archive)
            for path in sorted(files(place), key=lambda p: p.stat().st_mtime)[:-KEPT]:
                path.unlink(missing_ok=True)
    except OSError:
        pass


def _path(place: Path, wanted: bytes) -> Path:
    return place / f"{wanted.hex()}.pack"


def files(place: Path) -> Iterable[Path]:
    """The archives in a folder."""
    return (p for p in place.glob("*.pack") if p.is_file() and not p.is_symlink())
