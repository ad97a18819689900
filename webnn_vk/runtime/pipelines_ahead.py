"""Pipelines that are made while the rest of their graph is still being compiled.

A driver takes 10 to 300 ms to make one, most of it without the interpreter. The executable asks for
the same pipelines afterwards: those that are there or being made are not made again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.codegen.store import ShaderStore
from webnn_vk.compiler.program import Planned, SpecConstants
from webnn_vk.driver import Driver, PipelineRequest
from webnn_vk.support import memory_probe
from webnn_vk.support.processor import cores

from .executable import pipeline_request

#: More threads gain nothing; one core is the compiler's.
_MAX_THREADS = 15
#: Seconds that the compiler's thread leaves the interpreter to the others.
_MOMENT = 50e-6


class _Ahead:
    """Makes pipelines on threads of its own. Its errors are of no account: whoever needs the
    pipeline meets them again."""

    def __init__(self, driver: Driver, shaders: ShaderStore, pool: ThreadPoolExecutor) -> None:
        self._driver, self._shaders, self._pool = driver, shaders, pool
        self._seen: set[tuple[KernelSpec, SpecConstants]] = set()
        # The driver may drop a pipeline that nobody uses.
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
        request = pipeline_request(spec, module, constants, self._driver.profile)
        try:
            memory_probe.require_for_thread()
            self._pool.submit(self._make, request)
        except RuntimeError:
            return  # the system has no thread left, or the process ends
        time.sleep(_MOMENT)

    def _make(self, request: PipelineRequest) -> None:
        self._made += self._driver.pipelines([request])


@contextmanager
def pipelines_ahead(driver: Driver, shaders: ShaderStore) -> Iterator[Planned]:
    """The function for ``Target.planned``. After the block no pipeline is being made."""
    threads = max(1, min(_MAX_THREADS, cores() - 1))
    pool = ThreadPoolExecutor(threads, thread_name_prefix="webnn_vk-pipelines")
    try:
        yield _Ahead(driver, shaders, pool).planned
    finally:
        pool.shutdown(cancel_futures=True)
