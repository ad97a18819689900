"""Graphs saved under keys in a folder of the user: ``context.save_graph`` and related methods.

Each key has a small file, the entry, with the name of the program's folder, the device and version
it was saved for, and the hashes of its files. Saving writes a new folder and then replaces the
entry: a process that loads at the same time gets the old graph or the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from webnn_vk.codegen import spirv, spirv_check
from webnn_vk.codegen.files import belongs_to_user, write_atomically
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import NotSupportedError, OperationError, sanitize

from . import serial

_FORMAT, _VERSION = "webnn_vk saved graph", 1
_MAX_KEY = 65536
#: Folders without an entry that are older than this, in seconds, are left from interrupted saving.
_ABANDONED = 3600.0
# Properties that may differ between two runs on one device.
_IDLE = ("note", "memory_heaps", "memory_types", "pci")


@dataclass(frozen=True)
class SavedGraphs:
    """The graphs in ``folder`` (None: there is no folder), for a context on the device of
    ``profile`` (None: the CPU device) with this ``version`` of the library."""

    folder: Path | None
    profile: DeviceProfile | None
    version: str

    def save(self, key: str, write: Callable[[Path], None], unused: frozenset[str]) -> None:
        """Save the files that ``write`` writes into the folder that it is given. NotSupportedError
        without a folder, OperationError if the files can't be written."""
        root = self._root("save_graph", create=True)
        path = root / _entry_name(key)
        folder = root / uuid.uuid4().hex
        try:
            folder.mkdir(mode=0o700)
            try:
                write(folder)
                entry = {
                    "format": _FORMAT, "version": _VERSION, "key": key, "library": self.version,
                    "device": self._device(), "folder": folder.name, "unused": sorted(unused),
                    "files": {name: _digest(folder / name) for name in (serial.TEXT, serial.DATA)},
                }
                before = _read_entry(path)
                write_atomically(path, json.dumps(entry, indent=1).encode(), mode=0o600)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        except OSError as error:
            raise OperationError(f"save_graph: {error}") from error
        if before is not None:
            shutil.rmtree(root / before["folder"], ignore_errors=True)
        self._sweep(root)

    def load(self, key: str) -> tuple[serial.Loaded, frozenset[str]]:
        """The program saved under a key, with the names of its unused inputs. NotSupportedError,
        with the reason, if there is none that can be used here."""
        what = f"load_graph: {_shown(key)}"
        root = self._root("load_graph")
        gone = None
        while True:
            entry = _read_entry(root / _entry_name(key))
            if entry is None:
                raise NotSupportedError(f"{what}: no graph is saved under this key in {root}")
            reason = self._mismatch(entry)
            if reason:
                raise NotSupportedError(f"{what}: {reason}; build and save it again")
            folder = root / entry["folder"]
            try:
                for name in (serial.TEXT, serial.DATA):
                    if _digest(folder / name) != entry["files"][name]:
                        raise ValueError(f"{name} is damaged")
                loaded = serial.load(folder)
                _check_modules(loaded)
                return loaded, frozenset(map(str, entry["unused"]))
            except FileNotFoundError as error:
                # If the graph was replaced after the entry was read, the entry names other files.
                if entry["folder"] == gone:
                    raise NotSupportedError(f"{what}: its files are gone: {error}") from error
                gone = entry["folder"]
            except (ValueError, KeyError, TypeError, OSError) as error:
                raise NotSupportedError(
                    f"{what}: its files can't be used: {error}; delete it or save it again"
                ) from error

    def keys(self) -> list[str]:
        """The keys of all graphs in the folder, sorted."""
        return sorted(entry["key"] for _, entry in self._entries(self._root("list_graphs")))

    def sizes(self) -> dict[str, int]:
        """Bytes of each graph in the folder by its key, including graphs for other devices. Raises
        as ``keys``."""
        root = self._root("list_graphs")
        found = {}
        for _, entry in self._entries(root):
            with contextlib.suppress(FileNotFoundError):  # another process clears
                files = (root / entry["folder"]).glob("*")
                found[entry["key"]] = sum(path.stat().st_size for path in files)
        return found

    def damaged(self) -> dict[str, str]:
        """The graphs whose files have changed since they were saved: the reason by key. Raises as
        ``keys``."""
        root, found = self._root("list_graphs"), {}
        for path, entry in self._entries(root):
            for name in (serial.TEXT, serial.DATA):
                try:
                    if _digest(root / entry["folder"] / name) != entry["files"].get(name):
                        found[entry["key"]] = f"{name} is damaged"
                except OSError as error:
                    if _read_entry(path) == entry:  # else removed or replaced by another process
                        found[entry["key"]] = f"{name}: {error.strerror or error}"
        return found

    def delete(self, key: str) -> None:
        """Remove a graph. NotSupportedError when there is none."""
        root = self._root("delete_graph")
        path = root / _entry_name(key)
        entry = _read_entry(path)
        try:
            path.unlink()
        except FileNotFoundError:
            raise NotSupportedError(
                f"delete_graph: {_shown(key)}: no graph is saved under this key in {root}"
            ) from None
        except OSError as error:
            raise OperationError(f"delete_graph: {error}") from error
        if entry is not None:
            shutil.rmtree(root / entry["folder"], ignore_errors=True)

    def _root(self, what: str, create: bool = False) -> Path:
        """The folder. No other user may write to it, since its programs run on the device."""
        if self.folder is None:
            raise NotSupportedError(f"{what}: there is no cache folder (WEBNN_VK_CACHE=off)")
        try:
            if create:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.folder.stat()
        except FileNotFoundError:
            return self.folder
        except OSError as error:
            raise NotSupportedError(f"{what}: {error}") from error
        if not belongs_to_user(status):
            raise NotSupportedError(
                f"{what}: {self.folder} belongs to another user or others may write to it"
            )
        return self.folder

    def _device(self) -> dict[str, Any] | None:
        if self.profile is None:
            return None
        described = json.loads(self.profile.to_json())
        return {name: value for name, value in described.items() if name not in _IDLE}

    def _mismatch(self, entry: dict[str, Any]) -> str:
        """Why the saved graph can't be used on this device with this version; "" if it can."""
        if entry["version"] != _VERSION or entry["library"] != self.version:
            return f"it was saved by webnn_vk {entry['library']}, this is {self.version}"
        saved, here = entry["device"], self._device()
        if saved == here:
            return ""
        if saved is None or here is None:
            names = ["the CPU device" if d is None else str(d.get("name")) for d in (saved, here)]
            return f"it was saved for {names[0]}, this is {names[1]}"
        if saved.get("name") != here["name"]:
            return f"it was saved for {saved.get('name')}, this is {here['name']}"
        changed = [n for n in {**here, **saved} if saved.get(n) != here.get(n)]
        if {"driver_name", "driver_version", "api_version", "uuid"} & set(changed):
            drivers = [f"{d.get('driver_name')} {d.get('driver_version')}" for d in (saved, here)]
            return f"it was saved with the driver {drivers[0]}, this is {drivers[1]}"
        if "features" in changed:
            lost = sorted(set(saved.get("features", ())) ^ set(here["features"]))
            return f"it was saved with other device features in use: {', '.join(lost)} differ"
        return f"it was saved with another {', '.join(sorted(changed))} of the device"

    def _entries(self, root: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
        for path in root.glob("*.json"):
            entry = _read_entry(path)
            if entry is not None and path.name == _entry_name(entry["key"]):
                yield path, entry

    def _sweep(self, root: Path) -> None:
        """Remove folders whose saving or removal was interrupted."""
        named = {entry["folder"] for _, entry in self._entries(root)}
        for path in root.iterdir():
            with contextlib.suppress(OSError, ValueError):
                uuid.UUID(path.name)
                if path.name not in named and time.time() - path.stat().st_mtime > _ABANDONED:
                    shutil.rmtree(path, ignore_errors=True)


def check_key(key: Any, what: str) -> str:
    """TypeError unless it can be a key."""
    if not isinstance(key, str):
        raise TypeError(f"{what}: the key is a str, not {type(key).__name__}")
    if len(key) > _MAX_KEY:
        raise TypeError(f"{what}: a key has at most {_MAX_KEY} characters, not {len(key)}")
    return key


def _shown(key: str) -> str:
    return repr(sanitize(key))


def _entry_name(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32] + ".json"


def _read_entry(path: Path) -> dict[str, Any] | None:
    """The entry in a file; None if it is not an entry."""
    try:
        entry = json.loads(path.read_bytes())
        uuid.UUID(entry["folder"])  # a name of ours, not a path
        known = entry["format"] == _FORMAT and isinstance(entry["key"], str)
        sound = isinstance(entry["device"], (dict, type(None)))
        sound = sound and isinstance(entry["files"], dict) and isinstance(entry["unused"], list)
        return entry if known and sound and entry.keys() >= {"version", "library"} else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_modules(loaded: serial.Loaded) -> None:
    for spec, module in loaded.modules.items():
        spirv_check.check(module)
        info = spirv.info(module)
        if len(info.bindings) > spec.binding_count:
            raise ValueError(f"a shader of {spec.template} has {len(info.bindings)} bindings")
