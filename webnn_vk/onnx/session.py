"""Session: a model run as ONNX Runtime's users know it, one compiled graph per input shape."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from .. import background
from ..builder import MLGraphBuilder, MLOperand, constant_of
from ..context import MLContext
from ..context_state import context_state
from ..errors import sanitize
from ..ml_graph import MLGraph
from ..runtime import CpuDevice
from .convert import Conversion
from .dynamic import DynamicRun, Trial, may_run, opened, plain
from .errors import Problem, UnsupportedModelError
from .importing import NO_TENSORS, convert, output_operands
from .reading import Port, read_model
from .types import carrier, numpy_type, to_carrier
from .values import Tensor

#: Elements of a floating-point input that may be bound by value; integers and bools may always.
_MAX_BOUND_FLOATS = 64
_UNTRIED = object()


@dataclass(frozen=True)
class NodeArg:
    """An input or output: ``type`` as ONNX Runtime writes it ("tensor(float)"), ``shape`` with
    numbers, names or None."""

    name: str
    type: str
    shape: list[int | str | None] | None


@dataclass
class _Compiled:
    """A graph for certain shapes: which inputs it takes, and outputs that were known already."""

    graph: MLGraph | None
    types: dict[str, str]
    known: dict[str, np.ndarray]


class Session:
    """A model on a context. ``run`` compiles a graph for each new combination of input shapes and
    keeps the last ``keep``; they share the weights, in the forms that kernels want. Inputs whose
    values decide shapes, axes or branches are taken from the feeds, with a graph for each of their
    values.

    ``narrow_double`` computes double in float32. Raises InvalidModelError as ``load`` does.
    """

    def __init__(
        self,
        path_or_model: Any,
        context: MLContext,
        *,
        keep: int = 8,
        narrow_double: bool = False,
    ) -> None:
        self._model = read_model(path_or_model)
        self._context = context
        self._keep = max(1, keep)
        self._narrow_double = narrow_double
        self._graphs: OrderedDict[Any, _Compiled] = OrderedDict()
        self._bound: set[str] = set()
        # Whether some output can't be taken: graphs have the outputs that are asked for.
        self._partial = False
        # Begins the keys of constants by their addresses, which only this session's model keeps.
        self._token = secrets.token_hex(16)
        # The owners of the memory of the model's arrays, of which so many were looked at.
        self._kept: set[int] = set()
        self._seen = 0
        device = context_state(context).device
        self._on_host = isinstance(device, CpuDevice)
        self._aligned: dict[str, np.ndarray] = {}
        self._lock = threading.RLock()
        # A model of fixed shapes has one graph.
        self._shares = any(
            p.shape is None or not all(isinstance(d, int) for d in p.shape)
            for p in self._model.inputs.values()
        )
        dynamic = self._shares and not narrow_double and may_run(device) and plain(self._model)
        self._dynamic: DynamicRun | object | None = _UNTRIED if dynamic else None

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs, in its order."""
        return [_node_arg(port) for port in self._model.inputs.values()]

    def get_outputs(self) -> list[NodeArg]:
        """The model's outputs, in its order."""
        return [_node_arg(port) for port in self._model.outputs.values()]

    def run(
        self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]
    ) -> list[np.ndarray]:
        """The outputs named (all when None), in ONNX's data types, for arrays by input name. An
        output that can't be taken (text, say) is in nobody's way who doesn't name it.

        ValueError for missing or unknown names, TypeError for data of another type,
        UnsupportedModelError when the model can't be taken in these shapes.
        """
        names = list(self._model.outputs) if not output_names else list(output_names)
        unknown = [n for n in names if n not in self._model.outputs]
        if unknown:
            raise ValueError(f"the model has no output {sanitize(str(unknown[0]))!r}")
        arrays = self._checked(feeds)
        dynamic = self._dynamic_run(arrays)
        made = None if dynamic is None else dynamic(names, arrays)
        if made is not None:
            return made
        compiled = self.compile(arrays, names)
        results = dict(compiled.known)
        if compiled.graph is not None:
            given = {
                name: to_carrier(arrays[name], d.data_type)
                for name, d in compiled.graph.inputs.items()
            }
            results |= self._context.compute(compiled.graph, given)
        return [_converted(results[n], compiled.types[n]) for n in names]

    def graph(self, feeds: Mapping[str, Any]) -> MLGraph | None:
        """The graph that ``run`` uses for such feeds; None when all is known at import."""
        return self.compile(self._checked(feeds)).graph

    # -- one engine session for all shapes -------------------------------------------------------
    def _dynamic_run(self, arrays: Mapping[str, np.ndarray]) -> DynamicRun | None:
        """Who takes the model in any shapes at once; None where graphs have to."""
        if self._dynamic is None:
            return None
        state = context_state(self._context)
        state.check()
        if state.timeline.observer is not None:
            return None  # a profile looks at graphs
        if self._dynamic is _UNTRIED:
            background.shielded(self._try_dynamic, arrays)
        return self._dynamic if isinstance(self._dynamic, DynamicRun) else None

    def _try_dynamic(self, arrays: Mapping[str, np.ndarray]) -> None:
        with self._lock:
            if self._dynamic is not _UNTRIED:
                return
            trial = Trial(self._model)
            try:
                convert(trial, {n: x if not x.size else x.shape for n, x in arrays.items()}, None)
            except UnsupportedModelError as error:
                if error.values_needed:
                    self._dynamic = None
                # Other shapes may do: the graphs say what is wrong with these.
                return
            self._dynamic = opened(self._model, trial)

    # -- compilation -----------------------------------------------------------------------------
    def compile(
        self, arrays: Mapping[str, np.ndarray], names: Sequence[str] | None = None
    ) -> _Compiled:
        """The compiled graph for these arrays' shapes, and values of those bound. It has all
        outputs; those of ``names`` alone where others can't be taken."""
        # Not under a lock in the main thread, where a signal handler may want it too.
        return background.shielded(self._compile, arrays, names)

    def _compile(
        self, arrays: Mapping[str, np.ndarray], names: Sequence[str] | None
    ) -> _Compiled:
        some = None if names is None or {*names} == {*self._model.outputs} else sorted({*names})
        with self._lock:
            while True:
                wanted = some if self._partial else None
                key = self._key(arrays), wanted and tuple(wanted)
                found = self._graphs.get(key)
                if found is not None:
                    self._graphs.move_to_end(key)
                    return found
                try:
                    made = self._build(arrays, wanted)
                except UnsupportedModelError as error:
                    more = {n for n in error.values_needed if _may_bind(arrays.get(n))}
                    if more - self._bound:
                        self._bound |= more
                    elif some is not None and wanted is None:
                        self._partial = True
                    else:
                        raise
                    continue
                self._graphs[key] = made
                while len(self._graphs) > self._keep:
                    self._graphs.popitem(last=False)
                return made

    def _key(self, arrays: Mapping[str, np.ndarray]) -> Any:
        shapes = tuple((name, x.shape) for name, x in sorted(arrays.items()))
        return shapes, tuple((name, arrays[name].tobytes()) for name in sorted(self._bound))

    def _build(
        self, arrays: Mapping[str, np.ndarray], names: Sequence[str] | None
    ) -> _Compiled:
        builder = MLGraphBuilder(self._context)
        constant = self._shared_constant if self._shares else constant_of
        conversion = Conversion(self._model, builder, constant, self._narrow_double)
        # An input without elements has no place in a graph; its value is known, though.
        given = {
            name: x if name in self._bound or not x.size else x.shape for name, x in arrays.items()
        }
        values = convert(conversion, given, names)
        known = {name: v.array for name, v in values.items() if v.array is not None}
        live: dict[str, Tensor] = {n: v for n, v in values.items() if v.array is None}
        graph = builder.build(output_operands(builder, live)).result() if live else None
        types = {name: self._output_type(name, v) for name, v in values.items()}
        return _Compiled(graph, types, known)

    def _output_type(self, name: str, value: Tensor) -> str:
        declared = self._model.outputs[name].type
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
        """What tells an array from others: where it lies, if that is memory that the model keeps,
        or else what it holds."""
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

    # -- feeds -----------------------------------------------------------------------------------
    def _checked(self, feeds: Mapping[str, Any]) -> dict[str, np.ndarray]:
        ports = self._model.inputs
        missing = [n for n in ports if n not in feeds]
        optional = {t.name: t for t in self._model.graph.initializer}
        extra = [n for n in feeds if n not in ports and n not in optional]
        if missing or extra:
            raise ValueError(
                f"feeds lack {[sanitize(n) for n in missing]}, "
                f"and have unknown {[sanitize(str(n)) for n in extra]}"
            )
        made = {}
        for name, value in feeds.items():
            if name not in ports:
                continue
            if ports[name].type in NO_TENSORS:
                reason = f"its type is {ports[name].type}; WebNN has tensors of numbers"
                raise UnsupportedModelError([Problem(name, "input", reason)])
            array = np.asarray(value)
            expected = ports[name].type
            if array.dtype.name != expected:
                raise TypeError(
                    f"input {sanitize(name)!r} is {array.dtype}, the model has {expected}"
                )
            made[name] = array
        return made


def _owner(array: np.ndarray) -> np.ndarray:
    """The array whose memory this one is a part of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _may_bind(array: np.ndarray | None) -> bool:
    if array is None:
        return False
    return array.dtype.kind in "iub" or array.size <= _MAX_BOUND_FLOATS


def _converted(array: np.ndarray, name: str) -> np.ndarray:
    kind = numpy_type(name)
    if array.dtype == kind:
        return array
    return array != 0 if kind == np.bool_ else array.astype(kind)


def _node_arg(port: Port) -> NodeArg:
    try:
        elem_type = helper.np_dtype_to_tensor_dtype(numpy_type(port.type))
        name = TensorProto.DataType.Name(elem_type).lower()
    except (TypeError, ValueError):
        return NodeArg(port.name, port.type, port.shape and list(port.shape))
    name = {"bool": "bool"}.get(name, name)
    return NodeArg(port.name, f"tensor({name})", None if port.shape is None else list(port.shape))


__all__ = ["NodeArg", "Session", "carrier"]
