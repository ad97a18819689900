"""``webnn-vk cache``: the caches on disk, with shaders, saved graphs and tuned schedules."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path

from webnn_vk import __version__
from webnn_vk.codegen.disk_cache import PASSED, cache_state, damaged_entries
from webnn_vk.compiler.program.saved_graphs import SavedGraphs
from webnn_vk.runtime.tuning.store import (
    FOLDER,
    damaged_schedules,
    remembered_files,
    schedule_files,
)
from webnn_vk.support.errors import DOMException, NotSupportedError, sanitize
from webnn_vk.support.settings import Settings

from . import ToolError, archive_cache
from .models import SAVED
from .output import emit, facts, size, table

KINDS = ("shaders", "graphs", "tuned")


def _folder() -> Path | None:
    try:
        return Settings.from_environment().cache_folder
    except ValueError as error:
        raise ToolError(str(error)) from None


def _folder_to(use: str) -> Path:
    folder = _folder()
    if folder is None:
        raise ToolError(f"the cache is off: there is nothing to {use}")
    return folder


def _graphs() -> SavedGraphs:
    folder = _folder()
    return SavedGraphs(None if folder is None else folder / "graphs", None, __version__)


def saved_graphs() -> dict[str, int]:
    """Sizes of the saved graphs in bytes, by key; empty without a usable folder."""
    with contextlib.suppress(DOMException):
        return _graphs().sizes()
    return {}


def tuned_schedules() -> dict[str, int]:
    """Sizes of the files with tuned schedules in bytes, by name; empty without a folder."""
    folder = _folder()
    found = {} if folder is None else schedule_files(folder / FOLDER)
    return {path.name: size for path, size in found.items()}


def show(as_json: bool) -> None:
    """Print the contents of the caches."""
    state, graphs, tuned = cache_state(), saved_graphs(), tuned_schedules()
    if as_json:
        about = {"entries": len(tuned), "bytes": sum(tuned.values())}
        emit({**state, "graphs": graphs, "tuned": about})
        return
    if state["folder"] is None:
        print("the cache is off (WEBNN_VK_CACHE=off, or there is no home folder)")
        return
    facts([
        ("Folder", state["folder"]),
        ("Shaders", f"{state['entries']}, {size(state['bytes'])}"),
        ("Graphs", f"{len(graphs)}, {size(sum(graphs.values()))}"),
        ("Tuned", f"{len(tuned)} schedules, {size(sum(tuned.values()))}"),
        *([("Problem", state["problem"])] if state["problem"] else []),
    ])
    if graphs:
        print()
        table(("saved graph", "size"), [
            (f"{SAVED}{sanitize(key)}", size(count)) for key, count in graphs.items()
        ], right=("size",))


def verify(as_json: bool) -> int:
    """Read every file and print the damaged ones; the exit status is 1 if there are any."""
    folder = _folder_to("verify")
    shaders = [path.name for path in damaged_entries(folder)]
    try:
        graphs = _graphs().damaged()
    except DOMException as error:
        raise ToolError(str(error)) from None
    tuned = damaged_schedules(folder / FOLDER)
    if as_json:
        emit({
            "folder": str(folder), "damaged_shaders": shaders, "damaged_graphs": graphs,
            "damaged_tuned": tuned,
        })
    else:
        for name in shaders:
            print(f"damaged shader {name}: it will be compiled again")
        for key, reason in graphs.items():
            print(f"damaged graph {SAVED}{sanitize(key)}: {reason}; save it again")
        for name, reason in tuned.items():
            print(f"damaged schedule {name}: {reason}; it is ignored")
        if not shaders and not graphs and not tuned:
            count = cache_state()["entries"]
            print(f"{count} shaders, {len(saved_graphs())} saved graphs and "
                  f"{len(tuned_schedules())} tuned schedules are intact")
    return int(bool(shaders or graphs or tuned))


def _remove(path: Path) -> bool:
    """Remove a file. Returns whether it was removed here: another process may do it first."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def clear(only: str | None, as_json: bool) -> None:
    """Remove shaders, saved graphs and tuned schedules, or ``only`` one kind."""
    folder = _folder_to("clear")
    removed = dict.fromkeys(KINDS, 0)
    try:
        if only in (None, "shaders"):
            for path in folder.joinpath("spirv").glob("*.spv"):
                removed["shaders"] += _remove(path)
            passed = folder.joinpath("spirv").glob(f"*{PASSED}")
            for path in [*passed, *archive_cache.files(folder / archive_cache.FOLDER)]:
                _remove(path)
        if only in (None, "graphs"):
            graphs = _graphs()
            for key in graphs.keys():
                try:
                    graphs.delete(key)
                    removed["graphs"] += 1
                except NotSupportedError:
                    if key in graphs.keys():
                        raise
        if only in (None, "tuned"):
            for path in schedule_files(folder / FOLDER):
                removed["tuned"] += _remove(path)
            for path in remembered_files(folder / FOLDER):
                _remove(path)
    except (OSError, DOMException) as error:
        raise ToolError(f"cannot clear the cache: {error}") from None
    if as_json:
        emit({"folder": str(folder), "removed": removed})
        return
    print(f"removed from {folder}: {removed['shaders']} shaders, {removed['graphs']} saved graphs, "
          f"{removed['tuned']} tuned schedules")
