"""Finds the machine's Vulkan drivers that are safe to load: a driver that crashes or hangs while it
lists its devices would take the process with it.

A set of drivers that was never seen is first queried in a child process (`driver_probe`). The
result is cached under the drivers' files, the variables that they read, and the machine. Later
processes query these drivers directly. Meanwhile a mark file exists; if a process leaves one behind
(it crashed or was killed), the next process probes again.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from webnn_vk.support import environment, forks
from webnn_vk.support.dataclass import dataclass

#: How long a driver may take to list its devices, in seconds.
PATIENCE = 20.0
#: Seconds for which the cache holds that a driver crashes or hangs, and that it fails.
BAD_LIFE, FAILED_LIFE = 3600.0, 300.0
_PROBE = Path(__file__).with_name("driver_probe.py")
_FILES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
_INCOMPATIBLE = -9  # VK_ERROR_INCOMPATIBLE_DRIVER: the driver has no device


@dataclass(frozen=True)
class Answer:
    """The result of a probe: `kind` is "well", "failed", "crashed", "hung" or "unknown"."""

    kind: str
    call: str = ""
    result: int = 0

    @property
    def reason(self) -> str:
        """In words, after the driver's name."""
        match self.kind:
            case "crashed":
                return f"it crashes ({_signal_name(self.result)}) in {self.call}"
            case "hung":
                return f"it hangs: {self.call} took longer than {PATIENCE:g} s"
        from webnn_vk.driver.vulkan import binding as vk

        return f"{self.call} fails: {vk.result_name(self.result)}"


@dataclass(frozen=True)
class Verdict:
    """`broken`: manifest → why its driver is left out. `all_broken`: why no driver can be used, or
    "". `manifests`: all manifests found; if no driver is broken, the loader decides itself."""

    manifests: tuple[str, ...] = ()
    broken: dict[str, str] = field(default_factory=dict)
    all_broken: str = ""
    until: float | None = None

    @property
    def usable(self) -> list[str]:
        """The manifests of drivers that are not broken."""
        return [path for path in self.manifests if path not in self.broken]


class Drivers:
    """The machine's drivers and their known state. Unknown drivers are probed; with ``probe_again``
    all of them are. ``meanwhile``: functions that are called one after the other while a probe
    runs. The ones that remain when it ends are left out."""

    def __init__(
        self, *, probe_again: bool = False, meanwhile: Iterable[Callable[[], object]] = ()
    ) -> None:
        self._memory: _Memory | None = None
        self.verdict = Verdict()
        if sys.platform != "linux" or (command := _python()) is None:
            return
        manifests = _manifests()
        try:
            folder = environment.cache_folder()
        except ValueError:
            folder = None
        if folder is not None:
            self._memory = _Memory(folder / "drivers", _key(manifests))
        known = None if probe_again or self._memory is None else self._memory.recall()
        if known is None:
            known = _ask_all(command, manifests, meanwhile)
            if self._memory is not None:
                self._memory.keep(known)
        self.verdict = known

    def doubt(self) -> None:
        """The drivers failed although the probe succeeded: the next process probes again."""
        if self._memory is not None:
            self._memory.forget()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Around queries of the drivers in this process: forks wait, broken drivers are left
        out, and a mark file exists."""
        only = os.pathsep.join(self.verdict.usable)
        changes = dict.fromkeys(_FILES, only) if self.verdict.broken else {}
        mark = None if self._memory is None else self._memory.mark()
        try:
            with forks.undisturbed(), environment.set_for_now(changes):
                yield
        finally:
            if mark is not None:
                _remove(mark)


# -- asking ----------------------------------------------------------------------------------------
def _ask_all(
    command: list[str], manifests: list[str], meanwhile: Iterable[Callable[[], object]]
) -> Verdict:
    together = _answers(command, [None], meanwhile)[0]
    fine = ("well", "unknown")
    if together.kind in fine or (together.kind, together.result) == ("failed", _INCOMPATIBLE):
        return Verdict(tuple(manifests))
    life = FAILED_LIFE if together.kind == "failed" else BAD_LIFE
    until = time.time() + life
    alone = dict(zip(manifests, _answers(command, manifests), strict=True))
    bad = ("crashed", "hung", *["failed"] * (together.kind == "failed"))
    broken = {path: answer.reason for path, answer in alone.items()
              if answer.kind in bad and answer.result != _INCOMPATIBLE}
    verdict = Verdict(tuple(manifests), broken, "", until)
    if broken and verdict.usable:
        rest = _answers(command, [os.pathsep.join(verdict.usable)])[0]
        if rest.kind in bad:
            broken = {}
    if not broken:
        return Verdict(tuple(manifests), {}, f"the drivers together: {together.reason}", until)
    return verdict


def _answers(
    command: list[str], only: list[str | None], meanwhile: Iterable[Callable[[], object]] = ()
) -> list[Answer]:
    """The results of probes in parallel child processes."""
    started = []
    for paths in only:
        changes = {} if paths is None else dict.fromkeys(_FILES, paths)
        try:
            started.append(subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True, env=environment.changed(changes)))
        except OSError:
            started.append(None)  # no process can start: then the drivers are asked directly
    end = time.monotonic() + PATIENCE
    for work in meanwhile:
        if all(process is None or process.poll() is not None for process in started):
            break
        work()
    return [Answer("unknown") if process is None else _answer(process, end) for process in started]


def _answer(process: subprocess.Popen[str], end: float) -> Answer:
    try:
        said, _ = process.communicate(timeout=max(end - time.monotonic(), 0.1))
        hung = False
    except subprocess.TimeoutExpired:
        process.kill()
        hung = True
        try:
            said, _ = process.communicate(timeout=1)
        except subprocess.TimeoutExpired:
            said = ""  # it can't be killed in that call
    lines = said.split("\n")[:-1]
    last = lines[-1] if lines else ""
    if hung:
        return Answer("hung", last or "loading it")
    if process.returncode < 0:
        return Answer("crashed", last or "loading it", -process.returncode)
    if process.returncode == 0 and last.startswith("failed "):
        return Answer("failed", lines[-2], int(last.split()[1]))
    return Answer("well" if last == "well" else "unknown")


def _python() -> list[str] | None:
    """The command of a probe; None if the Python interpreter's executable is unknown."""
    chosen = sys.modules.get("multiprocessing.spawn")  # set by programs that embed Python
    executable = sys.executable if chosen is None else chosen.get_executable()
    if isinstance(executable, bytes):
        executable = os.fsdecode(executable)
    name = Path(executable or "").name
    if getattr(sys, "frozen", False) or not name.startswith(("python", "pypy")):
        return None
    return [executable, "-I", "-S", str(_PROBE), "libvulkan.so.1"] if _PROBE.is_file() else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# -- which drivers there are -----------------------------------------------------------------------
def _manifests() -> list[str]:
    """The manifests of drivers that the loader reads, in its documented order."""
    variables = environment.of_drivers()
    given = next((variables[name] for name in _FILES if variables.get(name)), None)
    if given is not None:
        places = given.split(os.pathsep)
    else:
        try:
            home = Path.home()
        except RuntimeError:
            home = None
        own = variables.get("XDG_DATA_HOME") or (str(home / ".local/share") if home else "")
        config = variables.get("XDG_CONFIG_HOME") or (str(home / ".config") if home else "")
        roots = [
            config, *(variables.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"), "/usr/local/etc",
            "/etc", own,
            *(variables.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share").split(":"),
        ]
        places = [f"{root}/vulkan/icd.d" for root in roots if root]
        places = [*variables.get("VK_ADD_DRIVER_FILES", "").split(os.pathsep), *places]
    found: dict[str, None] = {}
    for place in places:
        path = Path(place)
        try:
            inside = sorted(path.glob("*.json")) if path.is_dir() else [path]
            found.update(dict.fromkeys(str(file) for file in inside if place and file.is_file()))
        except OSError:
            continue
    return list(found)


def _key(manifests: list[str]) -> str:
    """The key of the cache: these files as they are now, this machine and its devices."""
    system = os.uname()
    variables = sorted(environment.of_drivers().items())
    parts: list[Any] = [system.nodename, system.release, variables]
    for path in manifests:
        parts.append((path, _stamp(path), _library_stamp(path)))
    # Libraries in the system's search path, and the devices of this container.
    parts.append(_stamp("/etc/ld.so.cache"))
    parts.append(sorted(map(str, [*Path("/dev").glob("dri/*"), *Path("/dev").glob("nvidia*")])))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _stamp(path: str | Path) -> tuple[int, int] | None:
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size


def _library_stamp(manifest: str) -> tuple[int, int] | None:
    try:
        library = json.loads(Path(manifest).read_bytes())["ICD"]["library_path"]
        return _stamp(Path(manifest).parent / library) if "/" in library else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


# -- the memory ------------------------------------------------------------------------------------
class _Memory:
    """The cache entry of one set of drivers. After any error of the file system it is empty."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder, self._key = folder, key

    def recall(self) -> Verdict | None:
        """The last verdict; None if there is none, it expired, or a process left a mark behind."""
        try:
            doubted = self._left_behind()
            found = json.loads((self._folder / f"{self._key}.json").read_text())
            verdict = Verdict(tuple(found["manifests"]), dict(found["broken"]),
                              str(found["all_broken"]), found["until"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        old = verdict.until is not None and not 0 < verdict.until - time.time() <= BAD_LIFE
        return None if doubted or old else verdict

    def keep(self, verdict: Verdict) -> None:
        """Store a verdict."""
        path = self._folder / f"{self._key}.json"
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary.write_text(json.dumps(asdict(verdict)))
            temporary.replace(path)
        except OSError:
            _remove(temporary)

    def forget(self) -> None:
        """Delete the entry."""
        _remove(self._folder / f"{self._key}.json")

    def mark(self) -> Path | None:
        """A new mark file: this process queries the drivers now."""
        path = self._folder / f"{self._key}.{os.getpid()}.asking"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
        except OSError:
            return None
        return path

    def _left_behind(self) -> bool:
        """Whether a process ended while it queried these drivers."""
        gone = [path for path in self._folder.glob(f"{self._key}.*.asking")
                if not _runs(path.name.split(".")[-2])]
        for path in gone:
            _remove(path)
        return bool(gone)


def _runs(process: str) -> bool:
    try:
        if int(process) == os.getpid():
            return False  # an earlier process: process numbers repeat in containers
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except OSError:
        pass  # another user's process
    return True


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        pass
