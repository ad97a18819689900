"""Plans of the epilogue kernels, made for stored profiles: no device."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from tests.support.cases.epilogue import Chain
from tests.support.profiles import stored_profile
from webnn_vk import kernels
from webnn_vk.data_types import MLOperandDescriptor
from webnn_vk.graph import Emitter, Fused, Graph, Node, Value
from webnn_vk.kernels import epilogue
from webnn_vk.ops import OPERATORS
from webnn_vk.ops.lowering import Kernel
from webnn_vk.passes import fuse_elementwise


def _node(*operands: tuple[int, ...], data_type: str = "float32", **more: Any) -> Node:
    a, b = (Value(MLOperandDescriptor(data_type, s), name="x") for s in operands[:2])
    chain = Emitter()
    chain.matmul(a, b)
    node = chain.nodes[0]
    sides = {
        f"side{i}": Value(MLOperandDescriptor(data_type, s), name="s")
        for i, s in enumerate(operands[2:])
    }
    return Node(node.operator, {**node.operands, **sides}, node.arguments, node.outputs)


def _step(name: str, shape: tuple[int, ...], **operands: str | None) -> Fused:
    return Fused(OPERATORS[name], operands, {}, MLOperandDescriptor("float32", shape))


def test_accepts() -> None:
    h200, adreno = stored_profile("nvidia_h200"), stored_profile("adreno_minimum")
    node = _node((8, 4), (4, 6), (6,))
    add = _step("add", (8, 6), a=None, b="side0")
    assert epilogue.accepts(node, add, h200)
    # What would broadcast the result further cannot join.
    wider = _step("add", (2, 8, 6), a=None, b="side0")
    assert not epilogue.accepts(_node((8, 4), (4, 6), (2, 8, 6)), wider, h200)
    # Blockwise operators keep a kernel of their own.
    quantize = _step("quantize_linear", (8, 6), input=None, scale="side0", zero_point="side0")
    assert not epilogue.accepts(node, quantize, h200)
    # a, b, side, out and the parameters are five buffers.
    few = adreno.replace(max_storage_buffers_per_stage=4)
    assert not epilogue.accepts(node, add, few)
    assert epilogue.accepts(_node((8, 4), (4, 6)), _step("relu", (8, 6), input=None), few)


IMAGE, MATRIX, FILTER, CHANNELS = (2, 4, 5, 6), (4, 4), (4, 4, 3, 3), (4,)
# Operands' shapes and arguments of every operator whose kernel takes a chain in.
FUSING: dict[str, tuple[tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    **{name: ((IMAGE,), {}) for name in OPERATORS if name.startswith("reduce_")},
    **{name: ((IMAGE,), {}) for name in OPERATORS if name.endswith("pool2d")},
    "arg_max": ((IMAGE,), {"axis": 1}),
    "arg_min": ((IMAGE,), {"axis": 1}),
    "softmax": ((IMAGE,), {"axis": 1}),
    "resample2d": ((IMAGE,), {"scales": [2, 2]}),
    "matmul": ((MATRIX, MATRIX), {}),
    "gemm": ((MATRIX, MATRIX), {}),
    "conv2d": ((IMAGE, FILTER), {}),
    "conv_transpose2d": ((IMAGE, FILTER), {}),
    "batch_normalization": ((IMAGE, CHANNELS, CHANNELS), {}),
    "instance_normalization": ((IMAGE,), {}),
    "layer_normalization": ((IMAGE,), {"axes": [3, 1], "scale": (6, 4)}),
}


def test_the_operators_of_fusing_families_are_all_known() -> None:
    families = {
        name: import_module(f"webnn_vk.kernels.{o.lowering.family}")
        for name, o in OPERATORS.items() if isinstance(o.lowering, Kernel)
    }
    assert {n for n, f in families.items() if getattr(f, "EPILOGUE", False)} == set(FUSING)


@pytest.mark.parametrize("name", FUSING)
def test_fused_kernels_keep_to_the_descriptors(name: str) -> None:
    shapes, arguments = FUSING[name]
    for limit in range(6, 11):
        device = stored_profile("adreno_minimum").replace(max_storage_buffers_per_stage=limit)
        chain = Chain(0)
        options = {
            key: chain.operand("float32", value) if key == "scale" else value
            for key, value in arguments.items()
        }
        operands = [chain.operand("float32", shape) for shape in shapes]
        y = getattr(chain.emit, name)(*operands, **options)
        for _ in range(10):
            y = chain.emit.add(y, chain.operand(y.data_type, y.shape))
        graph = Graph({v.name: v for v in chain.arrays}, {"y": y}, tuple(chain.emit.nodes))
        done = fuse_elementwise(
            graph, lambda node, step, to=device: kernels.accepts(node, step, to), lambda _: True
        )
        for node in done.nodes:
            for dispatch in kernels.plan(node, device):
                assert dispatch.spec.binding_count <= limit, node.title
    assert len(done.nodes[0].epilogue) > 1


def test_large_tensors_are_not_fused_into_kernels_that_bind_them_whole() -> None:
    small = stored_profile("adreno_minimum").replace(max_storage_buffer_range=2**27)
    large = _node((2**13, 4), (4, 2**13))
    relu = _step("relu", (2**13, 2**13), input=None)
    assert not epilogue.accepts(large, relu, small)
    assert epilogue.accepts(large, relu, small.replace(max_storage_buffer_range=2**28))
