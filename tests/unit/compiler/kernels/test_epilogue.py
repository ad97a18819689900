"""Plans of the epilogue kernels, made for stored profiles: no device."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases.epilogue import Chain
from tests.support.graphs import graph_input, graph_of
from tests.support.profiles import stored_profile
from tests.support.running import plan
from webnn_vk.compiler.ir import Emitter, Graph
from webnn_vk.compiler.kernels import FAMILIES, KernelGraph, KernelNode
from webnn_vk.compiler.kernels.epilogue import Layout
from webnn_vk.compiler.kernels.fusion import fuse
from webnn_vk.compiler.kernels.lower import kernelize
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.ops.lowering import Elementwise, Kernel
from webnn_vk.compiler.types.access import Access
from webnn_vk.compiler.types.data_types import FLOAT_TYPES
from webnn_vk.driver.device_profile import DeviceProfile


def _fused(profile: DeviceProfile, step: str, *shapes: tuple[int, ...]) -> KernelGraph:
    """A product of the first two operands with the fused operator ``step`` on it and the others."""
    emit = Emitter()
    a, b, *sides = (graph_input(f"i{i}", shape) for i, shape in enumerate(shapes))
    product = emit.matmul(a, b)
    y = getattr(emit, step)(product, *sides)
    graph = fuse(kernelize(graph_of(emit, {"y": y}, a, b, *sides)), profile)
    graph.verify()
    return graph


def _titles(*arguments: Any) -> list[str]:
    return [node.title for node in _fused(*arguments).nodes]


def test_what_a_product_takes_in() -> None:
    h200, adreno = stored_profile("nvidia_ampere"), stored_profile("adreno_minimum")
    assert _titles(h200, "add", (8, 4), (4, 6), (6,)) == ["matmul + add"]
    # An operand that would broadcast the result further cannot join.
    assert _titles(h200, "add", (8, 4), (4, 6), (2, 8, 6)) == ["matmul", "add"]
    # Blockwise operators have their own kernel.
    emit = Emitter()
    a, b, scale = (graph_input(n, s) for n, s in dict(a=(8, 4), b=(4, 6), s=(8, 6)).items())
    zero_point = graph_input("z", (8, 6), "int8")
    y = emit.quantize_linear(emit.matmul(a, b), scale, zero_point)
    graph = graph_of(emit, {"y": y}, a, b, scale, zero_point)
    titles = [node.title for node in fuse(kernelize(graph), h200).nodes]
    assert titles == ["matmul", "quantize_linear"]
    # a, b, side, out and the parameters are five buffers.
    few = adreno.replace(max_storage_buffers_per_stage=4)
    assert _titles(few, "add", (8, 4), (4, 6), (6,)) == ["matmul", "add"]
    assert _titles(few, "relu", (8, 4), (4, 6)) == ["matmul + relu"]
    five = adreno.replace(max_storage_buffers_per_stage=5)
    assert _titles(five, "add", (8, 4), (4, 6), (6,)) == ["matmul + add"]


IMAGE, MATRIX, FILTER, CHANNELS = (2, 4, 5, 6), (4, 4), (4, 4, 3, 3), (4,)
# Operands' shapes and arguments of every operator whose kernel takes an epilogue.
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
        name: FAMILIES[o.lowering.family]
        for name, o in OPERATORS.items()
        if isinstance(o.lowering, Kernel) and not isinstance(o.lowering, Elementwise)
    }
    assert {name for name, family in families.items() if family.fuses} == set(FUSING)


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
        done = fuse(kernelize(graph), device)
        for node in done.nodes:
            assert isinstance(node, KernelNode)
            for dispatch in plan(node, device):
                assert dispatch.spec.binding_count <= limit, node.title
    assert len(done.nodes[0].epilogue) > 1


def test_large_tensors_are_not_fused_into_kernels_that_bind_them_whole() -> None:
    small = stored_profile("adreno_minimum").replace(max_storage_buffer_range=2**27)
    shapes = (2**13, 4), (4, 2**13)
    assert _titles(small, "relu", *shapes) == ["matmul", "relu"]
    whole = small.replace(max_storage_buffer_range=2**28)
    assert _titles(whole, "relu", *shapes) == ["matmul + relu"]


@pytest.mark.parametrize(
    ("shape", "side", "way"),
    [
        ((6, 8), (6, 8), "flat"), ((6, 7), (6, 7), "flat"), ((6, 8), (8,), "vector"),
        ((6, 7), (7,), "gather"), ((6, 8), (6, 1), "splat"), ((6, 7), (6, 1), "gather"),
        ((6, 7), (), "splat"), ((2, 3, 8), (2, 1, 8), "vector"), ((2, 3, 2), (2, 1, 1), "gather"),
        ((2, 2, 2), (2, 1, 1), "splat"), ((2, 3, 4), (1, 3, 4), "vector"),
    ],
)
def test_how_4_neighbours_are_loaded(
    shape: tuple[int, ...], side: tuple[int, ...], way: str
) -> None:
    out = Access.dense(graph_input("out", shape))
    beside = Access.dense(graph_input("side", side))
    assert Layout.of(beside, out, shape).way == way
    # In the order of a transposed output's memory.
    axes = tuple(reversed(range(len(shape))))
    turned = beside.broadcast(shape).permuted(axes), out.permuted(axes)
    assert Layout.of(*turned, turned[1].shape).way == way


def test_operands_that_begin_within_a_vector_are_gathered() -> None:
    out = Access.dense(graph_input("out", (4, 8)))
    longer = graph_input("side", (64,))
    ways = [Layout.of(Access(longer, (4, 8), (8, 1), start), out, (4, 8)).way for start in (1, 4)]
    assert ways == ["gather", "vector"]


@pytest.mark.parametrize("data_type", FLOAT_TYPES)
@pytest.mark.parametrize("rows", [512, 128])
def test_an_epilogue_on_an_nvidia_gpu_loads_vectors(rows: int, data_type: str) -> None:
    """Addend and operands, 4 columns at a time: no element of 16 bits by itself."""
    profile = stored_profile("nvidia_ampere")
    emit = Emitter()
    a, b, c, row, same = (
        graph_input(name, shape, data_type) for name, shape in
        dict(a=(rows, 512), b=(512, 768), c=(768,), row=(768,), same=(rows, 768)).items()
    )
    value = emit.relu(emit.add(emit.mul(emit.gemm(a, b, c=c), row), same))
    graph = graph_of(emit, {"y": value}, a, b, c, row, same)
    (node,) = fuse(kernelize(graph), profile).nodes
    *_, last = plan(node, profile)
    widths = {buffer.name: buffer.width for buffer in last.spec.buffers}
    assert {widths[name] for name in ("c", "e0", "e1", "out")} == {4}
    assert last.constants["ADDENDS"] == 0 and "float16" not in last.spec.features
