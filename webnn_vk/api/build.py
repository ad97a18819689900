"""Graphs of a context: made ready on a thread of their own from what was compiled or saved, and
written as they stand."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.compiler.ir import Graph
from webnn_vk.compiler.program import (
    Constants,
    Program,
    Target,
    TensorStorage,
    compile_program,
    kernels_of,
    serial,
)
from webnn_vk.compiler.program.after_setup import settled
from webnn_vk.compiler.program.saved_graphs import SavedGraphs
from webnn_vk.runtime import Device, Executable, Read, Run, Storage
from webnn_vk.runtime.context_state import ContextState
from webnn_vk.runtime.storage import (
    ComputesWrongly,
    DeviceLostError,
    KernelsRefused,
    ShadersMissing,
)
from webnn_vk.runtime.tuning import Tuner
from webnn_vk.support import background
from webnn_vk.support.errors import DOMException, InvalidStateError, OperationError
from webnn_vk.support.promise import MLPromise
from webnn_vk.support.settings import verify_passes
from webnn_vk.support.warnings import say_once

from .ml_graph import MLGraph


@dataclass
class GraphParts:
    """What a graph is made of. ``unused``: inputs that were described and that nothing reads;
    ``modules``: the SPIR-V of the kernels, where it is at hand. ``without``: makes the graph of
    other kernels than those that were refused, where that can be had."""

    program: Program
    constants: Constants
    unused: frozenset[str] = frozenset()
    modules: Mapping[KernelSpec, bytes] | None = None
    without: Callable[[KernelsRefused], GraphParts] | None = None


def compiled(
    graph: Graph, target: Target, device: Device, fall_back: Callable[[Target], None],
    tuner: Tuner | None = None,
) -> GraphParts:
    """A graph compiled, to kernels that need no shader compiler where that fails, and to others
    than those that the compiler or the driver refuses. ``fall_back`` gets the target to use from
    now on where they always will. ``tuner``: measures the kernels first."""
    start = time.perf_counter()
    if tuner is not None:
        tuner(kernels_of(graph, target), target.available)
    tuning = time.perf_counter() - start
    parts = _tried(graph, target, device, fall_back)
    if tuner is not None:
        parts.program.report.build_seconds["tune"] = tuning
    return parts


def _tried(
    graph: Graph, target: Target, device: Device, fall_back: Callable[[Target], None]
) -> GraphParts:
    """A graph compiled to kernels that the device is not known to refuse or to get wrong."""

    def without(error: KernelsRefused) -> GraphParts:
        return _tried(graph, _excluding(error, target, device, fall_back), device, fall_back)

    while True:
        try:
            program, constants = _with_shaders(graph, target, device, fall_back)
            device.try_out(program)
            return GraphParts(program, constants, graph.unused, without=without)
        except KernelsRefused as error:
            if error.defect and verify_passes():
                raise
            target = _excluding(error, target, device, fall_back)
        except ComputesWrongly as error:
            say_once(
                f"{error.feature} of {device.name} is left alone, since {error}; other kernels "
                "compute in its place"
            )
            # Each time with a feature less.
            target = replace(target, profile=target.profile.masked([error.feature]))
            fall_back(target)


def _excluding(
    error: KernelsRefused, target: Target, device: Device, fall_back: Callable[[Target], None]
) -> Target:
    """The target without what was refused. The error itself where that was excluded already."""
    if error.refused.keys() <= target.refused.keys():
        raise error
    say_once(
        f"kernels that the GLSL compiler or the driver of {device.name} refuses are left out; "
        "graph.report() names them, and what computes in their place"
    )
    target = replace(target, refused={**target.refused, **error.refused})
    fall_back(target)
    return target


def _with_shaders(
    graph: Graph, target: Target, device: Device, fall_back: Callable[[Target], None]
) -> tuple[Program, Constants]:
    """The program, whose shaders are at hand, and its constants."""
    program, constants = compile_program(graph, target)
    start = time.perf_counter()
    try:
        device.find_shaders(program)
    except ShadersMissing as error:
        say_once(
            f"{error}; graphs run unfused from precompiled shaders, and on the CPU where "
            "there are none"
        )
        target = replace(target, has_compiler=False, available=device.available)
        if error.for_good:
            fall_back(target)
        program, constants = compile_program(graph, target)
    program.report.build_seconds["shaders"] = time.perf_counter() - start
    return program, constants


def loaded(saved: SavedGraphs, key: str) -> GraphParts:
    """A graph that was saved under a key; see ``SavedGraphs.load``. The device was tried out when
    it was built: another, or another driver, would not get it."""
    start = time.perf_counter()
    parts, unused = saved.load(key)
    parts.program.report.build_seconds["load"] = time.perf_counter() - start
    return GraphParts(parts.program, parts.constants, unused, parts.modules)


def write_graph(state: ContextState, executable: Executable, folder: Path) -> None:
    """Write a program that is set up, with its constants as they lie on the device. Each is read in
    the context's order of work, one at a time."""
    form = settled(executable.program)
    contents = executable.contents()

    def fetch(slot: int) -> np.ndarray:
        held = contents[slot]
        data = held if isinstance(held, np.ndarray) else _read(state, held)
        return data[: sizes[slot]]

    described = zip(form.sources, form.program.constants, strict=True)
    sizes = {slot: descriptor.byte_length for slot, descriptor in described}
    constants = Constants(TensorStorage(slot) for slot in form.sources)
    modules = {spec: executable.modules[spec] for spec in form.program.kernels}
    serial.save(form.program, constants, folder, fetch, modules)


def _read(state: ContextState, storage: Storage) -> np.ndarray:
    promise: MLPromise[np.ndarray] = state.new_promise("the bytes of a weight")
    state.stream.enqueue(Read(storage, promise.resolve, promise.reject))
    return promise.result()


def _nothing() -> None:
    pass


def make_graph(
    state: ContextState,
    prepare: Callable[[], GraphParts],
    what: str,
    begun: Callable[[], None] = _nothing,
    undo: Callable[[], None] = _nothing,
) -> MLPromise[MLGraph]:
    """The graph of ``prepare()``, which runs on a thread of its own: other work on the timeline
    goes on meanwhile. ``what`` names the call in errors. One of ``begun`` and ``undo`` is called:
    when it has, or when there is no thread to do it on."""
    # Emptied: what they refer to goes as early as it can.
    starting = [begun]
    del begun
    promise: MLPromise[MLGraph] = state.new_promise("an MLGraph")

    def failed(error: BaseException) -> None:
        promise.reject(_as_rejection(error, what))

    def refused(error: Exception) -> None:
        undo()
        promise.reject(error)

    def make() -> None:
        starting.pop()()
        try:
            with state.timeline.building():
                parts = prepare()
                while True:
                    try:
                        executable = load_executable(state, parts)
                        break
                    except KernelsRefused as error:
                        if parts.without is None:
                            raise
                        parts = parts.without(error)
            report = executable.report
            for stage, seconds in executable.build_seconds.items():
                report.build_seconds[stage] = report.build_seconds.get(stage, 0) + seconds
            graph = MLGraph(state, executable, report, parts.unused)
            del parts
            state.register(graph)

            def set_up() -> None:
                error = executable.setup_error()
                if error is None:
                    promise.resolve(graph)
                else:
                    failed(error)

            executable.set_up(state.stream, Run(set_up, failed))
        except DeviceLostError as error:
            state.timeline.lose(str(error))
            promise.reject(InvalidStateError(f"the context is lost: {error}"))
        except BaseException as error:  # panics of libraries in Rust are no Exceptions
            failed(error)

    if not background.start(make, what, refused=refused):
        promise.reject(InvalidStateError("the interpreter is exiting"))
    return promise


def load_executable(state: ContextState, parts: GraphParts) -> Executable:
    """What runs, still to be set up; see ``Device.load``."""
    try:
        return state.device.load(parts.program, parts.constants, parts.modules)
    except MemoryError:
        # Once what runs now is over, what was destroyed before is given back.
        state.stream.fence().wait()
        return state.device.load(parts.program, parts.constants, parts.modules)


def in_background(
    state: ContextState, of: str, call: Callable[[], Any], what: str = "call"
) -> MLPromise[Any]:
    """A promise ``of`` the result of ``call()`` on a thread of its own."""
    promise = state.new_promise(of)

    def run() -> None:
        try:
            promise.resolve(call())
        except BaseException as error:
            promise.reject(_as_rejection(error, what))

    if not background.start(run, what, refused=promise.reject):
        promise.reject(InvalidStateError("the interpreter is exiting"))
    return promise


def _as_rejection(error: BaseException, what: str) -> Exception:
    if isinstance(error, (DOMException, TypeError)) and what != "build":
        return error
    if isinstance(error, (InvalidStateError, OperationError)):
        return error
    if isinstance(error, MemoryError):
        return OperationError(f"{what}: out of memory: {error}")
    wrapped = OperationError(f"{what}: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
