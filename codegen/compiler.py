"""GLSL to SPIR-V: glslang in this process when a library with its C interface is installed, else
`glslangValidator` or `glslc` as processes. `WEBNN_VK_GLSLANG` = none | process | auto chooses.

Target: Vulkan 1.2, SPIR-V 1.5, no optimiser (drivers optimise; ours would cost more than it saves).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

#: What every module is compiled for; part of its address.
FLAGS = "compute vulkan1.2 spirv1.5 O0"

MODES = ("auto", "process", "none")
_TIMEOUT_S = 300


class GlslError(RuntimeError):
    """GLSL that does not compile. `log` is the compiler's, `text` the whole source."""

    def __init__(self, name: str, log: str, text: str) -> None:
        self.name, self.log, self.text = name, log.strip(), text
        excerpt = _excerpt(self.log, text)
        super().__init__(f"{name}: the GLSL does not compile\n{self.log}\n{excerpt}")


class CompilerUnavailable(RuntimeError):
    """A compiler that was found but cannot be loaded or run."""


@dataclass(frozen=True)
class Source:
    """One shader to compile: its GLSL and the name that errors mention."""

    text: str
    name: str = "shader"


class Compiler(Protocol):
    """identity: a cheap fingerprint for cache names; version: for people, may load or run it."""

    identity: str

    @property
    def version(self) -> str: ...

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]: ...


def _excerpt(log: str, text: str, around: int = 3, most: int = 3) -> str:
    """The numbered GLSL lines around the first errors of the log."""
    numbers = [int(n) for n in re.findall(r"(?:ERROR: [^\n:]*:|\.comp:)(\d+):", log)]
    lines = text.splitlines()
    shown: list[str] = []
    last = 0
    for number in sorted(dict.fromkeys(numbers))[:most]:
        first = max(number - around, last + 1)
        if shown and first > last + 1:
            shown.append("      ...")
        for i in range(first, min(number + around, len(lines)) + 1):
            shown.append(f"{'>' if i == number else ' '}{i:5d} {lines[i - 1]}")
            last = i
    return "\n".join(shown)


# -- in this process

class _Version(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int),
        ("flavor", ctypes.c_char_p),
    ]


class _Input(ctypes.Structure):
    # glslang_input_t, the same in glslang 11 to 16; the tail is room for what a later one appends.
    _fields_ = [
        ("language", ctypes.c_int), ("stage", ctypes.c_int), ("client", ctypes.c_int),
        ("client_version", ctypes.c_int), ("target_language", ctypes.c_int),
        ("target_language_version", ctypes.c_int), ("code", ctypes.c_char_p),
        ("default_version", ctypes.c_int), ("default_profile", ctypes.c_int),
        ("force_default_version_and_profile", ctypes.c_int), ("forward_compatible", ctypes.c_int),
        ("messages", ctypes.c_int), ("resource", ctypes.c_void_p),
        ("include_system", ctypes.c_void_p), ("include_local", ctypes.c_void_p),
        ("free_include_result", ctypes.c_void_p), ("callbacks_ctx", ctypes.c_void_p),
        ("reserved", ctypes.c_byte * 64),
    ]


_GLSL, _COMPUTE, _VULKAN, _SPV = 1, 5, 1, 1
_VULKAN_1_2, _SPV_1_5 = (1 << 22) | (2 << 12), (1 << 16) | (5 << 8)
_NO_PROFILE, _SPV_AND_VULKAN_RULES = 1, (1 << 3) | (1 << 4)
_KNOWN_MAJOR = range(11, 17)

_P = ctypes.c_void_p
_PROTOTYPES = {
    "glslang_initialize_process": ((), ctypes.c_int),
    "glslang_default_resource": ((), _P),
    "glslang_shader_create": ((_P,), _P),
    "glslang_shader_delete": ((_P,), None),
    "glslang_shader_preprocess": ((_P, _P), ctypes.c_int),
    "glslang_shader_parse": ((_P, _P), ctypes.c_int),
    "glslang_shader_get_info_log": ((_P,), ctypes.c_char_p),
    "glslang_program_create": ((), _P),
    "glslang_program_delete": ((_P,), None),
    "glslang_program_add_shader": ((_P, _P), None),
    "glslang_program_link": ((_P, ctypes.c_int), ctypes.c_int),
    "glslang_program_get_info_log": ((_P,), ctypes.c_char_p),
    "glslang_program_SPIRV_generate": ((_P, ctypes.c_int), None),
    "glslang_program_SPIRV_get_size": ((_P,), ctypes.c_size_t),
    "glslang_program_SPIRV_get_ptr": ((_P,), _P),
}


class LibraryCompiler:
    """glslang through its C interface, loaded at the first use. Thread-safe by a lock."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.identity = _identity(path)
        self._lock = threading.Lock()
        self._calls: dict[str, object] | None = None
        self._version = ""

    @property
    def version(self) -> str:
        """As in "glslang 14.2.0 (vkdispatch_vulkan_native….so)". Raises CompilerUnavailable."""
        self._load()
        return self._version

    def _load(self) -> dict:
        with self._lock:
            if self._calls is not None:
                return self._calls
            try:
                library = ctypes.CDLL(self.path)
                version = _library_version(library)
                calls = {}
                for name, (arguments, result) in _PROTOTYPES.items():
                    calls[name] = function = library[name]
                    function.argtypes, function.restype = arguments, result
            except (OSError, AttributeError) as error:
                raise CompilerUnavailable(f"{self.path}: {error}") from None
            # Another major version may have another layout of the input: a crash, not an error.
            if version[0] not in _KNOWN_MAJOR:
                raise CompilerUnavailable(f"{self.path}: glslang {version} is not one we know")
            if not calls["glslang_initialize_process"]():
                raise CompilerUnavailable(f"{self.path}: glslang does not start")
            self._version = f"glslang {'.'.join(map(str, version))} ({Path(self.path).name})"
            self._calls = calls
            return calls

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]:
        """SPIR-V, or the error, for each source. Raises CompilerUnavailable."""
        calls = self._load()
        results = []
        for source in sources:
            with self._lock:
                results.append(_compile_in_library(calls, source))
        return results


def _compile_in_library(calls: dict, source: Source) -> bytes | GlslError:
    code = source.text.encode()
    if b"\0" in code:
        return GlslError(source.name, "the text contains a zero byte", source.text)
    given = _Input(
        language=_GLSL, stage=_COMPUTE, client=_VULKAN, client_version=_VULKAN_1_2,
        target_language=_SPV, target_language_version=_SPV_1_5, code=code, default_version=450,
        default_profile=_NO_PROFILE, messages=_SPV_AND_VULKAN_RULES,
        resource=calls["glslang_default_resource"](),
    )
    address = ctypes.addressof(given)
    shader = calls["glslang_shader_create"](address)
    program = None
    try:
        if not (calls["glslang_shader_preprocess"](shader, address)
                and calls["glslang_shader_parse"](shader, address)):
            log = calls["glslang_shader_get_info_log"](shader)
            return GlslError(source.name, _decode(log), source.text)
        program = calls["glslang_program_create"]()
        calls["glslang_program_add_shader"](program, shader)
        if not calls["glslang_program_link"](program, _SPV_AND_VULKAN_RULES):
            log = calls["glslang_program_get_info_log"](program)
            return GlslError(source.name, _decode(log), source.text)
        calls["glslang_program_SPIRV_generate"](program, _COMPUTE)
        size = calls["glslang_program_SPIRV_get_size"](program)
        if not size:
            return GlslError(source.name, "no SPIR-V was generated (is there a main?)", source.text)
        return ctypes.string_at(calls["glslang_program_SPIRV_get_ptr"](program), 4 * size)
    finally:
        if program:
            calls["glslang_program_delete"](program)
        calls["glslang_shader_delete"](shader)


def _decode(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")


def _library_version(library: ctypes.CDLL) -> tuple[int, int, int]:
    version = _Version()
    try:
        library["glslang_get_version"](ctypes.byref(version))
    except AttributeError:
        function = library["_ZN7glslang10GetVersionEv"]
        function.restype = _Version
        version = function()
    return version.major, version.minor, version.patch


def _libraries() -> Iterator[str]:
    """Paths of libraries that may export glslang's C interface, without importing anything."""
    spec = importlib.util.find_spec("vkdispatch_vulkan_native")
    if spec is not None and spec.origin:
        yield spec.origin
    for name in ("glslang", "glslang-default-resource-limits"):
        found = ctypes.util.find_library(name)
        if found:
            yield found
            break
    spec = importlib.util.find_spec("slangpy")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield from sorted(map(str, Path(folder).glob("**/libslang-glslang*")))


# -- as processes

class ProcessCompiler:
    """`glslangValidator` (a file per process, several at a time) or `glslc` (many files in one)."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.identity = _identity(path)
        self._many = Path(path).stem == "glslc"

    @functools.cached_property
    def version(self) -> str:
        """The first line that `--version` prints, after the program's name."""
        return f"{Path(self.path).name}: {self._run(['--version'], None).splitlines()[0].strip()}"

    def _run(self, arguments: list[str], folder: str | None) -> str:
        try:
            done = subprocess.run(
                [self.path, *arguments], cwd=folder, stdin=subprocess.DEVNULL, timeout=_TIMEOUT_S,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompilerUnavailable(f"{self.path}: {error}") from None
        if done.returncode < 0:
            return f"{done.stdout}\n{self.path} ended by signal {-done.returncode}"
        return done.stdout

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]:
        """SPIR-V, or the error, for each source. Raises CompilerUnavailable."""
        if not sources:
            return []
        workers = min(len(sources), os.cpu_count() or 1)
        size = -(-len(sources) // workers) if self._many else 1
        with tempfile.TemporaryDirectory(prefix="webnn_vk_") as folder:
            for i, source in enumerate(sources):
                Path(folder, f"{i}.comp").write_text(source.text, encoding="utf-8", newline="\n")
            batches = [range(i, min(i + size, len(sources))) for i in range(0, len(sources), size)]
            with ThreadPoolExecutor(workers) as pool:
                logs = pool.map(lambda batch: self._batch(folder, batch), batches)
                results = []
                for batch, log in zip(batches, logs, strict=True):
                    results += [self._result(folder, i, sources[i], log) for i in batch]
        return results

    def _batch(self, folder: str, batch: range) -> str:
        files = [f"{i}.comp" for i in batch]
        if self._many:
            flags = ["--target-env=vulkan1.2", "-fshader-stage=comp", "-O0", "-c"]
            return self._run([*flags, *files], folder)
        output = ["-o", f"{files[0]}.spv"]
        return self._run(["--target-env", "vulkan1.2", "-S", "comp", *output, *files], folder)

    def _result(self, folder: str, i: int, source: Source, log: str) -> bytes | GlslError:
        try:
            return Path(folder, f"{i}.comp.spv").read_bytes()
        except FileNotFoundError:
            own = [n for n in log.splitlines() if f"{i}.comp" in n] if self._many else []
            return GlslError(source.name, "\n".join(own) or log, source.text)


def _identity(path: str) -> str:
    """Name, size and time of the file: changes with the compiler and costs one stat."""
    try:
        real = os.path.realpath(path)
        about = os.stat(real)
    except OSError:
        return path
    return f"{os.path.basename(real)} {about.st_size} {about.st_mtime_ns}"


class FallbackCompiler:
    """The first of several compilers that works; the rest are there if it cannot be loaded."""

    def __init__(self, compilers: Sequence[Compiler]) -> None:
        self._compilers = list(compilers)

    @property
    def identity(self) -> str:
        """Of the compiler in use."""
        return self._compilers[0].identity

    @property
    def version(self) -> str:
        """Of the compiler in use. Raises CompilerUnavailable when none works."""
        return self._first(lambda compiler: compiler.version)

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]:
        """SPIR-V, or the error, for each source. Raises CompilerUnavailable when none works."""
        return self._first(lambda compiler: compiler.compile(sources))

    def _first(self, use):
        while True:
            try:
                return use(self._compilers[0])
            except CompilerUnavailable:
                if len(self._compilers) == 1:
                    raise
                del self._compilers[0]


def find_compiler(mode: str | None = None) -> Compiler | None:
    """The GLSL compiler of this machine, or None; nothing is loaded or run yet.

    mode: "auto" (a library, else a program), "process" (a program), "none"; by default what
    WEBNN_VK_GLSLANG says, else "auto". Raises ValueError for another value.
    """
    mode = mode or os.environ.get("WEBNN_VK_GLSLANG") or "auto"
    if mode not in MODES:
        raise ValueError(f"WEBNN_VK_GLSLANG: {mode!r}; accepted: {', '.join(MODES)}")
    found: list[Compiler] = []
    if mode == "auto":
        found += map(LibraryCompiler, _libraries())
    if mode != "none":
        programs = (shutil.which(name) for name in ("glslangValidator", "glslang", "glslc"))
        found += (ProcessCompiler(path) for path in programs if path)
    return FallbackCompiler(found) if found else None
