"""GLSL to SPIR-V: by a library that contains glslang, in this process, where one is installed, else
by the programs `glslc` or `glslangValidator`. `WEBNN_VK_GLSLANG` = none | process | auto chooses.

The target is Vulkan 1.2 with SPIR-V 1.5. No optimiser runs: drivers optimise, and another optimiser
would cost more than it saves.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from webnn_vk.support import environment, forks

from .files import identity_of, no_file_can_be_opened
from .glsl import SPIRV_VERSION, TARGET, CompilerUnavailable, GlslError, Source

MODES = ("auto", "process", "none")
_EMPTY = "#version 450\nvoid main() {}\n"
_T = TypeVar("_T")


class Compiler(Protocol):
    """identity: a cheap fingerprint for names of cache files. version: a text for users; reading it
    may load or run the compiler. prepare: begin, on another thread, what precedes the first
    compilation."""

    identity: str

    @property
    def version(self) -> str: ...

    def prepare(self) -> None: ...

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]: ...


#: The compiler's flags; part of a module's address.
FLAGS = f"compute {TARGET} spirv{'.'.join(map(str, SPIRV_VERSION))} O0"


# -- in this process
class LibraryCompiler:
    """A library that contains glslang (glslang's own or Slang's), loaded on first use.
    Thread-safe by a lock."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.identity = identity_of(path)
        self._lock = threading.Lock()
        self._library: Any = None
        self._prepared = False

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
                temporary = no_file_can_be_opened()
                raise CompilerUnavailable(f"{self.path}: {error}", temporary=temporary) from None
        return self._library

    def prepare(self) -> None:
        """Load the library and its tables of built-in functions on another thread: 0.1 s."""
        if not self._prepared:
            from webnn_vk.support import background

            self._prepared = True
            with suppress(MemoryError):  # no room for a thread: the compilation loads it
                background.start(self._warm_up, "glslang")

    def _warm_up(self) -> None:
        from webnn_vk.support.heap import trim_heap

        with suppress(CompilerUnavailable):  # the compilation raises it
            self.compile([Source(_EMPTY, "empty")])
            # What glslang needed only to make its tables is in this thread's part of the heap.
            trim_heap()

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]:
        """SPIR-V, or the error, for each source. Raises CompilerUnavailable."""
        results: list[bytes | GlslError] = []
        for source in sources:
            # A child forked during a compilation could neither continue it nor start another.
            with self._lock, forks.undisturbed("glslang"):
                made = self._load().compile(source)
            results.append(
                GlslError(source.name, made, source.text) if isinstance(made, str) else made
            )
        return results


def _libraries() -> Iterator[str]:
    """Paths of libraries that may contain glslang. Imports nothing."""
    spec = importlib.util.find_spec("vkdispatch_vulkan_native")
    if spec is not None and spec.origin:
        yield spec.origin
    # find_library runs programs, so it is used only after the others.
    from ctypes.util import find_library

    name = find_library("glslang")
    if name:
        yield name
    spec = importlib.util.find_spec("slangpy")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield from sorted(map(str, Path(folder).glob("**/libslang-glslang*")))


class FallbackCompiler:
    """The first of several compilers that works. Where one is unusable, the next is used, unless
    the failure is temporary."""

    def __init__(self, compilers: Iterable[Compiler]) -> None:
        """Raises StopIteration where there is none."""
        self._rest = iter(compilers)
        self._current = next(self._rest)
        self._lock = threading.Lock()

    @property
    def identity(self) -> str:
        """The identity of the compiler in use."""
        return self._current.identity

    @property
    def version(self) -> str:
        """The version of the compiler in use. Raises CompilerUnavailable where none works."""
        return self._first(lambda compiler: compiler.version)

    def prepare(self) -> None:
        """Begin what precedes the first compilation of the compiler in use."""
        self._current.prepare()

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]:
        """SPIR-V, or the error, for each source. Raises CompilerUnavailable when none works."""
        return self._first(lambda compiler: compiler.compile(sources))

    def _first(self, use: Callable[[Compiler], _T]) -> _T:
        while True:
            compiler = self._current
            try:
                return use(compiler)
            except CompilerUnavailable as error:
                if error.temporary:
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
        with forks.undisturbed():
            import shutil

            from .process import ProcessCompiler

        # glslc comes first: it compiles many files in one process; glslangValidator needs a process
        # (70 ms) for each.
        programs = map(shutil.which, ("glslc", "glslangValidator", "glslang"))
        yield from (ProcessCompiler(path) for path in programs if path)


def supports(compiler: Compiler, extension: str) -> bool:
    """Whether a compiler supports an extension of GLSL. Raises CompilerUnavailable."""
    text = f"#version 450\n#extension {extension} : require\nvoid main() {{}}\n"
    (result,) = compiler.compile([Source(text, f"probe of {extension}")])
    return not isinstance(result, GlslError)


def find_compiler(mode: str | None = None) -> Compiler | None:
    """The GLSL compiler of this machine, or None. Loads and runs nothing yet.

    mode: "auto" (a library, else a program), "process" (a program) or "none"; by default the value
    of WEBNN_VK_GLSLANG, else "auto". Raises ValueError for another value.
    """
    mode = mode or environment.text("WEBNN_VK_GLSLANG") or "auto"
    if mode not in MODES:
        raise ValueError(f"WEBNN_VK_GLSLANG: {mode!r}; accepted: {', '.join(MODES)}")
    try:
        return FallbackCompiler(_found(mode))
    except StopIteration:
        return None

