"""Graphs of one operator, for `webnn-vk shader operator`."""

import pytest

from webnn_vk.tools import ToolError
from webnn_vk.tools.kernels import OperatorCall, of_operator


def test_operands_are_inputs_or_constants(cpu_context):
    shapes = {"input": (1, 4, 8, 8), "filter": (6, 4, 3, 3)}
    call = OperatorCall("conv2d", shapes, options={"padding": [1, 1, 1, 1], "strides": [2, 2]})
    graph = of_operator(call)(cpu_context)
    assert {name: d.shape for name, d in graph.inputs.items()} == shapes
    assert graph.outputs["output0"].shape == (1, 6, 4, 4)
    graph = of_operator(OperatorCall("conv2d", shapes, "float16", ("filter",)))(cpu_context)
    assert {name: d.data_type for name, d in graph.inputs.items()} == {"input": "float16"}


def test_several_outputs(cpu_context):
    call = OperatorCall("split", {"input": (6, 2)}, options={"splits": 3})
    graph = of_operator(call)(cpu_context)
    assert {name: d.shape for name, d in graph.outputs.items()} == {
        f"output{n}": (2, 2) for n in range(3)
    }


@pytest.mark.parametrize(("call", "message"), [
    (OperatorCall("conv3d", {}), "did you mean conv2d"),
    (OperatorCall("input", {}), "no operator is called input"),
    (OperatorCall("relu", {"input": (2,)}, constant=("w",)), "--constant w"),
    (OperatorCall("relu", {"x": (2,)}), "it takes input, label"),
    (OperatorCall("relu", {"input": (2,)}, "float12"), "float12"),
    (OperatorCall("matmul", {"a": (2, 3), "b": (2, 3)}), "last dimension"),
])
def test_what_can_t_be(cpu_context, call, message):
    with pytest.raises(ToolError, match=message):
        of_operator(call)(cpu_context)
