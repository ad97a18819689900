"""Products of one row that also normalise it or combine the halves of the result: nodes for tests
of plans and kernels."""

from __future__ import annotations

from tests.support.cases.prologue import Made, cases
from webnn_vk.compiler.ir import Graph, Value
from webnn_vk.compiler.kernels import KernelNode
from webnn_vk.compiler.kernels.absorb import absorb, remove_dead
from webnn_vk.compiler.kernels.fusion import fuse
from webnn_vk.compiler.kernels.gated import fuse_gates
from webnn_vk.compiler.kernels.lower import kernelize
from webnn_vk.compiler.kernels.node import KernelGraph
from webnn_vk.driver.device_profile import DeviceProfile


def fused(graph: Graph, profile: DeviceProfile) -> KernelGraph:
    """The kernels of a graph."""
    done = remove_dead(fuse_gates(absorb(fuse(kernelize(graph), profile)), profile))
    done.verify()
    return done


def only_kernel(made: Made, profile: DeviceProfile) -> KernelNode:
    """The one kernel of a case."""
    inputs = {value.name: value for value in made.arrays}
    (node,) = fused(Graph(inputs, {"y": made.output}, tuple(made.emit.nodes)), profile).nodes
    assert isinstance(node, KernelNode)
    return node


def _row(g: Made, width: int, factor: bool = True) -> Value:
    x = g.emit.rms_normalization(g.operand(1, width), axes=[1], epsilon=0.01)
    return g.emit.mul(x, g.operand(width)) if factor else x


def _halves(g: Made, y: Value) -> tuple[Value, Value]:
    left, right = g.emit.split(y, 2, axis=1)
    return left, right


def _row_by_rows(g: Made) -> Value:
    y = g.emit.gemm(_row(g, 256), g.operand(37, 256), c=g.operand(37), b_transpose=True)
    return g.emit.relu(y)


def _row_by_columns(g: Made) -> Value:
    return g.emit.matmul(_row(g, 512), g.operand(512, 36))


def _long_row(g: Made) -> Value:
    return g.emit.gemm(
        _row(g, 2048, factor=False), g.operand(3, 2048), alpha=0.5, b_transpose=True
    )


def _row_of_blocks(g: Made) -> Value:
    x = _row(g, 256)
    words, scale = g.operand(24, 256 // 8, data_type="uint32"), g.operand(24, 8)
    y = g.emit.block_matmul(x, words, scale, bits=4, zero_point=8.0)
    return g.emit.add(y, g.operand(1, 24, data_type="float32"))


def _row_of_bytes(g: Made) -> Value:
    words = g.operand(9, 512 // 4, data_type="uint32")
    scale, offset = (g.operand(9, 16, data_type="float32") for _ in range(2))
    x = _row(g, 512, factor=False)
    return g.emit.block_matmul(x, words, scale, offset=offset, bits=8, zero_point=0.0)


def _row_of_another_type(g: Made) -> Value:
    other = {"float16": "float32", "float32": "float16"}[g.data_type]
    x = g.emit.cast(_row(g, 256), other)
    return g.emit.gemm(x, g.operand(20, 256, data_type=other), b_transpose=True)


def _swish_times(g: Made) -> Value:
    """As decoders have it, with an odd number of columns."""
    y = g.emit.gemm(_row(g, 256), g.operand(2 * 37, 256), b_transpose=True)
    gate, up = _halves(g, y)
    return g.emit.mul(g.emit.swish(gate), up)


def _difference_of_halves(g: Made) -> Value:
    """The second half first, an addend that differs between both, and something else to read."""
    c = g.operand(2 * 64)
    y = g.emit.gemm(g.operand(1, 512), g.operand(2 * 64, 512), c=c, alpha=0.5, b_transpose=True)
    left, right = _halves(g, y)
    return g.emit.mul(g.emit.sub(right, g.emit.tanh(left)), g.operand(1, 64))


def _gates_of_blocks(g: Made) -> Value:
    x = _row(g, 256)
    words, scale = g.operand(2 * 24, 256 // 8, data_type="uint32"), g.operand(2 * 24, 8)
    y = g.emit.block_matmul(x, words, scale, bits=4, zero_point=8.0)
    gate, up = _halves(g, y)
    return g.emit.mul(g.emit.gelu(gate), up)


def _slices_of_bytes(g: Made) -> Value:
    words = g.operand(2 * 9, 512 // 4, data_type="uint32")
    scale, offset = (g.operand(2 * 9, 16, data_type="float32") for _ in range(2))
    y = g.emit.block_matmul(g.operand(1, 512), words, scale, offset=offset, bits=8, zero_point=0.0)
    gate, up = (g.emit.slice(y, [0, start], [1, 9]) for start in (0, 9))
    return g.emit.mul(up, g.emit.sigmoid(gate))


#: Products of a normalised row.
NORMALISED = cases(
    _row_by_rows, _row_by_columns, _long_row, _row_of_blocks, _row_of_bytes, _row_of_another_type
)
#: Products whose halves are combined.
GATED = cases(_swish_times, _difference_of_halves, _gates_of_blocks, _slices_of_bytes)
