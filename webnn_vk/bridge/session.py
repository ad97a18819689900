"""A client's session: its objects by number, and the methods that it may call on them.

Names of methods, options and enumerations are the IDL's. Every request ends in a value or in an
error that has the IDL's name; nothing else happens to what a client sends.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any, TypeVar

import numpy as np

from webnn_vk import __version__
from webnn_vk.api.builder import MLGraphBuilder, MLOperand, ShapeBuilder, apply_operator
from webnn_vk.api.context import MLContext
from webnn_vk.api.ml_graph import MLGraph
from webnn_vk.api.navigator import ml
from webnn_vk.api.tensor import MLTensor
from webnn_vk.compiler.ops import OPERATORS, Operator
from webnn_vk.compiler.ops.arguments import Operands
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import DOMException, shortage_error
from webnn_vk.support.promise import MLPromise

from .frames import PROTOCOL, Frame, Kind
from .names import camel_case

T = TypeVar("T")

#: Stands for an operand of another builder: the library reports it where the draft's steps say.
_FOREIGN = ShapeBuilder().input("another builder's", {"data_type": "float32", "shape": []})


class VersionMismatch(Exception):
    """The client speaks another protocol; the session ends."""


@dataclass(frozen=True)
class _Signature:
    """How an operator's arguments arrive: names and whether they are operands (None: no)."""

    record: Operator
    positional: tuple[Callable[..., Any] | None, ...]
    options: dict[str, tuple[str, Callable[..., Any] | None]]

    @classmethod
    def of(cls, record: Operator) -> _Signature:
        def reader(parameter: Any) -> Callable[..., Any] | None:
            if not parameter.is_operand:
                return None
            return _Builder.many if parameter.argument is Operands else _Builder.one

        return cls(
            record,
            tuple(reader(p) for p in record.parameters if not p.keyword),
            {
                "label": ("label", None),
                **{camel_case(p.name): (p.name, reader(p)) for p in record.parameters if p.keyword},
            },
        )


@dataclass
class _Builder:
    """A builder with its operands, which a client knows by their index."""

    builder: MLGraphBuilder
    operands: list[MLOperand] = field(default_factory=list)

    def one(self, index: Any) -> MLOperand:
        if type(index) is not int or not -1 <= index < len(self.operands):
            raise TypeError("no such operand")
        return _FOREIGN if index < 0 else self.operands[index]

    def many(self, indices: Any) -> list[MLOperand]:
        return [self.one(index) for index in indices]

    def add(self, operand: MLOperand) -> list[Any]:
        """The description of a new operand that is sent to the client."""
        self.operands.append(operand)
        return [len(self.operands) - 1, operand.data_type, operand.shape]


_SIGNATURES = {camel_case(name): _Signature.of(record) for name, record in OPERATORS.items()}


class Session:
    """The objects and the waiting replies of one client. ``wake`` is called, in any thread, when a
    reply or event waits for the client's next CALL or POLL."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._objects: dict[int, Any] = {}
        self._numbers = itertools.count(1)
        self._waiting: deque[Frame] = deque()
        self._greeted = False

    # -- frames --------------------------------------------------------------------------------
    def handle(self, frame: Frame) -> list[Frame]:
        """The replies to write, in order. Raises VersionMismatch."""
        try:
            return self._handle(frame)
        except MemoryError as error:
            reply = error_reply(frame.request, error)
        if frame.kind not in (Kind.START, Kind.RELEASE):
            return [reply]
        self._later(reply)
        return []

    def _handle(self, frame: Frame) -> list[Frame]:
        kind, request, header, raw = frame
        if not self._greeted:
            return [self._hello(frame)]
        if kind == Kind.CALL:
            reply = self._reply(request, lambda: self._method(header, raw, "")())
            return [*self._waited(), reply]
        if kind == Kind.START:
            self._start(request, header, raw)
        elif kind == Kind.POLL:
            return [*self._waited(), Frame(Kind.VALUE, request, None)]
        elif kind == Kind.RELEASE:
            for number in header if isinstance(header, list) else ():
                thing = self._objects.pop(number if type(number) is int else 0, None)
                if isinstance(thing, MLContext):
                    thing.destroy()
        else:
            return [*self._waited(), error_reply(request, TypeError(f"no frame of kind {kind}"))]
        return []

    def close(self) -> None:
        """Destroy the contexts."""
        for thing in list(self._objects.values()):
            if isinstance(thing, MLContext):
                thing.destroy()
        self._objects.clear()

    def _hello(self, frame: Frame) -> Frame:
        theirs = frame.header.get("protocol") if isinstance(frame.header, dict) else None
        if frame.kind != Kind.HELLO or theirs != PROTOCOL:
            raise VersionMismatch(
                f"webnn_vk {__version__} speaks protocol {PROTOCOL} of the bridge, the client "
                f"{theirs!r}: install the same versions of webnn_vk and of the package webnn-vk"
            )
        self._greeted = True
        return Frame(
            Kind.HELLO, frame.request, {"protocol": PROTOCOL, "version": __version__}
        )

    def _waited(self) -> list[Frame]:
        frames = list(self._waiting)
        for _ in frames:
            self._waiting.popleft()
        return frames

    def _later(self, frame: Frame) -> None:
        self._waiting.append(frame)
        self._wake()

    def _method(self, header: Any, raw: np.ndarray | None, prefix: str) -> Callable[[], Any]:
        match header:
            case [str() as name, list() as arguments]:
                method = _METHODS.get(prefix + name)
                if method is not None:
                    given = () if raw is None else (raw,)
                    return partial(method, self, *arguments, *given)
            case MemoryError():
                raise header
        raise TypeError("no such method")

    def _reply(self, request: int, compute: Callable[[], Any]) -> Frame:
        try:
            value = compute()
        except Exception as error:
            return error_reply(request, error)
        if isinstance(value, np.ndarray):
            return Frame(Kind.VALUE, request, None, value)
        return Frame(Kind.VALUE, request, value)

    def _start(self, request: int, header: Any, raw: np.ndarray | None) -> None:
        try:
            promise, made = self._method(header, raw, "start ")()
        except Exception as error:
            self._later(error_reply(request, error))
            return
        promise.add_done_callback(
            lambda done: self._later(self._reply(request, lambda: made(done.result())))
        )

    # -- objects -------------------------------------------------------------------------------
    def _new(self, thing: Any) -> int:
        number = next(self._numbers)
        self._objects[number] = thing
        return number

    def _get(self, number: Any, kind: type[T]) -> T:
        thing = self._objects.get(number) if type(number) is int else None
        if not isinstance(thing, kind):
            raise TypeError(f"no such {kind.__name__.lstrip('_')}")
        return thing

    def _tensors(self, numbers: dict[str, int]) -> dict[str, MLTensor]:
        return {name: self._get(number, MLTensor) for name, number in numbers.items()}

    # -- methods: navigator and context ----------------------------------------------------------
    def _create_context(self, power_preference: str, accelerated: bool) -> Any:
        promise = ml.create_context(power_preference=power_preference, accelerated=accelerated)

        def made(context: MLContext) -> list[Any]:
            number = self._new(context)
            context.lost.add_done_callback(
                lambda lost: self._later(
                    Frame(Kind.EVENT, 0, ["lost", number, lost.result().message])
                )
            )
            return [number, context.accelerated]

        return promise, made

    def _limits(self, context: int) -> Any:
        return _camel_keys(self._get(context, MLContext).op_support_limits())

    def _create_tensor(
        self, context: int, data_type: str, shape: list[int], readable: bool, writable: bool
    ) -> Any:
        descriptor = {
            "data_type": data_type, "shape": shape, "readable": readable, "writable": writable
        }
        return self._get(context, MLContext).create_tensor(descriptor), self._new

    def _create_constant_tensor(
        self, context: int, data_type: str, shape: list[int], view: str, raw: Any = None
    ) -> Any:
        promise = self._get(context, MLContext).create_constant_tensor(
            {"data_type": data_type, "shape": shape}, _array(view, raw)
        )
        return promise, self._new

    def _write(self, context: int, tensor: int, view: str, raw: Any = None) -> None:
        self._get(context, MLContext).write_tensor(self._get(tensor, MLTensor), _array(view, raw))

    def _read(self, context: int, tensor: int, view: str = "", size: int = 0) -> Any:
        """The contents; ``view`` and ``size``, in bytes, describe the client's own buffer."""
        output = _empty(view, size) if view else None
        promise = self._get(context, MLContext).read_tensor(self._get(tensor, MLTensor), output)
        if output is None:
            return promise, lambda array: array
        length = self._get(tensor, MLTensor).nbytes
        return promise, lambda _: output.view(np.uint8)[:length]

    def _dispatch(
        self, context: int, graph: int, inputs: dict[str, int], outputs: dict[str, int]
    ) -> None:
        self._get(context, MLContext).dispatch(
            self._get(graph, MLGraph), self._tensors(inputs), self._tensors(outputs)
        )

    def _destroy(self, number: int) -> None:
        thing = self._objects.get(number)
        if isinstance(thing, (MLContext, MLGraph, MLTensor)):
            thing.destroy()

    # -- methods: builder --------------------------------------------------------------------------
    def _new_builder(self, context: int) -> int:
        return self._new(_Builder(MLGraphBuilder(self._get(context, MLContext))))

    def _input(self, builder: int, name: str, data_type: str, shape: list[int]) -> Any:
        to = self._get(builder, _Builder)
        return to.add(to.builder.input(name, {"data_type": data_type, "shape": shape}))

    def _constant(
        self, builder: int, data_type: str, shape: list[int], view: str, raw: Any = None
    ) -> Any:
        to = self._get(builder, _Builder)
        descriptor = {"data_type": data_type, "shape": shape}
        return to.add(to.builder.constant(descriptor, _array(view, raw)))

    def _scalar(self, builder: int, data_type: str, value: float) -> Any:
        to = self._get(builder, _Builder)
        return to.add(to.builder.constant(data_type, value))

    def _constant_tensor(self, builder: int, tensor: int) -> Any:
        to = self._get(builder, _Builder)
        return to.add(to.builder.constant(self._get(tensor, MLTensor)))

    def _operator(
        self, builder: int, name: str, arguments: list[Any], options: dict[str, Any]
    ) -> Any:
        to = self._get(builder, _Builder)
        signature = _SIGNATURES.get(name)
        if signature is None or len(arguments) != len(signature.positional):
            raise TypeError("no such operator")
        args = [
            value if read is None else read(to, value)
            for read, value in zip(signature.positional, arguments, strict=True)
        ]
        given = {}
        for key, value in options.items():
            own, read = signature.options[key]
            given[own] = value if read is None else read(to, value)
        result = apply_operator(to.builder, signature.record.name, *args, **given)
        return [to.add(o) for o in result] if isinstance(result, list) else to.add(result)

    def _build(self, builder: int, outputs: dict[str, int]) -> Any:
        to = self._get(builder, _Builder)

        def made(graph: MLGraph) -> list[Any]:
            used = {_DEVICES[step.device] for step in graph.report().steps}
            return [self._new(graph), sorted(used)]

        return to.builder.build({n: to.one(i) for n, i in outputs.items()}), made


#: The suite's names for the devices of a graph's steps.
_DEVICES = {"vulkan": "gpu", "cpu": "cpu"}

#: The requests of clients by name. "start …" returns a promise and a function that makes its value.
_METHODS: dict[str, Callable[..., Any]] = {
    "limits": Session._limits,
    "write": Session._write,
    "dispatch": Session._dispatch,
    "destroy": Session._destroy,
    "builder": Session._new_builder,
    "input": Session._input,
    "constant": Session._constant,
    "scalar": Session._scalar,
    "constantTensor": Session._constant_tensor,
    "operator": Session._operator,
    "start createContext": Session._create_context,
    "start createTensor": Session._create_tensor,
    "start createConstantTensor": Session._create_constant_tensor,
    "start read": Session._read,
    "start build": Session._build,
}


def _camel_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {camel_case(key): _camel_keys(item) for key, item in value.items()}
    return value


def _array(view: str, raw: Any) -> np.ndarray:
    """The raw bytes, with the elements of the client's typed array."""
    array = np.empty(0, np.uint8) if raw is None else raw
    return array.view(_dtype(view))


def _empty(view: str, size: int) -> np.ndarray:
    return np.zeros(size, np.uint8).view(_dtype(view))


def _dtype(view: str) -> np.dtype:
    if view not in _VIEWS:
        raise TypeError(f"no typed array of {view!r}")
    return np.dtype(view)


#: Elements of JavaScript's typed arrays.
_VIEWS = frozenset({
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64",
})


def error_reply(request: int, error: Exception) -> Frame:
    """The reply to a request that raised an error, by the name that the IDL has for it."""
    known = shortage_error(error, "the bridge")
    if isinstance(known, DOMException):
        name, message = known.name, str(known)
    elif isinstance(known, TypeError):
        name, message = "TypeError", str(known)
    else:
        name, message = "UnknownError", f"{type(known).__name__}: {known}"
    return Frame(Kind.ERROR, request, [name, message])


__all__ = ["MLPromise", "Session", "VersionMismatch", "error_reply"]
