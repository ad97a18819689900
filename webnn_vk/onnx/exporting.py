"""``export``: graphs as ONNX models, built ones as they were compiled."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ..builder import MLOperand, elements_of, graph_of
from ..errors import NotSupportedError
from ..graph import Graph, Value
from ..graph.onnx import MAX_EMBEDDED, OLDEST_OPSET, fragment_of, model_of
from ..kernels import packing_called
from ..ml_graph import MLGraph, context_of, executable_of
from ..promise import MLPromise, kind_of
from ..runtime import Lane, Read, Storage

#: With external data, constants from this many bytes on are outside of the model.
_EXTERNAL_BYTES = 1024
#: Where constants begin in the file of external data: pages, so that they can be mapped.
_ALIGNMENT = 4096


def export(
    graph_or_outputs: MLGraph | Mapping[str, MLOperand],
    path: Any = None,
    *,
    external_data: bool | None = None,
    opset: int | None = None,
) -> onnx.ModelProto | None:
    """A graph as an ONNX model, for looking at, checking and taking elsewhere.

    ``graph_or_outputs``: a built graph, as it was compiled for its device (optimised, composite
    operators taken apart, weights read back), or operands by name of a builder that has not built
    yet, as they were called. ``path``: a file's path or a binary file object to write to; without
    it the ``onnx.ModelProto`` is returned. Inputs and outputs keep their names.

    ``external_data``: weights in a file of their own beside the model, ``NAME.data``, True or
    False; by default where they exceed what one file can hold (2 GiB). ``opset``: 21 for older
    readers, or later; by default 26, or the newest of the installed package if that is older.

    TypeError for anything else to export, ValueError for an opset that can't be, InvalidStateError
    for a destroyed graph, NotSupportedError that lists every operator that ONNX can't express, and
    for a graph from a file of compiled ones, which holds no operators.
    """
    newest = onnx.defs.onnx_opset_version()
    if opset is not None and opset not in range(OLDEST_OPSET, newest + 1):
        raise ValueError(f"export: opset {opset!r} is not one of {OLDEST_OPSET} … {newest}")
    graph, elements = _source(graph_or_outputs)
    fragment = fragment_of(graph, elements)
    size = sum(array.nbytes for array in fragment.constants.values())
    is_path = isinstance(path, (str, os.PathLike))
    if external_data is None:
        external_data = size > MAX_EMBEDDED
    if external_data and not is_path:
        raise NotSupportedError(
            f"export: weights of {size} bytes need a file beside the model; give a path"
        )
    if not external_data:
        model = model_of(fragment, opset=opset)
        if path is None:
            return model
        data = model.SerializeToString()
        if is_path:
            Path(path).write_bytes(data)
        else:
            path.write(data)
        return None
    place = Path(path)
    outside = {
        name: array for name, array in fragment.constants.items()
        if array.nbytes >= _EXTERNAL_BYTES
    }
    model = model_of(fragment, lambda name, array: name in outside, opset)
    _write_data(model, outside, place.with_name(place.name + ".data"))
    place.write_bytes(model.SerializeToString())
    return None


def _write_data(
    model: onnx.ModelProto, arrays: Mapping[str, np.ndarray], path: Path
) -> None:
    """The arrays into one file, and where they are into the model."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    with path.open("wb") as file:
        for name, array in arrays.items():
            file.write(bytes(-file.tell() % _ALIGNMENT))
            start = file.tell()
            file.write(np.asarray(array, order="C").reshape(-1).view(np.uint8).data)
            entries = {"location": path.name, "offset": start, "length": array.nbytes}
            del tensors[name].external_data[:]
            for key, value in entries.items():
                tensors[name].external_data.add(key=key, value=str(value))


def _source(given: Any) -> tuple[Graph, Callable[[Value], np.ndarray | None]]:
    if isinstance(given, Mapping):
        return graph_of(given), elements_of
    if not isinstance(given, MLGraph):
        raise TypeError(
            f"export: an MLGraph or a mapping of names to operands is expected, not "
            f"{kind_of(given)}"
        )
    executable = executable_of(given)
    compiled = executable.program.compiled
    if compiled is None:
        raise NotSupportedError(
            "export: this graph was loaded from a file, which holds compiled kernels and no "
            "operators; export it before it is saved"
        )
    lane = context_of(given).lane

    def elements(value: Value) -> np.ndarray | None:
        if value.source is None:
            return value.data
        return _read_back(executable.originals(value.source), value, lane)

    return compiled, elements


def _read_back(
    found: np.ndarray | list[tuple[Storage, str]], value: Value, lane: Lane
) -> np.ndarray | None:
    """A constant's elements from where they are: bytes, or storages with their packings, of which
    several may hold a part each."""
    described = value.descriptor
    if isinstance(found, np.ndarray):
        data = found[: described.byte_length].view(described.numpy_dtype)
        return data.reshape(described.shape)
    whole: np.ndarray | None = None
    for storage, packing in found:
        data = _bytes_of(storage, lane)
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


def _bytes_of(storage: Storage, lane: Lane) -> np.ndarray:
    promise: MLPromise[np.ndarray] = MLPromise("a constant's bytes")
    lane.enqueue(Read(storage, promise.resolve, promise.reject))
    return promise.result()
