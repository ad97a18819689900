"""A device with a driver: programs become pipelines and recorded command buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from webnn_vk.codegen.glsl import GlslError
from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.codegen.store import ShaderStore, ShaderUnavailable
from webnn_vk.compiler.program import Constants, Planned, Program
from webnn_vk.driver import DeviceLost, Driver, DriverError
from webnn_vk.support.heap import trim_heap

from . import batch_assembly
from .device import Batch
from .driver_memory import DriverMemory, translated
from .engine import NUMPY, HostEngine
from .executable import DriverExecutable
from .pipelines_ahead import pipelines_ahead
from .self_test import Trials
from .storage import DeviceLostError, KernelsRefused, ShadersMissing
from .work import Executable, Work


class DriverDevice(DriverMemory):
    """See ``device.Device``. One driver, one queue."""

    def __init__(
        self, driver: Driver, shaders: ShaderStore, engine: HostEngine = NUMPY
    ) -> None:
        super().__init__(driver, shaders, engine)
        self.trials = Trials()

    def stage(self, data: np.ndarray) -> Sequence[Any]:
        staged = []
        for start in range(0, len(data), batch_assembly.PIECE_BYTES):
            piece = data[start : start + batch_assembly.PIECE_BYTES]
            try:
                staged.append(self.find(len(piece), host=True, label="staging"))
            except DriverError:
                # The timeline thread retries after earlier work has freed memory.
                return ()
            staged[-1].write(piece)
        return staged

    def keep_shaders(self, modules: Mapping[Any, bytes]) -> None:
        self.shaders.keep(modules)

    def find_shaders(self, program: Program) -> None:
        try:
            self.shaders.get(program.kernels)
        except ShaderUnavailable as error:
            if not error.failed:
                raise
            raise ShadersMissing(str(error), not self.shaders.has_compiler) from error
        except GlslError as error:
            raise self._refused(program) from error

    def _refused(self, program: Program) -> KernelsRefused:
        """All modules of a program that the GLSL compiler refuses, each compiled alone."""
        refused: dict[Any, str] = {}
        for spec in program.kernels:
            try:
                self.shaders.get([spec])
            except GlslError as error:
                first = next(iter(error.log.splitlines()), "without a message")
                refused[spec, None] = f"the GLSL compiler refuses {spec.template}: {first}"
        return KernelsRefused(refused, defect=True)

    def try_out(self, program: Program) -> None:
        with translated():
            self.trials.require(self, program)

    def available(self, spec: KernelSpec) -> bool:
        return self.shaders.available(spec, compiling=False)

    def planning(self) -> AbstractContextManager[Planned]:
        return pipelines_ahead(self.driver, self.shaders)

    def load(
        self,
        program: Program,
        constants: Constants,
        modules: Mapping[Any, bytes] | None = None,
        like: Executable | None = None,
    ) -> Executable:
        self.free_deferred()
        arenas = like.arenas if isinstance(like, DriverExecutable) else ()
        refused = None if like is None else like.refused
        with translated():
            return DriverExecutable(self, program, constants, modules, arenas, refused)

    # -- running -------------------------------------------------------------------------------
    def execute(self, works: Sequence[Work]) -> Batch:
        batch = Batch(works)
        if self.observer is not None:
            batch.observer = self.observer.begin(works)
        self._used = True
        run = batch_assembly.BatchAssembly(self, batch)
        for work in works:
            try:
                run.add(work)
            except DeviceLost as error:
                raise DeviceLostError(str(error)) from error
            except Exception as error:
                batch.refuses(work, error)
        run.end()
        if batch.observer is not None:
            batch.observer.submitted()
        self.free_deferred()
        return batch

    def is_over(self, batch: Batch) -> bool:
        try:
            return batch.value is None or self.driver.completed() >= batch.value
        except DriverError:
            return True

    def wait(self, batch: Batch) -> None:
        if batch.value is not None:
            self.wait_value(batch.value)
        if batch.observer is not None:
            batch.observer.done()
        self.free_deferred()

    def close(self) -> None:
        self.driver.close()
        trim_heap()
