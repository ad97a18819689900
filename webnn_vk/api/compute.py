"""``context.compute``: one run of a graph on arrays."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from webnn_vk.compiler.types.buffers import as_bytes, is_exactly
from webnn_vk.compiler.types.data_types import MLOperandDescriptor, elements, entries
from webnn_vk.runtime.context_state import ContextState
from webnn_vk.runtime.cpu import CpuExecutable
from webnn_vk.runtime.mapping import can_copy, can_fill, copied, fill
from webnn_vk.runtime.staging import SMALL_BYTES, Reservation
from webnn_vk.runtime.storage import Storage
from webnn_vk.runtime.tensor_state import owned
from webnn_vk.runtime.work import Executable, Read, Run, RunGraph, Work, Write
from webnn_vk.support import background
from webnn_vk.support.errors import sanitize, shortage_error
from webnn_vk.support.promise import MLPromise

from .ml_graph import MLGraph, check_alive, check_names, executable_of, storages
from .tensor import MLTensor

#: A run with more bytes of inputs and outputs is not submitted by its caller: copying them takes
#: longer than waking other threads.
DIRECT_BYTES = 1 << 20


def checked_arrays(
    state: ContextState, graph: MLGraph, inputs: Mapping[str, Any], what: str
) -> tuple[Executable, CpuExecutable | None, dict[str, np.ndarray], dict[str, Storage]]:
    """The executable; the same if it is to be called directly, with the inputs by name as arrays of
    elements, or None, with the inputs as bytes, if the run must go through the context's order of
    work. Under a profile all runs do, and those on tensors, whose storages come last."""
    inputs = entries(inputs, f"{what}: inputs is a mapping of names to arrays")
    executable = executable_of(graph, state, what, _shapes, inputs)
    profiled = state.timeline.observer is not None
    at_once = None
    tensors = {name: x for name, x in inputs.items() if isinstance(x, MLTensor)}
    direct = not profiled and not tensors
    if isinstance(executable, CpuExecutable) and executable.at_once and direct:
        # No other work uses this executable's memory.
        at_once = executable
    expected = executable.program.inputs
    check_names(inputs, expected, f"{what}: inputs", graph._unused)
    shared = _shared(state, executable, tensors, what) if tensors else {}
    arrays = {}
    for name, descriptor in expected.items():
        if name in shared:
            continue
        array = inputs[name]
        if at_once is None or not is_exactly(array, descriptor):
            array = as_bytes(array, descriptor, f"{what}: input {sanitize(name)!r}")
            if at_once is not None:
                array = array.view(descriptor.numpy_dtype).reshape(descriptor.shape)
                array = np.require(array, requirements=["ALIGNED"])
        arrays[name] = array
    return executable, at_once, arrays, shared


def _shared(
    state: ContextState, executable: Executable, tensors: Mapping[str, MLTensor], what: str
) -> dict[str, Storage]:
    """The storages of tensors that are given for donated inputs."""
    program = executable.program
    for name, tensor in tensors.items():
        if name not in program.donated:
            raise TypeError(
                f"{what}: input {sanitize(name)!r} is a tensor, an array is expected; only a "
                "donated input may be a tensor (build(…, donate={input: output}))"
            )
        owned(tensor, state, what)
        tensor._state.use(what)
    if len({*map(id, tensors.values())}) < len(tensors):
        raise TypeError(f"{what}: a tensor is given for more than one input")
    return storages(tensors, {name: program.inputs[name] for name in tensors}, "input", what=what)


def _shapes(graph: MLGraph, inputs: Mapping[str, Any], what: str) -> dict[str, tuple[int, ...]]:
    check_names(inputs, graph.inputs, f"{what}: inputs", graph._unused)
    return {
        name: x.shape if isinstance(x, MLTensor) else np.shape(x) for name, x in inputs.items()
    }


def run_once(state: ContextState, *run: Any) -> dict[str, np.ndarray]:
    """A run in the context's order of work, given as for ``_prepared``: the outputs by name."""
    outputs = _run_directly(state, *run)
    if outputs is not None:
        return outputs
    works, _, wait = _prepared("compute", state, *run)
    state.stream.enqueue(*works)
    del works  # only the order of work holds its memory
    return wait()


def _run_directly(
    state: ContextState,
    graph: MLGraph,
    executable: Any,
    inputs: dict[str, np.ndarray],
    shared: Mapping[str, Storage],
) -> dict[str, np.ndarray] | None:
    """A run that this thread submits and waits for, on memory that an earlier one has left; None,
    with the inputs as they were, if that can't be (see ``runtime.direct``)."""
    timeline, workspace = state.timeline, executable.workspace
    if shared or workspace is None or workspace.size > DIRECT_BYTES or timeline.observer:
        return None
    state.check()
    tensors = workspace.take()
    if tensors is None:
        return None
    own, made = tensors
    call, run, value = timeline.call(), None, None
    whole = own.keys() == inputs.keys() and made.keys() == executable.program.outputs.keys()
    if whole and all(map(can_fill, own.values())) and all(map(can_copy, made.values())):
        run = timeline.direct.prepared(executable, own, made)
    if run is not None:
        for name, view in inputs.items():
            fill(own[name], view)
        value = timeline.direct.submit(run, insist=True)
        if value is None:
            executable.kept.keep_direct(run)
    if value is None:
        workspace.keep(tensors)
        return None
    timeline.direct.wait(value)
    outputs = {
        name: elements(copied(made[name]), d) for name, d in executable.program.outputs.items()
    }
    del call
    executable.kept.keep_direct(run)
    workspace.keep(tensors)
    return outputs


def run_in_order(
    promise: MLPromise[dict[str, np.ndarray]], state: ContextState, *run: Any
) -> MLPromise[dict[str, np.ndarray]]:
    """``promise``, settled with the outputs of a run, given as for ``_prepared``, that has its
    place in the order of work when this returns."""
    try:
        works, made, wait = _prepared("compute_async", state, *run)
    except Exception as error:
        promise.reject(shortage_error(error, "compute_async"))
        return promise
    # A token for each promise but one: the callback that finds none is the last.
    tokens = deque(made[1:])

    def settled(_: Any = None) -> None:
        try:
            tokens.pop()
        except IndexError:
            try:
                promise.resolve(wait())
            except BaseException as error:
                promise.reject(shortage_error(error, "compute_async"))

    # Before the work is queued: the main thread, which an interrupt may stop, must not call them.
    for each in made:
        each.add_done_callback(settled)
    state.stream.enqueue(*works)
    return promise


def _prepared(
    what: str,
    state: ContextState,
    graph: MLGraph,
    executable: Executable,
    inputs: dict[str, np.ndarray],
    shared: Mapping[str, Storage],
) -> tuple[list[Work], list[MLPromise[Any]], Callable[[], dict[str, np.ndarray]]]:
    """A run as work to be queued, the promises that are settled when it is over, and a function, to
    be called once, that waits for them and returns the outputs by name. ``what``: "compute", or
    "compute_async", whose caller doesn't wait, so that its data counts as waiting for the device.
    ``inputs``, bytes by name, are copied, and the mapping is emptied. ``shared``: the storages of
    donated inputs, which the run updates; their outputs are not in the result."""
    check_alive(graph, what)
    state.check()
    workspace, donated = executable.workspace, executable.program.donated
    sources, results = workspace and workspace.take() or ({}, {})
    updated = {donated[name]: storage for name, storage in shared.items()}
    outputs = {n: d for n, d in executable.program.outputs.items() if n not in updated}
    own = {name: s for name, s in sources.items() if name not in shared}
    made = {name: s for name, s in results.items() if name not in updated}
    # Only this call uses the memory that is not shared. No earlier work does, so the host may write
    # to it at once; no later work does, so it need not be zeroed or copied before it is read.
    works: list[Work] = []
    held: Reservation | None = None
    provided = own.keys() == inputs.keys() and made.keys() == outputs.keys()
    if provided and all(map(can_fill, own.values())):
        # No thread switch: after an interrupt the next run allocates other memory.
        if what == "compute_async":
            held = state.timeline.staging.reserve(_total(inputs), what)
        with state.timeline.building():
            while inputs:
                name, view = inputs.popitem()
                fill(own[name], view)
                del view
    else:
        works, held = background.run_on_worker(
            _provide, what, state, executable, inputs, own, outputs, made
        )
    run = RunGraph(executable, own | shared, made | updated, held)
    works.append(run)
    promises = {}
    for name, d in outputs.items():
        promises[name] = promise = state.new_promise(f"an array {d}")

        def done(data: np.ndarray, d: Any = d, promise: MLPromise[Any] = promise) -> None:
            promise.resolve(elements(data, d))

        works.append(Read(made[name], done, promise.reject, last=True))
    awaited = [*promises.values()]
    if not awaited:
        # Nothing is read, but until the run is over it uses its inputs' memory.
        end: MLPromise[None] = state.new_promise("the end of a run")
        run.failed = end.reject
        works.append(Run(partial(end.resolve, None), end.reject))
        awaited = [end]

    def wait() -> dict[str, np.ndarray]:
        nonlocal own, made
        # Retrieve the errors of all promises, even if several are rejected.
        errors = [promise.exception() for promise in awaited]
        if workspace is not None and not any(errors):
            workspace.keep((own, made))
        del own, made
        awaited[0].result()
        return {name: promise.result() for name, promise in promises.items()}

    return works, awaited, wait


def _total(inputs: Mapping[str, np.ndarray]) -> int:
    return sum(view.nbytes for view in inputs.values())


def _provide(
    what: str,
    state: ContextState,
    executable: Executable,
    inputs: dict[str, np.ndarray],
    own: dict[str, Storage],
    outputs: Mapping[str, MLOperandDescriptor],
    made: dict[str, Storage],
) -> tuple[list[Work], Reservation]:
    """Allocates what a run lacks in ``own`` and ``made``, and empties ``inputs``: the work that
    comes before the run, and the reservation of the inputs' data."""
    donated, written_only = executable.program.donated, executable.written_only
    held = state.timeline.staging.reserve(_total(inputs), what)
    works: list[Work] = []
    while inputs:
        name, view = inputs.popitem()
        if name not in own:
            # A donated input is copied to its output before a run's recording would copy it.
            access = "" if name in donated else "write"
            own[name], before = state.new_storage(view.nbytes, host_access=access)
            works += before
        with state.timeline.building():
            filled = fill(own[name], view)
        if not filled:
            works.append(_writing(state, own[name], view, held))
        del view
    for name, d in outputs.items():
        if name not in made:
            made[name], before = state.new_storage(
                d.byte_length, host_access="read", in_place=name in written_only
            )
            works += before
    return works, held


def _writing(state: ContextState, storage: Storage, view: np.ndarray, held: Reservation) -> Write:
    """The work that writes a copy of ``view``. The copy is made now."""
    staged: Sequence[Any] = ()
    if view.nbytes > SMALL_BYTES:
        staged = background.run_on_worker(state.stage, view)
    copied = None if staged else view.copy()
    return Write(storage, copied, staged, held=held)
