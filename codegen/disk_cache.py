"""The user's cache of SPIR-V modules: files in a folder that belongs to the user alone.

The name of a file has the module's address and the identity of the compiler that made it. Empty
files say which self-tests of modules passed on the user's devices. Files are
untrusted input: a folder that other users own or can write to is not used, and a bad file counts as
missing and is replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import warnings
from pathlib import Path
from typing import Any

from webnn_vk.support import environment

from . import spirv, spirv_check
from .files import CacheFiles, belongs_to_user, is_shortage

#: The version of the addresses of modules, and of the files.
FORMAT = 1
_ENTRIES = CacheFiles(b"WNNVKSPV", FORMAT, largest=64 << 20)
#: How the names of files for self-tests that passed end.
PASSED = ".passed"
_PASSED = CacheFiles(b"WNNVTEST", FORMAT, largest=1024)


class DiskCache:
    """The user's cache folder. Every failure of the file system counts as a miss."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._folder = None if folder is None else Path(folder) / "spirv"
        self._usable: bool | None = None if folder is not None else False

    def _ready(self, create: bool) -> bool:
        if self._usable is None:
            assert self._folder is not None
            try:
                if create:
                    self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    self._folder.mkdir(mode=0o700, exist_ok=True)
                about = self._folder.stat()
            except FileNotFoundError:
                return False
            except OSError:
                self._usable = False
                return False
            # A user who can write here chooses what runs on the GPU.
            self._usable = belongs_to_user(about)
            if not self._usable:
                warnings.warn(
                    f"the shader cache {self._folder} is not used: it belongs to another user or "
                    "others may write to it", RuntimeWarning, stacklevel=6,
                )
        return self._usable

    def check(self) -> bool | None:
        """Whether entries can be read; None where there are none yet."""
        return self._ready(create=False) or self._usable

    def _path(self, place: bytes, identity: str) -> Path:
        who = hashlib.sha256(identity.encode()).hexdigest()[:8]
        return self._folder / f"{place.hex()}-{who}.spv"

    def get(self, place: bytes, identity: str | None) -> bytes | None:
        """The entry made by this compiler, or by any compiler if identity is None."""
        if not self._ready(create=False):
            return None
        if identity is not None:
            return _read_entry(self._path(place, identity), place)
        try:
            paths = sorted(self._folder.glob(f"{place.hex()}-*.spv"))
        except OSError:
            return None
        for path in paths:
            module = _read_entry(path, place)
            if module is not None:
                return module
        return None

    def put(self, place: bytes, identity: str, module: bytes) -> None:
        """Writes an entry. On a full or read-only disk the module will be compiled again."""
        if self._ready(create=True):
            self._write(_ENTRIES, self._path(place, identity), place, module)

    def has_passed(self, test: bytes) -> bool:
        """Whether `keep_passed` was called for a self-test of shaders, by its key of 32 bytes."""
        path = self._folder / f"{test.hex()}{PASSED}" if self._ready(create=False) else None
        return path is not None and _PASSED.read(path, test) is not None

    def keep_passed(self, test: bytes) -> None:
        """Later processes need not repeat this self-test. Failures as for `put`."""
        if self._ready(create=True):
            self._write(_PASSED, self._folder / f"{test.hex()}{PASSED}", test, b"")

    def _write(self, files: CacheFiles, path: Path, key: bytes, data: bytes) -> None:
        try:
            files.write(path, key, data)
        except OSError as error:
            # An obstacle to this entry, or a temporary shortage, does not concern the folder.
            if not isinstance(error, IsADirectoryError) and not is_shortage(error):
                self._usable = False


def _read_entry(path: Path, place: bytes) -> bytes | None:
    module = _ENTRIES.read(path, place)
    try:
        if module is not None:
            spirv_check.check(module)
    except spirv.SpirvError:
        return None
    return module


def cache_state() -> dict[str, Any]:
    """The state of the user's cache: "folder" (None when off), "entries", "bytes", and "problem"
    (why it can't be used, or "")."""
    folder = environment.cache_folder()
    state: dict[str, Any] = {
        "folder": None if folder is None else str(folder), "entries": 0, "bytes": 0, "problem": "",
    }
    cache = DiskCache(folder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        usable = cache.check()
    if usable:
        # Only plain files count: any other kind may have such a name.
        sizes = []
        for path in Path(folder, "spirv").glob("*.spv"):
            with contextlib.suppress(FileNotFoundError):  # another process may clear the cache
                about = path.lstat()
                sizes += [about.st_size] * stat.S_ISREG(about.st_mode)
        state["entries"], state["bytes"] = len(sizes), sum(sizes)
    elif usable is False and folder is not None:
        state["problem"] = "; ".join(str(warning.message) for warning in caught) or (
            f"the shader cache {folder} can't be read"
        )
    return state


def damaged_entries(folder: Path) -> list[Path]:
    """The unusable entries in a cache folder. `ShaderStore` treats them as missing and replaces
    them."""
    bad = []
    for path in sorted(folder.joinpath("spirv").glob("*.spv")):
        try:
            place = bytes.fromhex(path.name.partition("-")[0])
        except ValueError:
            place = b""
        if _read_entry(path, place) is None and os.path.lexists(path):
            bad.append(path)
    return bad
