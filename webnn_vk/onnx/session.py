"""Session: a model run as ONNX Runtime's users know it, one compiled graph per input shape."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from webnn_vk.api.builder import MLGraphBuilder, MLOperand, SizedBuilder, constant_of
from webnn_vk.api.context import MLContext
from webnn_vk.api.donation import checked_names
from webnn_vk.api.inspection import cpu_engine, implements, is_observed
from webnn_vk.api.ml_graph import MLGraph, annotate
from webnn_vk.runtime.engine_selection import OnnxEngine
from webnn_vk.support import background
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import InvalidStateError, OperationError, sanitize

from .binding import IOBinding
from .convert import Conversion
from .defaults import default_context, provider_names, title_of
from .donated import split
from .dynamic import DynamicRun, Trial, opened, plain
from .ends import End, of_numbers
from .errors import UnsupportedModelError
from .feeds import checked, described
from .importing import convert, output_operands, picked
from .node_args import ModelMetadata, NodeArg, metadata, node_arg, overridable
from .open_dimensions import OpenDimensions, exported_bounds
from .reading import Port, read_model
from .types import numpy_type, to_carrier, type_name
from .values import Tensor

#: Elements of a floating-point input that may be bound by value; integers and bools may always.
_MAX_BOUND_FLOATS = 64
_UNTRIED = object()
#: Graphs with named dimensions of a session: for sizes that a model treats differently.
_MAX_NAMED = 4
#: How many feeds the import may refuse before the model is the graphs' for good.
_MAX_TRIALS = 3


@dataclass
class _Compiled:
    """A graph for certain shapes, and outputs that were known already; what makes the model's
    outputs of both."""

    graph: MLGraph | None
    known: dict[str, np.ndarray]
    ends: dict[str, End]
    # For a graph with named dimensions: the key except shapes, and whether it accepts some sizes.
    others: Any = None
    holds: Callable[[Mapping[str, int]], bool] | None = None


class Session:
    """A model on a context, called as ``onnxruntime.InferenceSession`` is. ``run`` compiles a graph
    for each new combination of input shapes and keeps the last ``keep``; they share the weights, in
    the forms that kernels want. In contexts with "dynamic-shapes" (experimental) one graph with
    named dimensions takes all shapes, where the model's arithmetic of shapes allows it; the notes
    of a graph's report say why not. ``dimensions`` gives the largest sizes of open dimensions by
    name ("INPUT.AXIS" for those that the model doesn't name); for larger ones, and without it, the
    graph is built again for the next power of two. Inputs whose values decide shapes, axes or
    branches are taken from the feeds, with a graph for each of their values. Where ONNX Runtime
    computes for the CPU device it takes most models with open dimensions as they are, in any
    shapes.

    ``path_or_model``: a path, bytes or ``onnx.ModelProto``. ``context``: None opens one, on the
    device that ``ml.create_context()`` takes; on the CPU device where ``providers`` names the
    CPUExecutionProvider alone. Providers decide nothing else, and what ``sess_options`` (which may
    also come second) says of threads and optimisers isn't followed. ``outputs`` picks some of the
    model's outputs, or other values that its nodes make, as ``load`` does. ``narrow_double``
    computes double in float32. ``donate``, from inputs to outputs: as for ``load``; a decoder's
    cache is fed as a tensor of the context (``run``). Raises InvalidModelError as ``load`` does,
    TypeError for a ``donate`` with names that the model doesn't have.
    """

    def __init__(
        self,
        path_or_model: Any,
        context: MLContext | Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        sess_options: Any = None,
        keep: int = 8,
        outputs: Sequence[str] | None = None,
        narrow_double: bool = False,
        dimensions: Mapping[str, int] | None = None,
        donate: Mapping[str, str] | None = None,
    ) -> None:
        if context is not None and not isinstance(context, MLContext):
            if not hasattr(context, "intra_op_num_threads"):
                raise TypeError(
                    f"Session: context is an MLContext or None, not {type(context).__name__}"
                )
            context, sess_options = None, context
        names = provider_names(providers)
        self._options = sess_options
        self._model = read_model(path_or_model)
        self._source = title_of(path_or_model)
        self._context = default_context(names) if context is None else context
        self._keep = max(1, keep)
        self._narrow_double = narrow_double
        self._outputs = picked(self._model, outputs)
        if outputs is not None and not self._outputs:
            raise ValueError("outputs: at least one is needed")
        self._donate = checked_names(
            donate, self._model.inputs, self._outputs, "Session", "the model's"
        )
        self._optional = {
            t.name: Port(t.name, type_name(t.data_type), tuple(t.dims))
            for t in overridable(self._model.graph, self._model.proto.ir_version)
        }
        self._graphs: OrderedDict[Any, _Compiled] = OrderedDict()
        self._bound: set[str] = set()
        # Whether some output can't be taken: graphs have the outputs that are asked for.
        self._partial = False
        # Begins the keys of constants by their addresses, which only this session's model keeps.
        self._token = secrets.token_hex(16)
        # The owners of the memory of the model's arrays, and how many arrays were examined.
        self._kept: set[int] = set()
        self._seen = 0
        engine = cpu_engine(self._context)
        self._on_host = engine is not None
        self._aligned: dict[str, np.ndarray] = {}
        self._lock = threading.RLock()
        # A model of fixed shapes has one graph.
        self._shares = any(
            p.shape is None or not all(isinstance(d, int) for d in p.shape)
            for p in self._model.inputs.values()
        )
        dynamic = (
            self._shares and not narrow_double and outputs is None and not self._donate
            and isinstance(engine, OnnxEngine) and plain(self._model)
        )
        self._open: OpenDimensions | None = None
        if self._shares and implements(self._context, "dynamic-shapes"):
            stored = exported_bounds(self._model.proto)
            self._open = OpenDimensions(self._model.inputs.values(), dimensions or {}, stored)
        # Graphs with named dimensions, and why there are no more of them.
        self._named: list[_Compiled] = []
        self._unnamed = ""
        self._trials = 0
        self._dynamic: DynamicRun | object | None = _UNTRIED if dynamic else None

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs, in its order."""
        return [node_arg(self._model.graph, port) for port in self._model.inputs.values()]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in the model's order or in the order of ``outputs``."""
        return [node_arg(self._model.graph, port) for port in self._outputs.values()]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Weights that are inputs too: what is fed for one takes its place."""
        return [node_arg(self._model.graph, port) for port in self._optional.values()]

    def get_modelmeta(self) -> ModelMetadata:
        """Where the model comes from."""
        return metadata(self._model.proto)

    def get_providers(self) -> list[str]:
        """The devices that compute, by ONNX Runtime's names: WebNN, unless the context is on the
        CPU device, and the CPU."""
        return ["CPUExecutionProvider"] if self._on_host else [
            "WebNNExecutionProvider", "CPUExecutionProvider"
        ]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """No options of any provider."""
        return {name: {} for name in self.get_providers()}

    def get_session_options(self) -> Any:
        """The ``sess_options`` that were given, or None."""
        return self._options

    def __repr__(self) -> str:
        device = self._context.device_info.name
        inputs, outputs = described(self._model.inputs), described(self._outputs)
        return f"<Session of {self._source} on {device}: {inputs} → {outputs}>"

    def run(
        self,
        output_names: Sequence[str] | None = None,
        feeds: Mapping[str, Any] | None = None,
        run_options: Any = None,
        *,
        input_feed: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """The outputs named (all when None): arrays in ONNX's data types, of text too (of Python's
        strings), and of maps a list of dicts. ``feeds``, which may also be called ``input_feed``:
        arrays by input name, or what NumPy makes of them without loss: lists, numbers, narrower
        types. An output that can't be taken is in the way only where it is asked for.
        ``terminate`` of ``run_options`` ends a run.

        A donated input (``donate``) may be fed as an ``MLTensor`` of the session's context. The run
        updates it, and it is what the list has for the donated output. Arrays are copied instead.

        ValueError for missing or unknown names, and feeds of other types and shapes;
        UnsupportedModelError when the model can't be taken in these shapes, OperationError when
        the run fails or is terminated.
        """
        if isinstance(output_names, str):
            raise TypeError(f"output_names: a list of names is expected: [{output_names!r}]")
        names = list(self._outputs) if not output_names else list(output_names)
        unknown = [n for n in names if n not in self._outputs]
        if unknown:
            raise ValueError(
                f"the model has no output {sanitize(str(unknown[0]))!r}; it has "
                f"{', '.join(repr(sanitize(n)) for n in self._outputs)}"
            )
        feeds, tensors = split(
            self._model.inputs, input_feed if feeds is None else feeds, self._donate,
            self._narrow_double,
        )
        arrays = checked(self._model.inputs, self._optional, feeds)
        if getattr(run_options, "terminate", False):
            raise OperationError("run: the run options say terminate")
        dynamic = self._dynamic_run(arrays)
        made = None if dynamic is None else dynamic(names, arrays)
        if made is not None:
            return made
        compiled = self.compile(arrays, names)
        results = dict(compiled.known)
        if compiled.graph is not None:
            given = {
                name: tensors[name] if name in tensors else to_carrier(arrays[name], d.data_type)
                for name, d in compiled.graph.inputs.items()
            }
            results |= self._context.compute(compiled.graph, given)
        updated = {self._donate[name]: tensor for name, tensor in tensors.items()}
        return [updated[n] if n in updated else compiled.ends[n](results[n]) for n in names]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], Any],
        user_data: Any = None,
        run_options: Any = None,
    ) -> None:
        """``run`` on another thread, which then calls ``callback(results, user_data, "")``, or
        ``callback([], user_data, message)`` where it fails. The arrays must stay as they are until
        then. ValueError for unknown names at once."""
        names = output_names and [*output_names]
        calls = [callback]

        def work() -> None:
            try:
                made, message = self.run(names, input_feed, run_options), ""
            except Exception as error:
                made, message = [], str(error) or type(error).__name__
            calls.pop()(made, user_data, message)

        def refused(error: BaseException) -> None:
            if calls:  # else the callback itself has failed
                calls.pop()([], user_data, str(error))

        if not background.start(work, "session", refused=refused):
            refused(InvalidStateError("the interpreter is exiting"))

    def io_binding(self) -> IOBinding:
        """Inputs and outputs to be bound for ``run_with_iobinding``."""
        return IOBinding((*self.get_inputs(), *self.get_overridable_initializers()),
                         self.get_outputs())

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """``run`` on what is bound; ``iobinding.copy_outputs_to_cpu()`` gives the outputs."""
        iobinding.run(lambda names, feeds: self.run(names, feeds, run_options))

    def graph(self, feeds: Mapping[str, Any]) -> MLGraph | None:
        """The graph that ``run`` uses for such feeds, or would if ONNX Runtime didn't take the
        whole model; None when all is known at import."""
        arrays, _ = split(self._model.inputs, feeds, self._donate, self._narrow_double)
        return self.compile(checked(self._model.inputs, self._optional, arrays)).graph

    # -- one engine session for all shapes -------------------------------------------------------
    def _dynamic_run(self, arrays: Mapping[str, np.ndarray]) -> DynamicRun | None:
        """Who takes the model in any shapes at once; None where graphs have to."""
        if self._dynamic is None or not self._optional.keys().isdisjoint(arrays):
            return None
        if is_observed(self._context):
            return None  # a profile looks at graphs
        if self._dynamic is _UNTRIED:
            background.run_on_worker(self._try_dynamic, arrays)
        return self._dynamic if isinstance(self._dynamic, DynamicRun) else None

    def _try_dynamic(self, arrays: Mapping[str, np.ndarray]) -> None:
        with self._lock:
            if self._dynamic is not _UNTRIED:
                return
            trial = Trial(self._model)
            try:
                # An input that is empty at first, as a decoder's past, counts as one that isn't.
                given = {n: tuple(d or 1 for d in x.shape) for n, x in arrays.items()}
                convert(trial, given, None, ends=True)
            except UnsupportedModelError as error:
                # Other shapes may do: the graphs say what is wrong with these.
                self._trials += 1
                if error.values_needed or self._trials == _MAX_TRIALS:
                    self._dynamic = None
                return
            self._dynamic = opened(self._model, trial)

    # -- compilation -----------------------------------------------------------------------------
    def compile(
        self, arrays: Mapping[str, np.ndarray], names: Sequence[str] | None = None
    ) -> _Compiled:
        """The compiled graph for these arrays' shapes, and values of those bound. It has all
        outputs; only outputs of ``names`` where others can't be taken."""
        # Not under a lock in the main thread, where a signal handler may want it too.
        return background.run_on_worker(self._compile, arrays, names)

    def _compile(
        self, arrays: Mapping[str, np.ndarray], names: Sequence[str] | None
    ) -> _Compiled:
        all_of = names is None or {*names} == {*self._outputs}
        some = None if names is None or all_of else sorted({*names, *self._donate.values()})
        with self._lock:
            while True:
                wanted = some if self._partial else None
                shapes, values = self._key(arrays)
                others = values, wanted and tuple(wanted)
                key = shapes, others
                found = self._graphs.get(key)
                if found is not None:
                    self._graphs.move_to_end(key)
                    return found
                try:
                    made = self._made(arrays, others, wanted)
                except UnsupportedModelError as error:
                    needed = error.values_needed.difference(self._donate)
                    more = {n for n in needed if _may_bind(arrays.get(n))}
                    if more - self._bound:
                        self._bound |= more
                        self._unnamed = ""
                    elif some is not None and wanted is None:
                        self._partial = True
                    else:
                        raise
                    continue
                self._graphs[key] = made
                while len(self._graphs) > self._keep:
                    self._graphs.popitem(last=False)
                return made

    def _made(
        self, arrays: Mapping[str, np.ndarray], others: Any, names: Sequence[str] | None
    ) -> _Compiled:
        """A graph for these arrays' shapes, with named dimensions if these can be had."""
        if (named := self._with_names(arrays, others, names)) is not None:
            return named
        made = self._build(arrays, names)
        assert made is not None, "it is for these shapes"
        if self._open is not None and made.graph is not None:
            why = self._unnamed or "a dimension is 0, or one name stands for two sizes"
            annotate(made.graph, f"a graph for these shapes alone, without named dimensions: {why}")
        return made

    def _with_names(
        self, arrays: Mapping[str, np.ndarray], others: Any, names: Sequence[str] | None
    ) -> _Compiled | None:
        """A graph with named dimensions for these arrays; None where one of their own is needed."""
        sizes = None if self._open is None else self._open.sizes(arrays)
        if self._open is None or sizes is None:
            return None
        if self._open.grow(sizes):
            self._named.clear()
            for key in [k for k, made in self._graphs.items() if made.holds is not None]:
                del self._graphs[key]
        for made in self._named:
            assert made.holds is not None
            if made.others == others and made.holds(sizes):
                return made
        if len(self._named) >= _MAX_NAMED:
            self._unnamed = self._unnamed or (
                f"{_MAX_NAMED} graphs with named dimensions are for other sizes"
            )
        # First with sizes that say little, then with those that are asked for.
        for examples in () if self._unnamed else ({}, sizes):
            builder = SizedBuilder(self._context, examples)
            try:
                made = self._build(arrays, names, builder)
            # TypeError: a dimension belongs to no input that the graph reads.
            except (UnsupportedModelError, OperationError, TypeError) as error:
                if examples:
                    self._unnamed = str(error)
                continue
            if made is not None:
                made.others = others
                self._named.append(made)
                return made
        return None

    def _key(self, arrays: Mapping[str, np.ndarray]) -> tuple[Any, Any]:
        shapes = tuple((name, x.shape) for name, x in sorted(arrays.items()))
        bound = sorted(n for n in arrays if n in self._bound or n in self._optional)
        return shapes, tuple((name, arrays[name].tobytes()) for name in bound)

    def _build(
        self, arrays: Mapping[str, np.ndarray], names: Sequence[str] | None,
        sized: SizedBuilder | None = None,
    ) -> _Compiled | None:
        """With ``sized`` a graph with named dimensions; None if it is not for the arrays' sizes."""
        builder = MLGraphBuilder(self._context) if sized is None else sized
        constant = self._shared_constant if self._shares else constant_of
        donated = frozenset(self._donate)
        conversion = Conversion(self._model, builder, constant, self._narrow_double, donated)
        # An input without elements has no place in a graph; its value is known, though.
        as_values = {*self._bound, *self._optional}
        given = {
            name: x if name in as_values or not x.size else x.shape for name, x in arrays.items()
        }
        sizes = None
        if sized is not None and self._open is not None:
            sizes = self._open.sizes(arrays)
            given |= {n: self._open.shape(n) for n in given.keys() - as_values}
        wanted = list(self._outputs) if names is None else names
        made = convert(conversion, given, wanted, ends=True)
        values = {name: of_numbers(value) for name, value in made.items()}
        known = {name: v.array for name, (v, _) in values.items() if v.array is not None}
        live: dict[str, Tensor] = {n: v for n, (v, _) in values.items() if v.array is None}
        operands = output_operands(builder, live)
        holds = None
        if sized is not None:
            holds = sized.condition()
            if not holds(sizes or {}):
                return None
        graph = builder.build(operands, donate=self._donate).result() if live else None
        ends = {
            name: end or partial(_converted, self._output_type(name, v))
            for name, (v, end) in values.items()
        }
        return _Compiled(graph, known, ends, holds=holds)

    def _output_type(self, name: str, value: Tensor) -> str:
        declared = self._outputs[name].type
        try:
            numpy_type(declared)
        except TypeError:
            return value.type
        return declared

    def _shared_constant(self, builder: MLGraphBuilder, array: np.ndarray) -> MLOperand:
        key = self._constant_key(array)
        if self._on_host and not array.flags.aligned:
            # Each graph would have a copy of its own.
            copied = self._aligned.get(key)
            if copied is None:
                copied = self._aligned[key] = array.copy()
            array = copied
        return constant_of(builder, array, key)

    def _constant_key(self, array: np.ndarray) -> str:
        """An array's identity: its address, if that is memory that the model keeps, or else a hash
        of its contents."""
        described = f"{array.dtype.name}{list(array.shape)}"
        arrays = self._model.arrays.values()
        for _, stored in islice(arrays, self._seen, None):
            self._kept.add(id(_owner(stored)))
        self._seen = len(arrays)
        if id(_owner(array)) in self._kept:
            return f"{self._token} {array.__array_interface__['data'][0]:x} {described}"
        hashed = hashlib.blake2b(described.encode(), digest_size=32)
        hashed.update(array.reshape(-1).view(np.uint8))
        return hashed.hexdigest()


def _owner(array: np.ndarray) -> np.ndarray:
    """The array whose memory this one is a part of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _may_bind(array: np.ndarray | None) -> bool:
    if array is None:
        return False
    return array.dtype.kind in "iub" or array.size <= _MAX_BOUND_FLOATS


def _converted(name: str, array: np.ndarray) -> np.ndarray:
    kind = numpy_type(name)
    if array.dtype == kind:
        return array
    return array != 0 if kind == np.bool_ else array.astype(kind)
