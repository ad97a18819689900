"""The shader archive of this checkout, compiled once for all runs from the same sources."""

from __future__ import annotations

import fcntl
import functools
from collections.abc import Callable
from pathlib import Path

from webnn_vk.codegen.archive import ARCHIVE_PATH, ShaderArchive
from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.codegen.store import quick_name
from webnn_vk.support.environment import cache_folder
from webnn_vk.tools import shader_archive


def built_archive(folder: Path) -> Path:
    """The archive in a folder, as the build of a wheel makes it. It stays in the cache, from
    which later builds, also those of wheels and of later runs, take it."""
    cache = cache_folder()
    assert cache is not None
    cache.mkdir(parents=True, exist_ok=True)
    # Another process of this run may be at it: its archive serves here too.
    with open(cache / "archive.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert shader_archive.main([str(folder)]) == 0
    return folder / ARCHIVE_PATH.name


def kernels_of(archive: Path) -> Callable[[KernelSpec], bool]:
    """Whether an archive has a kernel."""
    pack = ShaderArchive(archive)

    @functools.cache
    def has(spec: KernelSpec) -> bool:
        name = quick_name(spec)
        return name is not None and pack.named(name) is not None

    return has
