"""Building, loading and saving the graphs of a context, each on a background thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk import __version__
from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.codegen.store import ShaderUnavailable
from webnn_vk.compiler.ir import Graph
from webnn_vk.compiler.program import (
    Constants,
    Planned,
    Program,
    Target,
    TensorStorage,
    compile_program,
    kernels_of,
    serial,
    shaped_files,
)
from webnn_vk.compiler.program.after_setup import after_setup
from webnn_vk.compiler.program.saved_graphs import SavedGraphs, check_key
from webnn_vk.compiler.program.shaped_files import LoadedGraph
from webnn_vk.compiler.program.shaped_program import ShapedGraph, ShapedProgram, compile_for
from webnn_vk.compiler.types.data_types import require_data_type
from webnn_vk.runtime.context_state import ContextState
from webnn_vk.runtime.storage import KernelsRefused, Miscompiles, ShadersMissing, Storage
from webnn_vk.runtime.work import Executable, Read, Run
from webnn_vk.support.errors import DOMException, InvalidStateError, OperationError
from webnn_vk.support.experimental import require_experimental
from webnn_vk.support.promise import MLPromise, settle_in_background, start_for
from webnn_vk.support.settings import verify_passes
from webnn_vk.support.warnings import say_once

from .constants import elements_of
from .donation import check_in_place
from .ml_graph import MLGraph, executable_of
from .shaped_executables import ShapedExecutables

#: The executable of a graph, whose set-up is queued; the inputs that were described, but that no
#: node reads; and for a graph with named dimensions, which is set up, its executables by shape.
Loaded = tuple[Executable, frozenset[str], ShapedExecutables | None]


#: Compiles a graph for a target.
CompileFor = Callable[[Target], tuple[Program, Constants]]


def build_graph(
    state: ContextState, take: Callable[[], Graph | ShapedGraph], give_up: Callable[[], None],
    in_place: bool,
) -> MLPromise[MLGraph]:
    """Compile the graph that ``take()`` returns when the build begins. ``give_up`` is called
    instead if no thread can be started for the build. ``in_place``: refuse a graph that keeps
    copies of donated inputs."""

    def compile_plain(graph: Graph, target: Target) -> tuple[Program, Constants]:
        program, constants = compile_program(graph, target)
        if in_place:
            check_in_place(program)
        return program, constants

    def prepare() -> Loaded:
        graph = take()
        target = replace(state.target, after_pass=state.after_pass)
        if isinstance(graph, ShapedGraph):
            return _shapes(graph, state, in_place)
        start = time.perf_counter()
        if state.tuner is not None:
            state.tuner(kernels_of(graph, target), target.available)
        tuning = time.perf_counter() - start
        executable = _compiled(partial(compile_plain, graph), target, state)
        if state.tuner is not None:
            executable.report.build_seconds["tune"] = tuning
        return executable, graph.unused, None

    return state.promised(lambda: _make_graph(state, prepare, "build", give_up))


def _shapes(
    graph: ShapedGraph, state: ContextState, in_place: bool,
    modules: Mapping[KernelSpec, bytes] | None = None,
) -> Loaded:
    """A graph with named dimensions, compiled for some sizes and set up. ``modules``: the SPIR-V
    that the graph was saved with."""
    if modules:
        state.device.keep_shaders(modules)

    def compile_sizes(
        sizes: Sequence[int], other: Executable | None
    ) -> tuple[ShapedProgram, Executable]:
        made: list[ShapedProgram] = []

        def compile_for_sizes(target: Target) -> tuple[Program, Constants]:
            limit = state.device.max_tensor_byte_length
            many, program, constants = compile_for(graph, target, sizes, limit)
            if in_place:
                check_in_place(program)
            made[:] = [many]
            return program, constants

        if state.tuner is not None:
            state.tuner(
                kernels_of(graph.at_example(sizes), state.target), state.target.available
            )
        try:
            # With the modules, kernels are chosen as where the graph was saved.
            target = replace(state.target, has_compiler=True) if modules else state.target
            executable = _compiled(compile_for_sizes, target, state, other)
        except ShaderUnavailable:
            if state.target.has_compiler or not modules:
                raise
            executable = _compiled(compile_for_sizes, state.target, state, other)
        done: MLPromise[None] = state.new_promise("the end of the set-up")
        state.stream.enqueue(Run(lambda: done.resolve(None), done.reject))
        done.result()
        if (error := executable.setup_error()) is not None:
            raise error
        return made[0], executable

    shapes = ShapedExecutables(graph, state, compile_sizes, in_place)
    return shapes.build(), graph.graph.unused, shapes


def _compiled(
    compile_graph: CompileFor, target: Target, state: ContextState, like: Executable | None = None
) -> Executable:
    """A graph compiled, without the kernels that the device is known to refuse or miscompile.
    ``like``: an executable of the same graph for other sizes."""
    with state.device.planning() as planned:
        return _loaded(compile_graph, target, state, like, planned)


def _loaded(
    compile_graph: CompileFor, target: Target, state: ContextState, like: Executable | None,
    planned: Planned | None,
) -> Executable:
    while True:
        try:
            program, constants = compile_graph(replace(target, planned=planned))
            start = time.perf_counter()
            state.device.find_shaders(program)
            program.report.build_seconds["shaders"] = time.perf_counter() - start
            state.device.try_out(program)
            executable = load_executable(state, program, constants, like=like)
            executable.set_up(state.stream)
            return executable
        except ShadersMissing as error:
            if not target.has_compiler:
                raise
            say_once(
                f"{error}; graphs run unfused from precompiled shaders, and on the CPU where "
                "there are none"
            )
            target = replace(target, has_compiler=False, available=state.device.available)
            if error.for_good:
                _fall_back(state, target)
        except KernelsRefused as error:
            if error.defect and verify_passes():
                raise
            target = _excluding(error, target, state)
        except Miscompiles as error:
            say_once(
                f"{error.feature} of {state.device.name} is not used, because {error}; other "
                "kernels take its place"
            )
            # Ends: each time there is one feature less.
            target = _fall_back(
                state, replace(target, profile=target.profile.masked([error.feature]))
            )


def _fall_back(state: ContextState, target: Target) -> Target:
    """Make ``target`` the target of the context's later graphs, and return it."""
    state.target = replace(target, after_pass=None)
    return target


def _excluding(error: KernelsRefused, target: Target, state: ContextState) -> Target:
    """The target without the refused kernels. Raises the error if it excludes them already."""
    if error.refused.keys() <= target.refused.keys():
        raise error
    say_once(
        f"kernels that the GLSL compiler or the driver of {state.device.name} refuses are not "
        "used; graph.report() names them, and the kernels that replace them"
    )
    return _fall_back(state, replace(target, refused={**target.refused, **error.refused}))


def load_graph(state: ContextState, folder: Path | None, key: str) -> MLPromise[MLGraph]:
    """The graph saved under a key; see ``SavedGraphs.load``. The device was tested when the graph
    was built; other devices and drivers can't load it."""
    check_key(key, "load_graph")
    saved = _saved(state, folder)

    def prepare() -> Loaded:
        start = time.perf_counter()
        parts, unused = saved.load(key)
        if isinstance(parts, LoadedGraph):
            what = "load_graph: named dimensions"
            require_experimental(state.experimental, "dynamic-shapes", what)
            named = replace(parts.graph.graph, unused=unused)
            for node in named.nodes:
                for value in (*node.inputs, *node.outputs):
                    require_data_type(value.data_type, state.experimental, "load_graph")
            shaped = replace(parts.graph, graph=named)
            return _shapes(shaped, state, parts.in_place, parts.modules)
        for described in (*parts.program.inputs.values(), *parts.program.outputs.values()):
            require_data_type(described.data_type, state.experimental, "load_graph")
        parts.program.report.build_seconds["load"] = time.perf_counter() - start
        executable = load_executable(state, parts.program, parts.constants, parts.modules)
        executable.set_up(state.stream)
        return executable, unused, None

    return _make_graph(state, prepare, "load_graph")


def save_graph(
    state: ContextState, folder: Path | None, key: str, graph: MLGraph
) -> MLPromise[None]:
    """Save a graph after its set-up. Its constants are read from the device one at a time, in the
    context's order of work."""
    check_key(key, "save_graph")
    executable, unused = executable_of(graph, state, "save_graph"), graph._unused
    saved, shapes = _saved(state, folder), graph._shapes

    def write(folder: Path) -> None:
        if shapes is not None:
            shaped_files.save(shapes.shaped, shapes.in_place, folder, elements_of, shapes.modules())
            return
        form = after_setup(executable.program)
        contents = executable.contents()

        def fetch(slot: int) -> np.ndarray:
            held = contents[slot]
            data = held if isinstance(held, np.ndarray) else read_storage(state, held)
            return data[: sizes[slot]]

        described = zip(form.sources, form.program.constants, strict=True)
        sizes = {slot: descriptor.byte_length for slot, descriptor in described}
        constants = Constants(TensorStorage(slot) for slot in form.sources)
        modules = {spec: executable.modules[spec] for spec in form.program.kernels}
        serial.save(form.program, constants, folder, fetch, modules)

    return in_background(
        state, "None, once the graph is saved", lambda: saved.save(key, write, unused), "save_graph"
    )


def list_graphs(state: ContextState, folder: Path | None) -> MLPromise[list[str]]:
    """The keys of all saved graphs."""
    return in_background(state, "keys", _saved(state, folder).keys, "list_graphs")


def delete_graph(state: ContextState, folder: Path | None, key: str) -> MLPromise[None]:
    """Remove the graph saved under a key."""
    check_key(key, "delete_graph")
    saved = _saved(state, folder)
    return in_background(state, "None", lambda: saved.delete(key), "delete_graph")


def _saved(state: ContextState, folder: Path | None) -> SavedGraphs:
    return SavedGraphs(folder, state.device.profile, __version__)


def read_storage(state: ContextState, storage: Storage) -> np.ndarray:
    """The bytes of a constant, after all earlier work of the context."""
    promise: MLPromise[np.ndarray] = state.new_promise("a constant's bytes")
    state.stream.enqueue(Read(storage, promise.resolve, promise.reject))
    return promise.result()


def _make_graph(
    state: ContextState,
    prepare: Callable[[], Loaded],
    what: str,
    give_up: Callable[[], None] = lambda: None,
) -> MLPromise[MLGraph]:
    """The graph that ``prepare()`` returns. It runs on a background thread, while other work on the
    timeline continues. ``what`` names the call in errors. ``give_up`` is called if no thread can be
    started."""
    promise: MLPromise[MLGraph] = state.new_promise("an MLGraph")

    def failed(error: BaseException) -> None:
        promise.reject(_as_rejection(error, what))

    def refused(error: BaseException) -> None:
        give_up()
        failed(error)

    def make() -> None:
        try:
            with state.noticing_loss(), state.timeline.building():
                executable, unused, shapes = prepare()
            known = executable.report.build_seconds
            for stage, seconds in executable.build_seconds.items():
                known[stage] = known.get(stage, 0) + seconds
            graph = MLGraph(state, executable, unused, shapes)
            state.register(graph)
            if shapes is not None:  # it is set up
                promise.resolve(graph)
                return

            def set_up() -> None:
                error = executable.setup_error()
                if error is None:
                    promise.resolve(graph)
                else:
                    failed(error)

            with state.noticing_loss():
                state.stream.enqueue(Run(set_up, failed))
        except BaseException as error:  # panics of Rust libraries are not Exceptions
            failed(error)

    return start_for(promise, make, what, refused)


def load_executable(
    state: ContextState, program: Program, constants: Constants,
    modules: Mapping[KernelSpec, bytes] | None = None, like: Executable | None = None,
) -> Executable:
    """The executable, before its set-up; see ``Device.load``."""
    try:
        return state.device.load(program, constants, modules, like)
    except MemoryError:
        # Memory of destroyed objects is freed once the running work is done.
        state.stream.fence().wait()
        return state.device.load(program, constants, modules, like)


def in_background(
    state: ContextState, of: str, call: Callable[[], Any], what: str
) -> MLPromise[Any]:
    """A promise ``of`` the result of ``call()`` on a background thread."""
    promise = state.new_promise(of)
    return settle_in_background(promise, call, what, lambda error: _as_rejection(error, what))


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
