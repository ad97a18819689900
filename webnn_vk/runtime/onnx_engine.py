"""CPU segments on ONNX Runtime: each region becomes an ONNX model with its own session.

Weights stay in place: the models name them, and the sessions get their memory. Inputs and outputs
are bound to the tensors' memory. Operators that can't be expressed, or have no kernel there, are
found when a region's session is created; the region is then cut again without them. So are
operators that a session refuses when it runs; NumPy computes the region in that run.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from webnn_vk.compiler.ir import Graph, Node, Value
from webnn_vk.compiler.ir.onnx import OLDEST_OPSET, model_of, serialized
from webnn_vk.compiler.ir.to_onnx import Fragment, write
from webnn_vk.compiler.ops import ALL_OPERATORS
from webnn_vk.compiler.program import Constants, CpuStep, CpuTensor, HostSegment, Program
from webnn_vk.support import background, forks
from webnn_vk.support.errors import NotSupportedError, OperationError

from . import onnx_session
from .engine import NUMPY, HostRun, Prepared, Refused, RefusedRun, WholeRun
from .host import Arrays, Memory, run_steps
from .regions import CpuRegion, cut

#: Constants up to this size are part of the model: it needs shapes and similar constants to load.
_EMBEDDED_BYTES = 1024
#: Bytes that a region touches, up to which one thread is faster than several.
_SMALL_BYTES = 1 << 17
_NO_MEMORY = re.compile(
    r"[Ff]ailed to allocate|bad_alloc|bad allocation|[Oo]ut of memory|smaller than requested bytes"
)
_NODE_NAME = re.compile(r"[Nn]ame:? ?'(\d+):")
_BOUND = "Error in execution: "
#: The beginning of a message if a node of the model fails, not the call of its session.
_NODE_FAILED = re.compile(
    r"Non-zero status code returned while running (\w+) node\. Name:'[^']*' Status Message: "
)

#: Steps without a kernel in ONNX Runtime, by the properties that decide it; learnt once per
#: process.
_unsupported: dict[tuple[Any, ...], str] = {}
def prepare(
    program: Program, constants: Constants, refused: Refused, required: bool
) -> Prepared:
    """See ``engine_selection.OnnxEngine.prepare``. ``required``: NotSupportedError if ONNX Runtime
    can't be loaded; otherwise NumPy takes its place."""
    try:
        # A fork during this import would leave the child a half-loaded module, behind a lock.
        with forks.undisturbed():
            ours = "onnxruntime" not in sys.modules
            import onnx  # noqa: F401
            import onnxruntime

            if ours:  # it was imported by this library: it must not send telemetry
                onnxruntime.disable_telemetry_events()
    except ImportError as error:
        if required:
            raise NotSupportedError(f"cpu_engine: onnxruntime can't be loaded: {error}") from error
        warnings.warn(
            f"webnn_vk: ONNX Runtime is installed and can't be loaded ({error}); NumPy "
            "computes on the CPU", RuntimeWarning, stacklevel=3,
        )
        return NUMPY.prepare(program, constants, refused)
    runs: dict[int, HostRun] = {}
    notes: dict[int, tuple[str, str]] = {}
    whole = None
    for number, segment in enumerate(program.segments):
        if isinstance(segment, HostSegment):
            ready = _Segment(program, segment, constants, notes, refused)
            runs[number] = ready.run
            if len(program.segments) == 1:
                whole = ready.whole
    return Prepared(runs, notes, whole, refused)


class _RegionRefused(Exception):
    """A region's session refused one of these steps, or all of them, in a run."""

    def __init__(self, part: CpuRegion, steps: Sequence[CpuStep], why: str) -> None:
        super().__init__(why)
        self.part, self.steps, self.why = part, steps, why


class _Segment:
    """One CPU segment, its parts in order."""

    def __init__(
        self, program: Program, segment: HostSegment, constants: Constants,
        notes: dict[int, tuple[str, str]], refused: Refused,
    ) -> None:
        self._program, self._segment, self._constants = program, segment, constants
        self._notes, self._refused = notes, refused
        # The bytes of constants by slot: regions may be made after these were released.
        self._data: dict[int, np.ndarray | None] = {}
        self._made: dict[tuple[int, ...], _Region] = {}
        # Why steps stay on NumPy, by their origins: each has its own.
        self._why: dict[int, str] = {}
        for step in segment.steps:
            if isinstance(step, CpuStep):
                if why := _unsupported.get(_key(step)) or refused.get(self._origin(step)):
                    self._why[step.origin] = why
        #: See ``engine.Prepared``; None where it is more than one region.
        self.whole: WholeRun | None = None
        if region := self._make_runs():
            if (take := region.whole(program)) is not None:
                self.whole = partial(self._run_whole, take)

    def _make_runs(self) -> _Region | None:
        """Cut the segment, and make its regions and notes. Returns the region that is all of it."""
        parts, regions = self._regions(self._segment)
        runs: list[Callable[[Arrays, Memory], None]] = []
        for number, part in enumerate(parts):
            region = regions.get(_origins(part))
            runs.append(partial(run_steps, part.steps) if region is None else region.run)
            if part.dead:
                runs.append(partial(_drop, part.dead))
            for step in _cpu_steps(part):
                self._notes[step.origin] = (
                    ("numpy", self._why.get(step.origin, "a view"))
                    if region is None else ("onnxruntime", f"region {number}")
                )
        # At once: other threads may be running the previous ones.
        self._runs = runs
        return regions[_origins(parts[0])] if len(parts) == len(regions) == 1 else None

    def _origin(self, step: CpuStep) -> tuple[int, tuple[str, ...]]:
        return step.origin, self._program.origins[step.origin].operators

    def _regions(
        self, segment: HostSegment
    ) -> tuple[tuple[CpuRegion, ...], dict[tuple[int, ...], _Region]]:
        """The parts, and the regions of those on the engine by the steps' origins."""
        made = self._made
        while True:
            parts = cut(segment, lambda step: step.origin not in self._why, self._has_memory)
            keys = [_origins(part) for part in parts if part.on_engine]
            made = {key: made[key] for key in keys if key in made}
            missing = next((p for p in parts if p.on_engine and _origins(p) not in made), None)
            if missing is None:
                self._made = made
                return parts, made
            region = self._region(missing)
            if region is not None:
                made[_origins(missing)] = region

    def run(self, arrays: Arrays, memory: Memory) -> None:
        """Compute the steps. If a session refuses its region, NumPy computes it, now and in later
        runs."""
        refusals = []
        for run in self._runs:
            try:
                run(arrays, memory)
            except _RegionRefused as refusal:
                # Whatever the session has written of the results is written again.
                run_steps(refusal.part.steps, arrays, memory)
                refusals.append(refusal)
        self._leave_to_numpy(refusals)

    def _run_whole(
        self, take: WholeRun, inputs: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        try:
            return take(inputs)
        except _RegionRefused as refusal:
            self._leave_to_numpy([refusal])
            raise RefusedRun from refusal

    def _leave_to_numpy(self, refusals: Sequence[_RegionRefused]) -> None:
        for refusal in refusals:
            for step in refusal.steps:
                self._why[step.origin] = self._refused[self._origin(step)] = refusal.why
        if refusals:
            # It makes sessions, under locks that a signal handler may need.
            background.run_on_worker(self._make_runs)

    def _has_memory(self, slot: int) -> bool:
        return self._program.slots[slot].kind != "array"

    def _region(self, part: CpuRegion) -> _Region | None:
        """The region of a part; None if some of its steps turn out to stay on NumPy."""
        steps = _cpu_steps(part)
        graph, nodes = self._graph(part, steps)
        titles = {node: str(number) for node, number in nodes.items()}
        fragment = write(graph, lambda value: value.data, titles, careful=True)
        if fragment.problems:
            for problem in fragment.problems:
                self._why[steps[int(problem.title)].origin] = problem.reason
            return None
        try:
            return _Region(fragment, part, steps, [self._title(step) for step in steps])
        except MemoryError:
            raise
        except Exception as error:
            message = str(error)
            if _NO_MEMORY.search(message):
                raise MemoryError(f"ONNX Runtime: {_short(message)}") from error
            found = _NODE_NAME.search(message)
            if found is not None or len(steps) == 1:
                step = steps[int(found[1])] if found is not None else steps[0]
                self._why[step.origin] = f"ONNX Runtime: {_short(message)}"
                if "NOT_IMPLEMENTED" in message:
                    _unsupported[_key(step)] = self._why[step.origin]
            else:
                self._try_each(steps, _short(message))
            return None

    def _try_each(self, steps: Sequence[CpuStep], message: str) -> None:
        """Called if a session refuses without naming a step: tries each step alone, then refuses
        all."""
        before = len(self._why)
        for step in steps:
            reads = tuple({t.slot: t for t in step.operands.values()}.values())
            self._region(CpuRegion(True, (step,), reads, step.results))
        if len(self._why) == before:
            for step in steps:
                self._why[step.origin] = f"ONNX Runtime: {message}"

    def _title(self, step: CpuStep) -> str:
        return " + ".join(self._program.origins[step.origin].operators)

    def _graph(self, part: CpuRegion, steps: Sequence[CpuStep]) -> tuple[Graph, dict[Node, int]]:
        """The steps as a graph, and the step of each node; inputs and outputs are named by their
        slots."""
        values: dict[int, Value] = {}
        inputs: dict[str, Value] = {}
        for tensor in part.reads:
            data = self._elements(tensor)
            if data is not None:
                values[tensor.slot] = Value(tensor.descriptor, data=data)
            else:
                name = f"s{tensor.slot}"
                inputs[name] = values[tensor.slot] = Value(tensor.descriptor, name=name)
        nodes: dict[Node, int] = {}
        for number, step in enumerate(steps):
            operands = {}
            for name, tensor in step.operands.items():
                value = values[tensor.slot]
                if value.descriptor != tensor.descriptor:
                    # Views share a slot; in a device's graph no step makes them.
                    view = _view(value, tensor)
                    nodes[view] = number
                    value = view.output
                operands[name] = value
            results = tuple(Value(t.descriptor) for t in step.results)
            node = Node(ALL_OPERATORS[step.operator], operands, step.arguments, results)
            nodes[node] = number
            values.update(zip([t.slot for t in step.results], results, strict=True))
        outputs = {f"s{t.slot}": values[t.slot] for t in part.writes}
        return Graph(inputs, outputs, tuple(nodes)), nodes

    def _elements(self, tensor: CpuTensor) -> np.ndarray | None:
        slot = self._program.slots[tensor.slot]
        if slot.kind != "constant":
            return None
        if tensor.slot not in self._data:
            stored = self._constants.storage(slot.index) is None
            self._data[tensor.slot] = self._constants.read(slot.index) if stored else None
        data = self._data[tensor.slot]
        if data is None:
            return None
        data = data[: tensor.descriptor.byte_length]
        return data.view(tensor.descriptor.numpy_dtype).reshape(tensor.descriptor.shape)


def _cpu_steps(part: CpuRegion) -> list[CpuStep]:
    return [step for step in part.steps if isinstance(step, CpuStep)]


def _origins(part: CpuRegion) -> tuple[int, ...]:
    return tuple(step.origin for step in _cpu_steps(part))


def _view(value: Value, tensor: CpuTensor) -> Node:
    """A value in the shape that a step reads it in."""
    arguments = {"new_shape": tensor.descriptor.shape}
    return Node(
        ALL_OPERATORS["reshape"], {"input": value}, arguments, (Value(tensor.descriptor),)
    )


def _key(step: CpuStep) -> tuple[Any, ...]:
    """The properties that decide whether a step can be taken: the operator, types, ranks and
    options."""
    return (
        step.operator,
        tuple((name, t.descriptor.data_type) for name, t in step.operands.items()),
        tuple(t.descriptor for t in step.results),
        repr(sorted(step.arguments.items())),
    )


def _short(message: str) -> str:
    """ONNX Runtime's message without codes, source paths and the node's name."""
    message = re.sub(r"^\[ONNXRuntimeError\] : \d+ : (\w+) : ", "", message.strip())
    message = message.removeprefix(_BOUND)
    message = _NODE_FAILED.sub(r"\1: ", message)
    return re.sub(r" with node name '[^']*'", "", message.splitlines()[0])[:200]


def _drop(slots: Sequence[int], arrays: Arrays, memory: Memory) -> None:
    for slot in slots:
        arrays.pop(slot, None)


class _Region:
    """Steps that one session takes."""

    def __init__(
        self, fragment: Fragment, part: CpuRegion, steps: Sequence[CpuStep], titles: Sequence[str]
    ) -> None:
        self._part, self._steps = part, steps
        large = {
            name: np.asarray(array, order="C")
            for name, array in fragment.constants.items()
            if array.nbytes > _EMBEDDED_BYTES
        }
        model = model_of(fragment, lambda name, array: name in large, OLDEST_OPSET)
        # The session reads the arrays' memory: they live as long as it does.
        self._arrays = large
        packs, self._held = onnx_session.pack_first(large.values())
        self._session, self._weights = onnx_session.open_session(
            serialized(model), large, _options(part), in_place=not packs
        )
        # Bindings that no run uses now: several threads may compute at once.
        self._bindings: deque[Any] = deque()
        self._titles = titles
        # An input that no output depends on is not an input of the session.
        names = {i.name for i in self._session.get_inputs()}
        self._inputs = [_Bound(t) for t in part.reads if f"s{t.slot}" in names]
        self._outputs = [_Bound(t) for t in part.writes]

    def run(self, arrays: Arrays, memory: Memory) -> None:
        """Compute the outputs into their memory, or into arrays where they have none."""
        try:
            binding = self._bindings.pop()
        except IndexError:
            binding = _Binding(self._session)
        # The arrays that are bound have to live until the end.
        inputs = [_elements(t, arrays.get(t.slot), memory) for t in self._inputs]
        binding.bind(binding.native.bind_input, self._inputs, inputs)
        outputs, copies = [], []
        for bound in self._outputs:
            place = memory(bound.slot)
            array = np.empty(bound.shape, bound.dtype) if place is None else bound.view(place)
            if not array.flags.aligned:
                copies.append(array)
                array = np.empty(bound.shape, bound.dtype)
                copies.append(array)
            outputs.append(array)
        binding.bind(binding.native.bind_output, self._outputs, outputs)
        try:
            self._session.run_with_iobinding(binding.native)
        except Exception as error:
            raise self._failure(error) from error
        for target, source in zip(copies[::2], copies[1::2], strict=True):
            target[...] = source
        for bound, array in zip(self._outputs, outputs, strict=True):
            arrays[bound.slot] = array
        self._bindings.append(binding)

    def whole(self, program: Program) -> WholeRun | None:
        """Takes the program's inputs and returns its outputs by name, in memory that the session
        allocates and releases; None if the region takes other tensors (constant tensors) or doesn't
        make all outputs: those without elements have no step."""
        slots = program.slots
        feeds = [(bound.name, slots[bound.slot]) for bound in self._inputs]
        if any(slot.kind != "input" for _, slot in feeds):
            return None
        renamed = [(name, slot.name) for name, slot in feeds]
        results = {slots[bound.slot].name: bound.name for bound in self._outputs}
        outputs = list(program.outputs)
        if not results.keys() >= set(outputs):
            return None
        wanted = [results[name] for name in outputs]

        def take(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            try:
                arrays = self._session.run(wanted, {to: inputs[name] for to, name in renamed})
            except Exception as error:
                raise self._failure(error) from error
            return dict(zip(outputs, arrays, strict=True))

        return take

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, MemoryError):
            return error
        if _NO_MEMORY.search(str(error)):
            return MemoryError(f"ONNX Runtime: {_short(str(error))}")
        message = str(error)
        found = _NODE_NAME.search(message)
        why = f"ONNX Runtime: {_short(message)}"
        # A run with bindings reports what a session does as a RuntimeError.
        reported = type(error).__module__.startswith("onnxruntime.") or message.startswith(_BOUND)
        if reported and _NODE_FAILED.search(message):
            self._held.clear()  # the regions in its place may pack its weights
            return _RegionRefused(
                self._part, [self._steps[int(found[1])]] if found else self._steps, why
            )
        title = self._titles[int(found[1])] if found else ", ".join(dict.fromkeys(self._titles))
        return OperationError(f"{title}: {why}")


class _Bound:
    """A tensor at a region's border, with the arguments for binding it."""

    def __init__(self, tensor: CpuTensor) -> None:
        described = tensor.descriptor
        self.slot = tensor.slot
        self.name = f"s{tensor.slot}"
        self.dtype, self.shape = described.numpy_dtype, described.shape
        self.size = described.byte_length

    def view(self, memory: np.ndarray) -> np.ndarray:
        """The elements in flat bytes."""
        return memory[: self.size].view(self.dtype).reshape(self.shape)


class _Binding:
    """A session's inputs and outputs for one run at a time, and their addresses."""

    def __init__(self, session: Any) -> None:
        self.native = session.io_binding()
        self._addresses: dict[str, int] = {}

    def bind(
        self, bind: Callable[..., None], tensors: Sequence[_Bound], arrays: Sequence[np.ndarray]
    ) -> None:
        """Bind the tensors whose addresses changed since the previous run."""
        for tensor, array in zip(tensors, arrays, strict=True):
            address = array.__array_interface__["data"][0]
            if self._addresses.get(tensor.name) != address:
                bind(tensor.name, "cpu", 0, tensor.dtype, tensor.shape, address)
                self._addresses[tensor.name] = address


def _elements(tensor: _Bound, array: np.ndarray | None, memory: Memory) -> np.ndarray:
    """A tensor to read, if ONNX Runtime can read it."""
    if array is None:
        place = memory(tensor.slot)
        assert place is not None
        array = tensor.view(place)
    flags = array.flags
    return array if flags.aligned and flags.c_contiguous else array.copy()


def _options(part: CpuRegion) -> Any:
    """As many threads as there are cores; one for little work."""
    options = onnx_session.plain_options()
    small = _bytes(part) <= _SMALL_BYTES
    options.intra_op_num_threads = 1 if small else onnx_session.threads()
    options.enable_cpu_mem_arena = not small
    return options


def _bytes(part: CpuRegion) -> int:
    tensors = {
        t.slot: t.descriptor.byte_length
        for step in _cpu_steps(part)
        for t in (*step.operands.values(), *step.results)
    }
    return sum(tensors.values())
