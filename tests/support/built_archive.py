"""The shader archive of this checkout, compiled once for all runs from the same sources."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

from webnn_vk.codegen.archive import ARCHIVE_PATH
from webnn_vk.support.environment import cache_folder
from webnn_vk.tools import archive_cache


def built_archive(folder: Path) -> Path:
    """The archive in a folder, as the build of a wheel makes it. It stays in the run's cache, from
    which later builds, also those of wheels, take it."""
    from webnn_vk.tools import shader_archive  # imports the compiler, which few runs need

    cache = cache_folder()
    assert cache is not None
    cache.mkdir(parents=True, exist_ok=True)
    # Another process of this run may be at it: its archive serves here too.
    with open(cache / "archive.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert shader_archive.main([str(folder)]) == 0
    return folder / ARCHIVE_PATH.name


def bring(kept: Path) -> None:
    """Puts the archives of earlier runs into this run's cache. Their names say of which sources."""
    if (folder := archive_cache.folder()) is not None and kept.is_dir():
        shutil.copytree(kept, folder, dirs_exist_ok=True)


def keep(kept: Path) -> None:
    """Keeps the archives of this run's cache for later runs, instead of those before."""
    if (folder := archive_cache.folder()) is not None and folder.is_dir():
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept)
