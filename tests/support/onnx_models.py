"""Small ONNX models for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def info(name: str, shape: Sequence[int | str] | None, kind: int = FLOAT) -> Any:
    """An input or output."""
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 21,
    microsoft: bool = False,
    **more: Any,
) -> ModelProto:
    """A model of a graph; ``constants`` become initializers."""
    initializers = [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", opset)]
    if microsoft:
        opsets.append(helper.make_opsetid("com.microsoft", 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, **more)


def classifier(rng: np.random.Generator, image: Sequence[int | str] = ("n", 3, 8, 8)) -> ModelProto:
    """Convolution, relu, pooling, a reshape computed from the shape, and a linear layer."""
    node = helper.make_node
    constants = {
        "w": rng.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "b": rng.normal(size=4).astype(np.float32),
        "m": rng.normal(size=(5, 64)).astype(np.float32),
        "zero": np.array(0, np.int64),
        "axis": np.array([0], np.int64),
        "rest": np.array([-1], np.int64),
    }
    nodes = [
        node("Conv", ["image", "w", "b"], ["conv"], "stem", pads=[1, 1, 1, 1]),
        node("Relu", ["conv"], ["active"]),
        node("MaxPool", ["active"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Shape", ["pooled"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"]),
        node("Unsqueeze", ["batch", "axis"], ["rows"]),
        node("Concat", ["rows", "rest"], ["flat_shape"], axis=0),
        node("Reshape", ["pooled", "flat_shape"], ["flat"]),
        node("Gemm", ["flat", "m"], ["scores"], "head", transB=1),
    ]
    return model(nodes, [info("image", image)], [info("scores", [image[0], 5])], constants)


def reference(proto: ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs by ONNX's reference implementation."""
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(proto).run(None, dict(feeds)))


def check(proto: ModelProto) -> ModelProto:
    """The model itself, if ONNX's checker finds no fault."""
    onnx.checker.check_model(proto)
    return proto


def take(source: Any, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The whole import of a model without a device: its outputs by name."""
    from webnn_vk.api.builder import ShapeBuilder, constant_of
    from webnn_vk.onnx.convert import Conversion
    from webnn_vk.onnx.importing import convert
    from webnn_vk.onnx.reading import read_model

    conversion = Conversion(read_model(source), ShapeBuilder(), constant_of)
    return convert(conversion, inputs or {}, None)
