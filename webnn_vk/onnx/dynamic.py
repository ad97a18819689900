"""A model with open dimensions in one session of ONNX Runtime, where that computes for the CPU
device: no graph for each shape, the weights once.

The session takes models that ONNX Runtime computes as the graphs would: a trial import without a
device looks at each node. A model with a node that ONNX Runtime is known to get wrong, or to crash
at, is left to the graphs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from webnn_vk.api.builder import ShapeBuilder, constant_of
from webnn_vk.support.heap import trim_heap

from .convert import Conversion
from .nodes import NodeCall
from .reading import Model, live_nodes, tensors_of
from .runtime_limits import DEVIATIONS, LIMITS
from .values import Tensor, TensorList, Value

#: Initializers up to this size are part of the model: shapes and the like are needed to load it.
_EMBEDDED_BYTES = 1024
#: Operators that the import unrolls, or takes a branch of, for the shapes of one call only.
_CONTROL = {"If", "Loop", "Scan", "SequenceMap", "Optional", "OptionalGetElement"}
#: 8-bit products saturate on processors without VNNI.
_INTEGER_PRODUCTS = re.compile(
    r"^(QLinear|QGemm|QAttention|QEmbed|QMoE|DynamicQuantize|MatMulInteger|ConvInteger|MatMulNBits)"
)
_TYPES = {
    "bool", "float32", "float16", "int8", "uint8", "int32", "uint32", "int64", "uint64",
}
#: ONNX Runtime compares the lower halves of some 64-bit integers: of these they suffice.
_MAX_COMPARED = 1 << 31
#: Points of a grid, in halves of the image, are beyond its padding from here on.
_FAR = 16.0


class _Unfit(Exception):
    """The model is the graphs', with the reason."""


class DynamicRun:
    """One session for all shapes of a model's inputs."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._inputs = {i.name for i in session.get_inputs()}

    def __call__(
        self, names: Sequence[str], arrays: Mapping[str, np.ndarray]
    ) -> list[np.ndarray] | None:
        """The outputs of these names; None where ONNX Runtime refuses: the graphs say why, or what
        WebNN makes of it."""
        given = {name: x for name, x in arrays.items() if name in self._inputs}
        try:
            made: list[np.ndarray] = self._session.run(list(names), given)
        except MemoryError:
            raise
        except Exception:
            return None
        return made


class Trial(Conversion):
    """An import that builds nothing. ``unfit``: why the model is the graphs'."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, ShapeBuilder(), constant_of)
        self.unfit: list[str] = []
        graph = model.graph
        self._stored = {t.name for t in graph.initializer}
        self._stored |= {n.output[0] for n in graph.node if n.op_type == "Constant" and n.output}

    def observe(self, node: NodeCall, inputs: Sequence[Value | None]) -> None:
        try:
            reason = self._reason(node, inputs)
        except (TypeError, ValueError):
            reason = "attributes of other types"  # the operator's function says what is wrong
        if reason:
            self.unfit.append(f"{node.full_name} {node.title!r}: {reason}")

    def _reason(self, node: NodeCall, inputs: Sequence[Value | None]) -> str:
        if node.operator in _CONTROL:
            return "its form depends on one call"
        if _INTEGER_PRODUCTS.match(node.operator):
            return "8-bit products"
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        if any(isinstance(x, TensorList) for x in inputs):
            return "sequences"
        types = {x.type for x in tensors}
        if types - _TYPES:
            return f"computes with {', '.join(sorted(types - _TYPES))}"
        shapes = [x.shape if isinstance(x, Tensor) else None for x in inputs]
        for limit in (*LIMITS, *DEVIATIONS):
            if node.operator in limit.operators and (
                not limit.types or (tensors and tensors[0].type in limit.types)
            ) and (limit.when is None or limit.when(node.attributes, shapes)) and not all(
                _is_small(x) for x in tensors
            ):
                return limit.reason
        integers = all(t not in ("float32", "float16") for t in types)
        if node.operator in ("Div", "Mod") and integers and not self._divides(node, inputs):
            return "a division by what may be zero"
        if node.operator == "ReduceMean" and integers:
            return "a division by how many there are"
        return ""

    def _divides(self, node: NodeCall, inputs: Sequence[Value | None]) -> bool:
        """Whether the divisor is stored in the model, without a zero."""
        divisor = inputs[1] if len(inputs) > 1 else None
        if not isinstance(divisor, Tensor) or divisor.array is None:
            return False
        return node.inputs[1] in self._stored and bool(np.all(divisor.array))


def _is_small(x: Tensor) -> bool:
    """Whether it is arithmetic of shapes, known at import."""
    return x.array is not None and bool(np.all(np.abs(x.array.astype(np.float64)) < _MAX_COMPARED))


def opened(model: Model, trial: Trial) -> DynamicRun | None:
    """The session of a model that a trial ran; None if no session can be made."""
    if trial.unfit:
        return None
    # A third of a second to load; whether it can be, graphs find out too.
    from webnn_vk.runtime import onnx_session

    try:
        data, weights = _written(model)
        options = onnx_session.plain_options()
        # It would keep one for each shape.
        options.enable_mem_pattern = False
        # It holds what it needs: what it has packed it lets go.
        session, _ = onnx_session.open_session(data, weights, options)
    except MemoryError:
        raise
    except Exception:
        return None
    del weights
    trim_heap()
    return DynamicRun(session)


def _written(model: Model) -> tuple[bytes, dict[str, np.ndarray]]:
    """The model without its weights, and those."""
    graph = model.graph
    nodes, _ = live_nodes(graph.node, (v.name for v in graph.output))
    bodies = (*nodes, *model.functions.values())
    # ONNX Runtime would look for files beside the model.
    if graph.sparse_initializer or any(
        t.data_location == TensorProto.EXTERNAL for body in bodies for t in tensors_of(body)
    ):
        raise _Unfit("weights that are not plain initializers")
    made = ModelProto(ir_version=model.proto.ir_version)
    made.opset_import.extend(model.proto.opset_import)
    made.functions.extend(model.proto.functions)
    for function in made.functions:
        near = [*_near(function.node)]
        del function.node[:]
        function.node.extend(near)
    made.graph.name = graph.name or "graph"
    made.graph.node.extend(_near(nodes))
    made.graph.input.extend(v for v in graph.input if v.name in model.inputs)
    made.graph.output.extend(graph.output)
    weights: dict[str, np.ndarray] = {}
    read = {t.name: array for t, array in model.arrays.values() if isinstance(t, TensorProto)}
    for tensor in graph.initializer:
        if tensor.name not in read:
            continue  # nothing uses it
        array = read[tensor.name]
        if array.nbytes <= _EMBEDDED_BYTES:
            made.graph.initializer.append(numpy_helper.from_array(array, tensor.name))
            continue
        weights[tensor.name] = np.require(array, requirements=["C", "ALIGNED"])
        named = made.graph.initializer.add(
            name=tensor.name, data_type=tensor.data_type, dims=tensor.dims,
            data_location=TensorProto.EXTERNAL,
        )
        named.external_data.add(key="location", value="external")
    return made.SerializeToString(), weights


def _near(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes, with each point of a grid moved near the image. ONNX Runtime reads an image where
    a point is farther away than its integers reach."""
    for given in nodes:
        node = given
        if node.op_type == "GridSample" and len(node.input) == 2:
            moved = [f"{node.output[0]} {part}" for part in ("near", "from", "to")]
            for name, bound in zip(moved[1:], (-_FAR, _FAR), strict=True):
                yield helper.make_node("Constant", [], [name], value_float=bound)
            yield helper.make_node("Clip", [node.input[1], *moved[1:]], moved[:1])
            node = helper.make_node(
                node.op_type, [node.input[0], moved[0]], node.output, node.name, domain=node.domain
            )
            node.attribute.extend(given.attribute)
        yield node


def plain(model: Model) -> bool:
    """Whether inputs and outputs are tensors of types that both sides have."""
    ports = (*model.inputs.values(), *model.outputs.values())
    return all(port.type in _TYPES for port in ports)
