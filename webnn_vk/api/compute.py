"""``context.compute``: one run of a graph on arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from webnn_vk.compiler.types.buffers import as_bytes, is_exactly
from webnn_vk.compiler.types.data_types import elements, entries
from webnn_vk.runtime.context_state import ContextState
from webnn_vk.runtime.cpu import CpuExecutable
from webnn_vk.runtime.mapping import fill
from webnn_vk.runtime.staging import SMALL_BYTES, Reservation
from webnn_vk.runtime.storage import Storage
from webnn_vk.runtime.work import Executable, Read, RunGraph, Work, Write
from webnn_vk.support import background
from webnn_vk.support.errors import sanitize
from webnn_vk.support.promise import MLPromise

from .ml_graph import MLGraph, check_alive, check_names, executable_of


def checked_arrays(
    state: ContextState, graph: MLGraph, inputs: Mapping[str, Any], what: str
) -> tuple[Executable, CpuExecutable | None, dict[str, np.ndarray]]:
    """The executable; the same if it is to be called directly, with the inputs by name as arrays of
    elements, or None, with the inputs as bytes, if the run must go through the context's order of
    work. Under a profile all runs do."""
    inputs = entries(inputs, f"{what}: inputs is a mapping of names to arrays")
    executable = executable_of(graph, state, what, _shapes, inputs)
    profiled = state.timeline.observer is not None
    at_once = None
    if isinstance(executable, CpuExecutable) and executable.at_once and not profiled:
        # No other work uses this executable's memory.
        at_once = executable
    expected = executable.program.inputs
    check_names(inputs, expected, f"{what}: inputs", graph._unused)
    arrays = {}
    for name, descriptor in expected.items():
        array = inputs[name]
        if at_once is None or not is_exactly(array, descriptor):
            array = as_bytes(array, descriptor, f"{what}: input {sanitize(name)!r}")
            if at_once is not None:
                array = array.view(descriptor.numpy_dtype).reshape(descriptor.shape)
                array = np.require(array, requirements=["ALIGNED"])
        arrays[name] = array
    return executable, at_once, arrays


def _shapes(graph: MLGraph, inputs: Mapping[str, Any], what: str) -> dict[str, tuple[int, ...]]:
    check_names(inputs, graph.inputs, f"{what}: inputs", graph._unused)
    return {name: np.shape(array) for name, array in inputs.items()}


def run_once(
    state: ContextState,
    graph: MLGraph,
    executable: Executable,
    inputs: dict[str, np.ndarray],
    held: Reservation | None = None,
) -> dict[str, np.ndarray]:
    """A run in the context's order of work: the outputs by name. ``held``: the staging memory
    reserved for the inputs, if they are copies. ``inputs``, bytes by name, is emptied."""
    check_alive(graph, "compute")
    state.check()
    if held is None:
        size = sum(view.nbytes for view in inputs.values())
        held = state.timeline.staging.reserve(size, "compute")
    # Only this call uses the memory. No earlier work does, so the host may write to it at once; no
    # later work does, so it need not be zeroed or copied before it is read.
    works: list[Work] = []
    workspace = executable.workspace
    sources, results = workspace and workspace.take() or ({}, {})
    sources, results = dict(sources), dict(results)
    while inputs:
        name, view = inputs.popitem()
        if name not in sources:
            sources[name], before = state.new_storage(view.nbytes, False)
            works += before
        with state.timeline.building():
            filled = fill(sources[name], view)
        if not filled:
            works.append(_writing(state, sources[name], view, held))
        del view
    for name, d in executable.program.outputs.items():
        if name not in results:
            results[name], before = state.new_storage(d.byte_length, False)
            works += before
    works.append(RunGraph(executable, sources, results))
    promises = {}
    for name, d in executable.program.outputs.items():
        promises[name] = promise = state.new_promise(f"an array {d}")

        def done(data: np.ndarray, d: Any = d, promise: MLPromise[Any] = promise) -> None:
            promise.resolve(elements(data, d))

        works.append(Read(results[name], done, promise.reject, last=True))
    state.stream.enqueue(*works)
    del works
    # Retrieve the errors of all promises, even if several are rejected.
    errors = [promise.exception() for promise in promises.values()]
    if workspace is not None and not any(errors):
        workspace.keep((sources, results))
    del sources, results
    return {name: promise.result() for name, promise in promises.items()}


def _writing(state: ContextState, storage: Storage, view: np.ndarray, held: Reservation) -> Write:
    """The work that writes a copy of ``view``. The copy is made now."""
    staged = None
    if view.nbytes > SMALL_BYTES:
        staged = background.run_on_worker(state.stage, view)
    copied = view.copy() if staged is None else None
    return Write(storage, copied, staged, held=held)
