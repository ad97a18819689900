"""Programs that type checkers accept; checked, not run."""

from __future__ import annotations

from typing import assert_type

import numpy as np

import webnn_vk as webnn
from webnn_vk import gpu
from webnn_vk.typing import MLConv2dOptions, MLOperandDataType, MLTensorDescriptorDict

context = webnn.ml.create_context(power_preference="low-power").result()
assert_type(context, webnn.MLContext)
builder = webnn.MLGraphBuilder(context)
a = builder.input("a", {"data_type": "float32", "shape": [1, 3, 8, 8]})
w = builder.constant({"data_type": "float16", "shape": (2, 3, 3, 3)}, bytes(108))
h = builder.input("h", webnn.MLOperandDescriptor("float32", (2, 2)))
n = builder.input("n", {"data_type": np.float32, "shape": [2]})
options: MLConv2dOptions = {"padding": [1, 1, 1, 1], "input_layout": "nchw", "label": "stem"}
y = builder.conv2d(a, builder.cast(w, "float32"), **options)
s = builder.constant("float32", 0.2)
c = builder.constant(np.ones(3, np.float32))
kind: MLOperandDataType = a.data_type
parts = builder.split(a, 3, axis=1)
assert_type(parts, list[webnn.MLOperand])
graph = builder.build({"y": builder.mul(y, s)}).result()
assert_type(graph, webnn.MLGraph)
described: MLTensorDescriptorDict = {"data_type": "float32", "shape": [2], "readable": True}
tensor = context.create_tensor(described).result()
assert_type(tensor, webnn.MLTensor)
constant = context.create_constant_tensor({"data_type": "int8", "shape": []}, b"1").result()
readable = webnn.MLTensorDescriptor(**graph.outputs["y"], readable=True)
assert_type(context.create_tensor(readable).result(), webnn.MLTensor)
again = builder.input("again", graph.inputs["a"])
context.dispatch(graph, {"a": tensor}, {"y": tensor})
result = context.compute(graph, {"a": np.ones((1, 3, 8, 8), np.float32)})["y"]
print(result.mean(), graph.inputs["a"].shape, graph.report().steps)


def timed(encoder: gpu.GPUCommandEncoder, queries: gpu.GPUQuerySet, out: gpu.GPUBuffer) -> None:
    with encoder.begin_compute_pass(
        timestamp_writes={"query_set": queries, "end_of_pass_write_index": 0}
    ) as compute:
        compute.dispatch_workgroups(1)
    encoder.resolve_query_set(queries, 0, 1, out, 0)


async def main() -> None:
    other = await webnn.ml.create_context(accelerated=False)
    assert_type(other, webnn.MLContext)
    made = await other.create_tensor(webnn.MLTensorDescriptor("float32", (2,), readable=True))
    assert_type(made, webnn.MLTensor)
    lost = await other.lost
    print(lost.message)
