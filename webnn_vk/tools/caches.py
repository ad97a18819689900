"""``webnn-vk cache``: what is kept between processes: shaders, saved graphs, tuned schedules."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path

from webnn_vk import __version__
from webnn_vk.codegen.store import cache_state, damaged_entries
from webnn_vk.compiler.program.saved_graphs import SavedGraphs
from webnn_vk.runtime.tuning import FOLDER, damaged_schedules, remembered_files, schedule_files
from webnn_vk.support.errors import DOMException, NotSupportedError, sanitize
from webnn_vk.support.settings import Settings

from . import ToolError, pack_cache
from .models import SAVED
from .output import emit, facts, size, table

KINDS = ("shaders", "graphs", "tuned")


def _folder() -> Path | None:
    try:
        return Settings.from_environment().cache_folder
    except ValueError as error:
        raise ToolError(str(error)) from None


def _graphs() -> SavedGraphs:
    folder = _folder()
    return SavedGraphs(None if folder is None else folder / "graphs", None, __version__)


def saved_graphs() -> dict[str, int]:
    """Bytes of the saved graphs by key; none without a folder that can be used."""
    with contextlib.suppress(DOMException):
        return _graphs().sizes()
    return {}


def tuned_schedules() -> dict[str, int]:
    """Bytes of the files with tuned schedules by name; none without a folder."""
    folder = _folder()
    found = {} if folder is None else schedule_files(folder / FOLDER)
    return {path.name: size for path, size in found.items()}


def show(as_json: bool) -> None:
    """Print what the caches hold."""
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
    """Read everything; the exit status is 1 when something is damaged, which is named."""
    folder = _folder()
    if folder is None:
        raise ToolError("the cache is off: there is nothing to verify")
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
            print(f"damaged shader {name}: it will be compiled anew")
        for key, reason in graphs.items():
            print(f"damaged graph {SAVED}{sanitize(key)}: {reason}; save it again")
        for name, reason in tuned.items():
            print(f"damaged schedule {name}: {reason}; it is ignored")
        if not shaders and not graphs and not tuned:
            count = cache_state()["entries"]
            print(f"{count} shaders, {len(saved_graphs())} saved graphs and "
                  f"{len(tuned_schedules())} tuned schedules are as they were written")
    return int(bool(shaders or graphs or tuned))


def _remove(path: Path) -> bool:
    """Remove a file; whether this did it: another process may replace or clear, too."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def clear(only: str | None, as_json: bool) -> None:
    """Remove the shaders, the saved graphs and the tuned schedules, or ``only`` one of them."""
    folder = _folder()
    if folder is None:
        raise ToolError("the cache is off: there is nothing to clear")
    removed = dict.fromkeys(KINDS, 0)
    try:
        if only in (None, "shaders"):
            for path in folder.joinpath("spirv").glob("*.spv"):
                removed["shaders"] += _remove(path)
            for path in pack_cache.files(folder / pack_cache.FOLDER):
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
