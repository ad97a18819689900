"""``webnn-vk cache``: what is kept between processes: shaders, saved graphs."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path

from webnn_vk import __version__
from webnn_vk.codegen.store import cache_state, damaged_entries

from ..errors import DOMException, sanitize
from ..saved_graphs import SavedGraphs
from ..settings import Settings
from . import ToolError
from .models import SAVED
from .output import emit, facts, say, size, table

KINDS = ("shaders", "graphs")


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


def show(as_json: bool) -> None:
    """Print what the caches hold."""
    state, graphs = cache_state(), saved_graphs()
    if as_json:
        emit({**state, "graphs": graphs})
        return
    if state["folder"] is None:
        say("the cache is off (WEBNN_VK_CACHE=off, or there is no home folder)")
        return
    facts([
        ("Folder", state["folder"]),
        ("Shaders", f"{state['entries']}, {size(state['bytes'])}"),
        ("Graphs", f"{len(graphs)}, {size(sum(graphs.values()))}"),
        *([("Problem", state["problem"])] if state["problem"] else []),
    ])
    if graphs:
        say()
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
    if as_json:
        emit({"folder": str(folder), "damaged_shaders": shaders, "damaged_graphs": graphs})
    else:
        for name in shaders:
            say(f"damaged shader {name}: it will be compiled anew")
        for key, reason in graphs.items():
            say(f"damaged graph {SAVED}{sanitize(key)}: {reason}; save it again")
        if not shaders and not graphs:
            count = cache_state()["entries"]
            say(f"{count} shaders and {len(saved_graphs())} saved graphs are as they were written")
    return int(bool(shaders or graphs))


def clear(only: str | None, as_json: bool) -> None:
    """Remove the shaders and the saved graphs, or ``only`` one of them."""
    folder = _folder()
    if folder is None:
        raise ToolError("the cache is off: there is nothing to clear")
    removed = dict.fromkeys(KINDS, 0)
    try:
        if only in (None, "shaders"):
            for path in folder.joinpath("spirv").glob("*.spv"):
                if stat.S_ISREG(path.lstat().st_mode):
                    path.unlink()
                    removed["shaders"] += 1
        if only in (None, "graphs"):
            graphs = _graphs()
            for key in graphs.keys():
                graphs.delete(key)
                removed["graphs"] += 1
    except (OSError, DOMException) as error:
        raise ToolError(f"cannot clear the cache: {error}") from None
    if as_json:
        emit({"folder": str(folder), "removed": removed})
        return
    say(f"removed from {folder}: {removed['shaders']} shaders, {removed['graphs']} saved graphs")
