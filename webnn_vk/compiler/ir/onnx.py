"""Graph → ONNX model, for ``webnn_vk.onnx.export`` and the CPU engine.

The package ``onnx`` is an extra: it is imported when a model is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from webnn_vk.support import memory_probe, packages
from webnn_vk.support.errors import NotSupportedError, sanitize

from ..types.sizes import symbolic
from .graph import Graph, Node, Value
from .to_onnx import Fragment, write
from .to_onnx.writer import ELEMENT_TYPES

#: The newest opset to write, if the installed package knows it, and the oldest that has everything
#: needed (scales of blocks).
NEWEST_OPSET = 26
OLDEST_OPSET = 21
#: A model does not embed weights of this many bytes or more: a protobuf message has at most 2 GiB.
MAX_EMBEDDED = 2**31 - 2**24


def elements_of(value: Value) -> np.ndarray | None:
    """A constant's elements in host memory."""
    return value.data


def fragment_of(
    graph: Graph,
    elements: Callable[[Value], np.ndarray | None] = elements_of,
    titles: Mapping[Node, str] | None = None,
) -> Fragment:
    """The graph in ONNX. ImportError without the package ``onnx``; NotSupportedError that lists
    every operator that ONNX can't express."""
    require_onnx("exporting")
    fragment = write(graph, elements, titles)
    if fragment.problems:
        listed = "\n".join(f"  {p.operator}: {p.reason}" for p in fragment.problems)
        raise NotSupportedError(f"ONNX can't express\n{listed}")
    return fragment


def require_onnx(what: str) -> None:
    """ImportError, with the names of missing packages, without the extra ``onnx``."""
    packages.require(f"{what} needs", "onnx")


def model_of(
    fragment: Fragment, external: Callable[[str, np.ndarray], bool] = lambda name, array: False,
    opset: int | None = None,
) -> Any:
    """The ``onnx.ModelProto`` of a fragment. Constants for which ``external`` returns true are not
    embedded but described as external data at the location "external". MemoryError if there is not
    enough memory."""
    import onnx
    from onnx import helper, numpy_helper

    from webnn_vk import __version__

    opset = opset or min(NEWEST_OPSET, onnx.defs.onnx_opset_version())
    embedded = {n: a.nbytes for n, a in fragment.constants.items() if not external(n, a)}
    # Four copies of the bytes: in the array, the tensor, the graph and the model.
    memory_probe.require(4 * sum(embedded.values()) + memory_probe.PROTOBUF_BYTES)
    initializers = []
    for name, array in fragment.constants.items():
        if name in embedded:
            initializers.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
            continue
        tensor = onnx.TensorProto(
            name=name, data_type=ELEMENT_TYPES[array.dtype.name], dims=array.shape,
            data_location=onnx.TensorProto.EXTERNAL,
        )
        tensor.external_data.add(key="location", value="external")
        initializers.append(tensor)
    described = [
        [
            helper.make_tensor_value_info(
                name, ELEMENT_TYPES[d.data_type], symbolic(d.shape, lambda d: sanitize(str(d)))
            )
            for name, d in named.items()
        ]
        for named in (fragment.inputs, fragment.outputs)
    ]
    graph = helper.make_graph(fragment.nodes, "webnn", *described, initializers)
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(
        graph, opset_imports=imports, ir_version=helper.find_min_ir_version_for(imports),
        producer_name="webnn_vk", producer_version=__version__,
    )
    if fragment.dimensions:
        bounds = {name: list(pair) for name, pair in fragment.dimensions.items()}
        said = {"dimensions": json.dumps(bounds), "conditions": "; ".join(fragment.conditions)}
        helper.set_model_props(model, {f"webnn_vk.{k}": text for k, text in said.items() if text})
    return model


def serialized(model: Any) -> bytes:
    """The bytes of an ``onnx.ModelProto``. MemoryError if there is not enough memory."""
    memory_probe.require(2 * model.ByteSize() + memory_probe.PROTOBUF_BYTES)
    data: bytes = model.SerializeToString()
    return data
