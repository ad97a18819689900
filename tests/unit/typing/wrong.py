"""Programs that type checkers refuse, each in the marked line; checked, never run."""

from __future__ import annotations

import numpy as np

import webnn_vk as webnn
from webnn_vk import gpu
from webnn_vk.typing import MLConv2dOptions, MLOperandDescriptorDict


def programs(
    context: webnn.MLContext,
    builder: webnn.MLGraphBuilder,
    graph: webnn.MLGraph,
    tensor: webnn.MLTensor,
    x: webnn.MLOperand,
) -> None:
    builder.input("x", {"data_type": "float33", "shape": [2]})  # wrong: no data type
    builder.input("x", {"dataType": "float32", "shape": [2]})  # wrong: camelCase
    builder.input("x", {"data_type": "float32"})  # wrong: no shape
    builder.input("x", {"data_type": "float32", "shape": 2})  # wrong: a number for a shape
    builder.constant("float", 0.5)  # wrong: no data type
    builder.cast(x, "double")  # wrong: no data type
    builder.conv2d(x, x, input_layout="nwhc")  # wrong: no layout
    builder.conv2d(x, x, filter_layout="iohw")  # wrong: a layout of the transposed one
    builder.conv2d(x, x, paddings=[1, 1, 1, 1])  # wrong: no option
    builder.conv2d(x)  # wrong: no filter
    builder.resample2d(x, mode="cubic")  # wrong: no mode
    builder.pad(x, [1], [1], mode="wrap")  # wrong: no mode
    builder.add(x, 1.0)  # wrong: a number for an operand
    builder.softmax(x)  # wrong: no axis
    builder.relu(x, x)  # wrong: an operand too many
    builder.concat(x, 0)  # wrong: one operand for a sequence
    print(builder.split(x, 2).shape)  # wrong: a list has no shape
    builder.convTranspose2d(x, x)  # wrong: camelCase
    builder.build([x])  # wrong: no names
    print(builder.build({"y": x}).inputs)  # wrong: a promise for its result
    context.create_tensor({"data_type": "float32", "shape": [2], "readble": True})  # wrong: typo
    context.create_tensor({"data_type": "f", "shape": [2]})  # wrong: no data type
    context.compute(graph, [np.ones(2)])  # wrong: no names
    context.dispatch(graph, {"x": np.ones(2)}, {"y": tensor})  # wrong: an array for a tensor
    webnn.ml.create_context(power_preference="fast")  # wrong: no such preference
    webnn.ml.create_context().compute(graph, {})  # wrong: a promise for a context
    webnn.MLOperandDescriptor("float", (2,))  # wrong: no data type
    webnn.MLTensorDescriptor(**graph.inputs["x"], readble=True)  # wrong: typo
    shape: list[int] = tensor.shape  # wrong: a tuple
    options: MLConv2dOptions = {"stride": [1, 1]}  # wrong: no option
    described: MLOperandDescriptorDict = {"data_type": "bool", "shape": []}  # wrong: no data type
    print(shape, options, described)


def passes(encoder: gpu.GPUCommandEncoder, queries: gpu.GPUQuerySet) -> None:
    encoder.begin_compute_pass(timestamp_writes={"query_set": queries, "end": 1})  # wrong: typo
    encoder.begin_compute_pass(timestamp_writes={"end_of_pass_write_index": 1})  # wrong: no set
