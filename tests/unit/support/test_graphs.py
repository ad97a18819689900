"""Elements and graphs that tests describe in words."""

import numpy as np

from tests.support.graphs import (
    evaluate,
    random_elements,
    read,
    with_constant_tensors,
    with_origins,
)
from webnn_vk.compiler.types.data_types import MLOperandDescriptor

EXPECTED_FLOATS = [
    [-0.9658203125, 0.6982421875, -0.8740234375],
    [-0.76171875, -0.71875, 0.193359375],
]
EXPECTED_INTEGERS = [3, 3, 1, 6, 3, 1]


def test_random_elements_are_the_same_everywhere():
    descriptor = MLOperandDescriptor("float16", (2, 3))
    # Fixed here because texts of tests rely on it.
    assert random_elements(descriptor, "7").tolist() == EXPECTED_FLOATS
    assert random_elements(MLOperandDescriptor("int8", (6,)), "7").tolist() == EXPECTED_INTEGERS
    large = random_elements(MLOperandDescriptor("float32", (10000,)), "x")
    assert -1 <= large.min() < -0.99 and 0.99 < large.max() < 1
    assert len(np.unique(large)) > 1900


def test_a_text_without_its_frame():
    graph = read(
        'inputs { x: f32[2]; t: f32[2]; } consts { one: f32[2]; w: f32[2] @weights("7"); }',
        "a = add(x, one); b = mul(a, w); y = add(b, t);", weights={"one": [1, 2]},
    )
    w = random_elements(MLOperandDescriptor("float32", (2,)), "7")
    zeros = np.zeros(2, np.float32)
    assert evaluate(graph, x=zeros, t=zeros)["y"].tolist() == [w[0], 2 * w[1]]
    graph = with_constant_tensors(with_origins(graph, "sum", "rest"), "t")
    graph.verify()
    assert list(graph.inputs) == ["x"] and graph.nodes[2].operands["b"].is_constant
    assert str(graph).endswith('add(a=%1, b=%c2) from "sum", "rest"\noutput y = %2')
