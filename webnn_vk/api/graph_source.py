"""Graphs as they were described or compiled, with their weights, for exporters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from webnn_vk.compiler.ir import Graph, Value
from webnn_vk.compiler.kernels import packing_called
from webnn_vk.compiler.passes.rewrite import Substitution
from webnn_vk.compiler.program.compiled_from import compiled_graph, constant_slots
from webnn_vk.runtime.context_state import ContextState
from webnn_vk.runtime.storage import Storage
from webnn_vk.support.errors import NotSupportedError, OperationError
from webnn_vk.support.promise import kind_of

from .build import read_storage
from .builder import MLOperand, graph_of
from .constants import elements_of
from .ml_graph import MLGraph, executable_of


def source_of(
    given: MLGraph | Mapping[str, MLOperand], what: str
) -> tuple[Graph, Callable[[Value], np.ndarray | None]]:
    """The graph that computes some operands of a builder, as described, or a built graph as it was
    compiled; and a function that reads the elements of one constant. A graph with named dimensions
    is given as it was described, with sizes of a trace of its own.

    Raises TypeError for anything else, InvalidStateError for a destroyed graph, OperationError if
    the file of a loaded graph describes none. Elements are read one constant at a time
    (OperationError if saved weights can't be unpacked).
    """
    if isinstance(given, Mapping):
        return graph_of(given), elements_of
    if not isinstance(given, MLGraph):
        raise TypeError(
            f"{what}: an MLGraph or a mapping of names to operands is expected, not "
            f"{kind_of(given)}"
        )
    executable = executable_of(given, what=what)
    if given._shapes is not None:
        return given._shapes.shaped.described(), elements_of
    program = executable.program
    try:
        graph = compiled_graph(program)
    except (ValueError, RecursionError) as error:
        raise OperationError(f"{what}: the graph's text can't be read: {error}") from error
    if graph is None:
        raise NotSupportedError(f"{what}: nothing says which operators the graph was compiled of")
    contents, where = executable.contents(), constant_slots(program)

    def elements(value: Value) -> np.ndarray | None:
        if value.source is None:
            return value.data
        held = [(contents[slot], packing) for slot, packing in where[value.source]]
        try:
            return _unpacked(held, value, given._context)
        except (ValueError, TypeError, IndexError) as error:
            raise OperationError(
                f"{what}: a constant {value.descriptor} can't be unpacked: {error}"
            ) from error

    return graph, elements


def with_weights(built: MLGraph, what: str) -> Graph:
    """The graph that a built one was compiled from, with its weights as data and its nodes not
    placed on a device, so that it can be compiled for another one. Raises as `source_of` does."""
    graph, elements = source_of(built, what)
    data = {value: elements(value) for value in graph.constants() if value.data is None}
    filled = Substitution(
        (value, replace(value, data=array, source=None))
        for value, array in data.items() if array is not None
    )
    nodes = tuple(replace(node, device="", reason="") for node in graph.nodes)
    return filled.rebuild(replace(graph, nodes=nodes), map(filled.apply, nodes))


def _unpacked(
    held: Sequence[tuple[Storage | np.ndarray, str]], value: Value, state: ContextState
) -> np.ndarray | None:
    """A constant's elements, unpacked from bytes or storages with their packings. If there are
    several, each may hold a part."""
    described = value.descriptor
    whole: np.ndarray | None = None
    for place, packing in held:
        data = place if isinstance(place, np.ndarray) else read_storage(state, place)
        if not packing:
            return data[: described.byte_length].view(described.numpy_dtype).reshape(
                described.shape
            )
        form, packed = packing_called(packing)
        part = form.unpack(data, packed)
        if whole is None:
            whole = part
        else:
            # Elements that a part doesn't hold unpack to 0.
            mask = form.unpack(np.full_like(data, 255), packed).view(np.uint8) != 0
            whole.view(np.uint8)[mask] = part.view(np.uint8)[mask]
    return None if whole is None else whole.reshape(described.shape)
