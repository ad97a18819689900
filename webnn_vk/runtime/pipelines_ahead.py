"""Pipelines that are made while the rest of their graph is still being compiled.

A driver takes 10 to 300 ms to make one, most of it without the interpreter. The executable asks for
the same pipelines afterwards: those that are there or being made are not made again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.codegen.store import ShaderStore
from webnn_vk.compiler.program import Planned, SpecConstants
from webnn_vk.driver import Driver, DriverError, PipelineRequest
from webnn_vk.support import memory_probe
from webnn_vk.support.processor import cores

from .executable import pipeline_request

#: More threads gain nothing; one core is the compiler's.
_MAX_THREADS = 15
#: Seconds that the compiler's thread leaves the interpreter to the others.
_MOMENT = 50e-6


class _Ahead:
    """Makes pipelines on threads of its own. Errors are ignored here: the executable asks for the
    same pipelines again and reports them."""

    def __init__(self, driver: Driver, shaders: ShaderStore) -> None:
        self._driver, self._shaders = driver, shaders
        self._seen: set[tuple[KernelSpec, SpecConstants]] = set()
        self._left: deque[PipelineRequest] = deque()
        self._threads: list[threading.Thread] = []
        # Kept until the end: the driver drops pipelines without users.
        self._made: list[Any] = []

    def planned(self, spec: KernelSpec, constants: SpecConstants) -> None:
        """Begin to make a pipeline, unless that was asked before or it needs the GLSL compiler,
        which takes all modules of a graph at once."""
        if (spec, constants) in self._seen:
            return
        self._seen.add((spec, constants))
        if not self._shaders.available(spec, compiling=False):
            return
        # Found by this thread: the others get the interpreter for moments only.
        (module,) = self._shaders.get([spec])
        self._left.append(pipeline_request(spec, module, constants, self._driver.profile))
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) < max(1, min(_MAX_THREADS, cores() - 1)):
            thread = threading.Thread(target=self._make, name="webnn_vk-pipelines", daemon=True)
            try:
                memory_probe.require_for_thread()
                thread.start()
            except RuntimeError:
                return  # the system has no thread left
            self._threads.append(thread)
        time.sleep(_MOMENT)

    def end(self) -> None:
        """Begin with no more of them, and wait for those that are being made."""
        self._left.clear()
        for thread in self._threads:
            thread.join()

    def _make(self) -> None:
        while self._left:
            try:
                self._made += self._driver.pipelines([self._left.popleft()])
            except (DriverError, IndexError, MemoryError, ValueError):
                pass  # refused, or another thread has taken it


@contextmanager
def pipelines_ahead(driver: Driver, shaders: ShaderStore) -> Iterator[Planned]:
    """The function for ``Target.planned``. After the block no pipeline is being made."""
    ahead = _Ahead(driver, shaders)
    try:
        yield ahead.planned
    finally:
        ahead.end()
