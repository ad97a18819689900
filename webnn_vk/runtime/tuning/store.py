"""Results of tuning, in a folder of the user's: a JSON file for each problem on each device.

A file is named by the hash of its key: device, driver version, the hash of the family's templates
and the problem's class. If any of these changes, the file is not found, and the heuristics choose
again. Files are untrusted input: a damaged or foreign file is ignored, with a notice, and a stored
schedule is used only if it is among the problem's candidates.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from webnn_vk.codegen.files import belongs_to_user, read_regular, write_atomically
from webnn_vk.codegen.template_files import source_hash
from webnn_vk.compiler.kernels import FAMILIES, Schedule
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.processor import processor
from webnn_vk.support.warnings import say_once

#: The name of the folder among the user's caches.
FOLDER = "tuned"

_FORMAT, _VERSION = "webnn_vk tuned schedule", 1
_LARGEST = 1 << 16
_MEMBERS = ("family", "problem", "templates", "schedule", "seconds", "usual", "timed_by", "device")


@dataclass(frozen=True)
class Entry:
    """A schedule chosen by measurements: its seconds and the seconds of the heuristics' choice
    (``usual``), and how they were measured, "timestamps" or "submits"."""

    family: str
    problem: str
    schedule: Schedule
    seconds: float
    usual: float
    timed_by: str


class TunedStore(Mapping[tuple[str, str], Schedule]):
    """The schedules found on one device: (family, problem class) → schedule, read on demand.

    ``folder`` None: nothing is stored. A folder that belongs to another user, or that others may
    write to, is not used.
    """

    def __init__(self, folder: Path | None, profile: DeviceProfile) -> None:
        self.folder = folder
        self._device = identity(profile)
        self._about = f"{profile.name}, {profile.driver_name} {profile.driver_version}"
        self._found: dict[tuple[str, str], Entry | None] = {}
        self._usable = _usable(folder)

    def __getitem__(self, key: tuple[str, str]) -> Schedule:
        entry = self.entry(*key)
        if entry is None:
            raise KeyError(key)
        return entry.schedule

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """The keys looked up so far that have an entry."""
        return iter([key for key, entry in self._found.items() if entry is not None])

    def __len__(self) -> int:
        return sum(entry is not None for entry in self._found.values())

    def __bool__(self) -> bool:
        """Whether a lookup can succeed."""
        return self._usable or any(self._found.values())

    def entry(self, family: str, problem: str) -> Entry | None:
        """The entry of a problem; None if there is no usable one."""
        key = family, problem
        if key not in self._found:
            self._found[key] = self._read(family, problem) if self._usable else None
        return self._found[key]

    def put(self, entry: Entry) -> None:
        """Store an entry, for this process too if it can't be written."""
        self._found[entry.family, entry.problem] = entry
        if self.folder is None:
            return
        data: dict[str, Any] = {
            "family": entry.family, "problem": entry.problem,
            "templates": templates_hash(entry.family), "schedule": _as_data(entry.schedule),
            "seconds": entry.seconds, "usual": entry.usual, "timed_by": entry.timed_by,
            "device": self._about,
        }
        text = json.dumps(
            {"format": _FORMAT, "version": _VERSION, **data, "digest": _digest(data)}, indent=1
        )
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._usable = _usable(self.folder)
            if self._usable:
                path = self._path(entry.family, entry.problem)
                write_atomically(path, text.encode(), mode=0o600)
        except OSError as error:
            say_once(f"tuned schedules can't be kept in {self.folder}: {error}")

    def _path(self, family: str, problem: str) -> Path:
        assert self.folder is not None
        return self.folder / entry_name(self._device, templates_hash(family), family, problem)

    def _read(self, family: str, problem: str) -> Entry | None:
        path = self._path(family, problem)
        try:
            data = _checked(read_regular(path, _LARGEST))
            if (data["family"], data["problem"]) != (family, problem):
                raise ValueError("it is another problem's")
            return Entry(
                family, problem, _as_schedule(data["schedule"]), float(data["seconds"]),
                float(data["usual"]), str(data["timed_by"]),
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            say_once(f"the tuned schedule {path} is ignored: {error}")
            return None


def identity(profile: DeviceProfile) -> str:
    """A text that devices share if schedules take the same time on them: kind, driver, version,
    features in use, and the processor if that is the device."""
    return json.dumps([
        profile.name, profile.vendor_id, profile.device_id, profile.driver_name,
        profile.driver_version, sorted(profile.features),
        processor() if profile.is_software else "",
    ])


def entry_name(device: str, templates: str, family: str, problem: str) -> str:
    """The name of the file with the schedule of a problem."""
    key = json.dumps([_FORMAT, _VERSION, device, templates, family, problem])
    return hashlib.sha256(key.encode()).hexdigest()[:40] + ".json"


@cache
def templates_hash(family: str) -> str:
    """The hash of the templates of a family's kernels, with all their includes."""
    templates = FAMILIES[family].templates or (family,)
    return source_hash(f"{name}.comp.j2" for name in templates)


# -- all of a folder, whichever device -------------------------------------------------------------
def schedule_files(folder: Path) -> dict[Path, int]:
    """The files of a folder of tuned schedules, with their sizes in bytes."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(FileNotFoundError):  # another process clears
            about = path.lstat()
            if stat.S_ISREG(about.st_mode):
                found[path] = about.st_size
    return found


def remembered_files(folder: Path) -> list[Path]:
    """The files with findings about processors (``probe``)."""
    return sorted(path for path in folder.glob("*.probe") if path.is_file())


def damaged_schedules(folder: Path) -> dict[str, str]:
    """The files that can't be used: the reason by name."""
    found = {}
    for path in schedule_files(folder):
        try:
            _checked(read_regular(path, _LARGEST))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            if os.path.lexists(path):  # another process may have cleared
                found[path.name] = str(error)
    return found


# -- files -----------------------------------------------------------------------------------------
def _usable(folder: Path | None) -> bool:
    """Whether there is a folder that belongs to the user alone."""
    if folder is None:
        return False
    try:
        about = folder.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        say_once(f"tuned schedules are not read: {error}")
        return False
    if not belongs_to_user(about):
        say_once(f"tuned schedules are not read: {folder} belongs to another user or others may "
                 "write to it")
        return False
    return True


def _checked(text: bytes) -> dict[str, Any]:
    """The members of a file; ValueError if it isn't one, or was changed."""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(given, dict) or given.get("format") != _FORMAT:
        raise ValueError("no tuned schedule")
    if given.get("version") != _VERSION:
        raise ValueError(f"version {given.get('version')!r}, this is {_VERSION}")
    data = {name: given[name] for name in _MEMBERS if name in given}
    if len(data) < len(_MEMBERS) or given.get("digest") != _digest(data):
        raise ValueError("it is damaged")
    _as_schedule(data["schedule"])
    return data


def _digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _as_data(schedule: Schedule) -> dict[str, Any]:
    numbers = [list(pair) for pair in schedule.numbers]
    return {"kernel": schedule.kernel, "numbers": numbers, "load": schedule.load}


def _as_schedule(data: Any) -> Schedule:
    kernel, load = data["kernel"], data["load"]
    numbers = tuple((name, number) for name, number in data["numbers"])
    plain = all(type(name) is str and type(number) is int for name, number in numbers)
    if not plain or type(kernel) is not str or type(load) is not str:
        raise ValueError("it has no schedule")
    return Schedule(kernel, numbers, load)
