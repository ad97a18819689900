"""``export``: graphs as ONNX models, built ones as they were compiled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from webnn_vk.api.builder import MLOperand
from webnn_vk.api.graph_source import source_of
from webnn_vk.api.ml_graph import MLGraph
from webnn_vk.compiler.ir.onnx import MAX_EMBEDDED, OLDEST_OPSET, fragment_of, model_of, serialized
from webnn_vk.support.errors import NotSupportedError

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
    for a destroyed graph, NotSupportedError that lists every operator that ONNX can't express,
    OperationError where weights can't be read back.
    """
    newest = onnx.defs.onnx_opset_version()
    if opset is not None and opset not in range(OLDEST_OPSET, newest + 1):
        raise ValueError(f"export: opset {opset!r} is not one of {OLDEST_OPSET} … {newest}")
    graph, elements = source_of(graph_or_outputs, "export")
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
        data = serialized(model)
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
    place.write_bytes(serialized(model))
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
