"""Graphs as they were described or compiled, with their weights, for those who write them down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from webnn_vk.compiler.ir import Graph, Value
from webnn_vk.compiler.kernels import packing_called
from webnn_vk.compiler.program.compiled import compiled_graph, places
from webnn_vk.runtime import Read, Storage, Stream
from webnn_vk.support.errors import NotSupportedError, OperationError
from webnn_vk.support.promise import MLPromise, kind_of

from .builder import MLOperand, elements_of, graph_of
from .ml_graph import MLGraph, context_of, executable_of


def source_of(
    given: MLGraph | Mapping[str, MLOperand], what: str
) -> tuple[Graph, Callable[[Value], np.ndarray | None]]:
    """The graph up to some operands of a builder, as they were called, or that of a built graph, as
    it was compiled; and how to read the elements of its constants, one by one.

    TypeError for anything else, InvalidStateError for a destroyed graph, OperationError where the
    file of a graph that was loaded describes none. Elements are read one constant at a time
    (OperationError where what was saved can't be unpacked).
    """
    if isinstance(given, Mapping):
        return graph_of(given), elements_of
    if not isinstance(given, MLGraph):
        raise TypeError(
            f"{what}: an MLGraph or a mapping of names to operands is expected, not "
            f"{kind_of(given)}"
        )
    executable = executable_of(given)
    program = executable.program
    try:
        graph = compiled_graph(program)
    except (ValueError, RecursionError) as error:
        raise OperationError(f"{what}: the graph's text can't be read: {error}") from error
    if graph is None:
        raise NotSupportedError(f"{what}: nothing says which operators the graph was compiled of")
    stream = context_of(given).stream
    contents, where = executable.contents(), places(program)

    def elements(value: Value) -> np.ndarray | None:
        if value.source is None:
            return value.data
        held = [(contents[slot], packing) for slot, packing in where[value.source]]
        try:
            return _read_back(held, value, stream)
        except (ValueError, TypeError, IndexError) as error:
            raise OperationError(
                f"{what}: a constant {value.descriptor} can't be unpacked: {error}"
            ) from error

    return graph, elements


def with_weights(built: MLGraph, what: str) -> Graph:
    """The graph that a built one was compiled of, with its weights as data and its nodes on no
    device: to be compiled for another one. Raises as `source_of` does."""
    graph, elements = source_of(built, what)
    data = {value: elements(value) for value in graph.constants() if value.data is None}
    filled = {
        value: replace(value, data=array, source=None)
        for value, array in data.items() if array is not None
    }
    nodes = tuple(
        replace(
            node, device="", reason="",
            operands={name: filled.get(value, value) for name, value in node.operands.items()},
        )
        for node in graph.nodes
    )
    outputs = {name: filled.get(value, value) for name, value in graph.outputs.items()}
    return Graph(graph.inputs, outputs, nodes)


def _read_back(
    held: Sequence[tuple[Storage | np.ndarray, str]], value: Value, stream: Stream
) -> np.ndarray | None:
    """A constant's elements from where they are: bytes or storages with their packings, of which
    several may hold a part each."""
    described = value.descriptor
    whole: np.ndarray | None = None
    for place, packing in held:
        data = place if isinstance(place, np.ndarray) else _bytes_of(place, stream)
        if not packing:
            return data[: described.byte_length].view(described.numpy_dtype).reshape(
                described.shape
            )
        form, packed = packing_called(packing)
        part = form.unpack(data, packed)
        if whole is None:
            whole = part
        else:
            # What a part does not hold is 0 there.
            mask = form.unpack(np.full_like(data, 255), packed).view(np.uint8) != 0
            whole.view(np.uint8)[mask] = part.view(np.uint8)[mask]
    return None if whole is None else whole.reshape(described.shape)


def _bytes_of(storage: Storage, stream: Stream) -> np.ndarray:
    promise: MLPromise[np.ndarray] = MLPromise("a constant's bytes")
    stream.enqueue(Read(storage, promise.resolve, promise.reject))
    return promise.result()
