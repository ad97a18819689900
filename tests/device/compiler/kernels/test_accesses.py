"""Kernels that read and write through accesses, compared with the reference through the same
accesses."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from tests.support.comparing import WAYS, assert_close, profile_for
from tests.support.drivers import require_vulkan
from tests.support.graphs import graph_of
from tests.support.running import device_profile, plan
from webnn_vk.compiler.ir import Emitter, Value
from webnn_vk.compiler.kernels import KernelNode
from webnn_vk.compiler.kernels.absorb import absorb
from webnn_vk.compiler.kernels.fusion import fuse
from webnn_vk.compiler.kernels.lower import kernelize
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.driver.device_profile import DeviceProfile

# Sums of up to 72 products of numbers up to 1, of which float32 keeps 24 bits each.
_ERROR = 2e-5


def in_turn(cases: Iterable[str]) -> pytest.MarkDecorator:
    """Each case on the unchanged device, and in turn by a GPU's kernels, without native types, and
    in small portions: every case in every way would take three times as many modules."""
    ways = ("discrete", "float16"), ("masked", "float16"), ("portions", "float32")
    return pytest.mark.parametrize(("case", "way", "data_type"), [
        (case, *way) for i, case in enumerate(cases)
        for way in (("software", "float32"), ways[i % 3])
    ])


class Making:
    """A graph that becomes one kernel, with the arrays of its inputs."""

    def __init__(self, data_type: str, seed: int = 0) -> None:
        self.data_type = data_type
        self.rng = np.random.default_rng(seed)
        self.emit = Emitter()
        self.arrays: dict[Value, np.ndarray] = {}

    def operand(self, *shape: int) -> Value:
        value = Value(MLOperandDescriptor(self.data_type, shape), name=f"i{len(self.arrays)}")
        self.arrays[value] = self.rng.uniform(-1, 1, shape).astype(self.data_type)
        return value

    def kernel(self, y: Value, profile: DeviceProfile) -> KernelNode:
        """The one kernel that computes y."""
        graph = absorb(fuse(kernelize(graph_of(self.emit, {"y": y}, *self.arrays)), profile))
        graph.verify()
        (node,) = graph.nodes
        assert isinstance(node, KernelNode) and node.output.value is y
        return node

    def product(self, a: Value, b: Value) -> Value:
        return self.emit.matmul(a, b)

    def turned(self, value: Value, *permutation: int) -> Value:
        return self.emit.transpose(value, permutation=permutation)


# -- reading
def _transposed_a(g: Making) -> Value:
    return g.product(g.turned(g.operand(2, 36, 20), 0, 2, 1), g.operand(2, 36, 24))


def _transposed_b(g: Making) -> Value:
    return g.product(g.operand(2, 20, 36), g.turned(g.operand(2, 24, 36), 0, 2, 1))


def _odd_transposed(g: Making) -> Value:
    a, b = g.turned(g.operand(19, 7), 1, 0), g.turned(g.operand(13, 19), 1, 0)
    return g.product(a, b)


def _heads(g: Making) -> Value:
    x, y = g.operand(2, 10, 32), g.operand(2, 12, 32)
    a = g.turned(g.emit.reshape(x, (2, 10, 4, 8)), 0, 2, 1, 3)
    b = g.turned(g.emit.reshape(y, (2, 12, 4, 8)), 0, 2, 3, 1)
    return g.product(a, b)


def _three_batches(g: Making) -> Value:
    a = g.turned(g.operand(3, 2, 9, 4, 8), 1, 3, 0, 2, 4)
    b = g.turned(g.operand(4, 3, 2, 8, 6), 2, 0, 1, 3, 4)
    return g.product(a, b)


def _four_batches(g: Making) -> Value:
    a = g.turned(g.operand(3, 2, 2, 5, 4, 8), 4, 2, 0, 1, 3, 5)
    return g.product(a, g.turned(g.operand(2, 3, 2, 4, 8, 4), 3, 2, 1, 0, 4, 5))


def _sliced(g: Making) -> Value:
    a = g.emit.slice(g.operand(4, 40, 72), [1, 3, 4], [2, 30, 64])
    b = g.emit.slice(g.operand(70, 60), [2, 8], [64, 36])
    return g.product(a, b)


def _sliced_oddly(g: Making) -> Value:
    a = g.emit.slice(g.operand(4, 40, 72), [1, 3, 5], [2, 30, 31], strides=[1, 2, 1])
    b = g.emit.slice(g.operand(70, 59), [3, 7], [31, 37])
    return g.product(a, b)


def _split(g: Making) -> Value:
    queries, keys, _ = g.emit.split(g.operand(12, 96), 3, axis=1)
    return g.product(queries, g.turned(keys, 1, 0))


def _broadcast(g: Making) -> Value:
    a = g.emit.expand(g.operand(1, 12, 20), (5, 12, 20))
    return g.product(a, g.emit.expand(g.operand(5, 1, 20), (5, 20, 20)))


def _one_row_everywhere(g: Making) -> Value:
    a = g.emit.expand(g.operand(1, 20), (12, 20))
    return g.product(a, g.turned(g.emit.expand(g.operand(1, 20), (24, 20)), 1, 0))


def _vector(g: Making) -> Value:
    a = g.turned(g.operand(40, 30), 1, 0)
    return g.product(a, g.emit.slice(g.operand(60, 1), [7, 0], [40, 1]))


def _column_of_a_matrix(g: Making) -> Value:
    return g.product(g.operand(12, 40), g.emit.slice(g.operand(40, 9), [0, 4], [40, 1]))


def _row_vector(g: Making) -> Value:
    a = g.emit.slice(g.operand(9, 40), [4, 0], [1, 40])
    return g.product(a, g.turned(g.operand(28, 40), 1, 0))


def _column_as_a_row(g: Making) -> Value:
    a = g.turned(g.emit.slice(g.operand(40, 9), [0, 4], [40, 1]), 1, 0)
    return g.product(a, g.operand(40, 28))


def _gemm(g: Making) -> Value:
    a = g.emit.slice(g.operand(50, 44), [5, 4], [36, 40])
    b = g.turned(g.emit.slice(g.operand(24, 44), [0, 2], [24, 36]), 1, 0)
    c = g.turned(g.emit.slice(g.operand(30, 50), [2, 6], [24, 40]), 1, 0)
    return g.emit.gemm(a, b, c=c, alpha=0.5, beta=2.0, a_transpose=True)


READING: dict[str, Callable[[Making], Value]] = {
    f.__name__[1:]: f
    for f in (
        _transposed_a, _transposed_b, _odd_transposed, _heads, _three_batches, _four_batches,
        _sliced, _sliced_oddly, _split, _broadcast, _one_row_everywhere, _vector,
        _column_of_a_matrix, _row_vector, _column_as_a_row, _gemm,
    )
}


@pytest.mark.sample(0.5)
@in_turn(READING)
def test_products_read_through_accesses(case: str, data_type: str, way: str) -> None:
    require_vulkan()
    profile = profile_for(way, 2048)
    made = Making(data_type)
    node = made.kernel(READING[case](made), profile)
    assert not all(access.is_dense for access in node.operands.values())
    assert_close(node, made.arrays, profile, _ERROR)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("start", "rows"), [(4, 2), (3, 4), (0, 7)])
def test_few_rows_that_lie_apart(start: int, rows: int, transposed: bool) -> None:
    """On GPUs, where they share what is read of the matrix: batches of them, also at no multiple of
    4 elements, with a fused operator."""
    require_vulkan()
    profile, made = profile_for("discrete"), Making("float16" if start else "float32")
    x = made.emit.slice(made.operand(3, rows + 1, 264), [0, 1, start], [3, rows, 256])
    w = made.operand(3, 20, 256) if transposed else made.operand(3, 256, 20)
    y = made.product(x, made.turned(w, 0, 2, 1) if transposed else w)
    node = made.kernel(made.emit.relu(made.emit.add(y, made.operand(rows, 20))), profile)
    (step,) = plan(node, profile)
    assert step.kernel == "matvec" and step.constants["TR"] == 1 << (rows - 1).bit_length()
    assert f" {'sv'[transposed <= (not start % 4)]}" in step.variant
    assert_close(node, made.arrays, profile, _ERROR)


def test_bindings_of_2_kib_cut_what_is_read() -> None:
    require_vulkan()
    profile = profile_for("portions", 2048)
    made = Making("float32")
    assert len(plan(made.kernel(_sliced(made), profile), profile)) > 4


# -- rows in reverse order
def _rotary(g: Making) -> Value:
    """As queries and keys are rotated: the halves of a head's elements change places."""
    x, shape = g.operand(3, 5, 2, 8), (3, 1, 2, 8)
    turned = g.emit.mul(g.emit.reverse(x, axes=[2]), g.operand(*shape))
    return g.emit.add(g.emit.mul(x, g.operand(*shape)), turned)


def _odd_rows(g: Making) -> Value:
    return g.emit.sub(g.operand(9, 7), g.emit.reverse(g.operand(9, 7), axes=[0]))


def _some_rows(g: Making) -> Value:
    rows = g.emit.slice(g.operand(40, 2, 60), [3, 0, 8], [30, 2, 48])
    return g.emit.mul(g.operand(2, 48), g.emit.reverse(rows, axes=[0, 1]))


UPWARD: dict[str, Callable[[Making], Value]] = {
    f.__name__[1:]: f for f in (_rotary, _odd_rows, _some_rows)
}


@in_turn(UPWARD)
def test_element_wise_kernels_read_rows_in_reverse_order(
    case: str, data_type: str, way: str
) -> None:
    require_vulkan()
    profile = profile_for(way, 2048)
    made = Making(data_type)
    node = made.kernel(UPWARD[case](made), profile)
    read = [*node.operands.values(), *node.side_inputs]
    assert any(min(access.strides) < 0 for access in read)
    assert_close(node, made.arrays, profile, 1e-6)


# -- writing
def _plain(g: Making) -> Value:
    return g.turned(g.product(g.operand(3, 10, 16), g.operand(16, 24)), 1, 0, 2)


def _heads_back(g: Making) -> Value:
    return g.turned(g.product(g.operand(2, 4, 10, 12), g.operand(2, 4, 12, 8)), 0, 2, 1, 3)


def _odd_columns(g: Making) -> Value:
    return g.turned(g.product(g.operand(3, 5, 7), g.operand(3, 7, 9)), 1, 0, 2)


def _column(g: Making) -> Value:
    return g.turned(g.product(g.operand(6, 10, 16), g.operand(16, 1)), 1, 0, 2)


def _columns_of_batches(g: Making) -> Value:
    return g.turned(g.product(g.operand(6, 10, 16), g.operand(6, 16, 1)), 1, 0, 2)


def _row(g: Making) -> Value:
    return g.turned(g.product(g.operand(2, 3, 1, 16), g.operand(16, 20)), 1, 0, 2, 3)


def _rows_of_batches(g: Making) -> Value:
    return g.turned(g.product(g.operand(2, 3, 1, 16), g.operand(2, 3, 16, 20)), 1, 0, 2, 3)


def _read_and_written(g: Making) -> Value:
    x = g.turned(g.emit.reshape(g.operand(2, 10, 32), (2, 10, 4, 8)), 0, 2, 1, 3)
    y = g.turned(g.emit.reshape(g.operand(2, 12, 32), (2, 12, 4, 8)), 0, 2, 3, 1)
    return g.turned(g.product(x, y), 2, 0, 1, 3)


WRITING: dict[str, Callable[[Making], Value]] = {
    f.__name__[1:]: f
    for f in (
        _plain, _heads_back, _odd_columns, _column, _columns_of_batches, _row, _rows_of_batches,
        _read_and_written,
    )
}


@in_turn(WRITING)
def test_products_store_through_accesses(case: str, data_type: str, way: str) -> None:
    require_vulkan()
    profile = profile_for(way, 2048)
    made = Making(data_type)
    node = made.kernel(WRITING[case](made), profile)
    assert not node.output.is_dense
    assert_close(node, made.arrays, profile, _ERROR)


# -- fused steps behind a permuted output
def _bias(g: Making, total: Value) -> Value:
    return g.emit.add(total, g.operand(total.shape[-1]))


def _rows(g: Making, total: Value) -> Value:
    return g.emit.mul(total, g.operand(total.shape[-2], 1))


def _matrix_of_batches(g: Making, total: Value) -> Value:
    shape = [1] * len(total.shape)
    shape[0] = total.shape[0]
    return g.emit.sub(g.operand(*shape), total)


def _everything(g: Making, total: Value) -> Value:
    total = g.emit.relu(g.emit.add(total, g.operand(*total.shape)))
    return _rows(g, _matrix_of_batches(g, _bias(g, total)))


SIDES = {f.__name__[1:]: f for f in (_bias, _rows, _matrix_of_batches, _everything)}
PERMUTED: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    "heads": ((2, 4, 10, 12), (2, 4, 12, 8), (0, 2, 1, 3)),
    "odd": ((3, 5, 7), (3, 7, 9), (1, 0, 2)),
    "column": ((6, 10, 16), (6, 16, 1), (1, 0, 2)),
    "row": ((2, 3, 1, 16), (2, 3, 16, 20), (1, 0, 2, 3)),
    "all": ((2, 3, 6, 8), (2, 3, 8, 4), (2, 1, 0, 3)),
}


# Every chain is a separate module to compile: all sides for one case, one side for all cases.
@pytest.mark.parametrize(("case", "side", "way", "data_type"), [
    *((case, "everything", WAYS[i % 2], "float32") for i, case in enumerate(PERMUTED)),
    *(("heads", side, WAYS[i % 2], "float32") for i, side in enumerate([*SIDES][:-1], 1)),
    ("odd", "everything", "masked", "float16"),
])
def test_fused_steps_find_their_operands(case: str, side: str, data_type: str, way: str) -> None:
    require_vulkan()
    profile = profile_for(way)
    a, b, permutation = PERMUTED[case]
    made = Making(data_type)
    total = SIDES[side](made, made.product(made.operand(*a), made.operand(*b)))
    node = made.kernel(made.turned(total, *permutation), profile)
    assert node.epilogue and not node.output.is_dense
    # A step's operand, up to 1, times a sum.
    assert_close(node, made.arrays, profile, 2 * _ERROR)


# -- the element-wise family
@pytest.mark.parametrize(
    ("masked", "data_type"), [(False, "float32"), (False, "float16"), (True, "float16")]
)
@pytest.mark.parametrize(
    ("own", "target"),
    [
        ((4, 1), (4, 6)), ((1, 8), (5, 8)), ((3, 1, 4), (3, 2, 4)), ((1,), (7,)),
        ((2, 1, 3, 1), (2, 5, 3, 4)),
    ],
    ids=str,
)
def test_element_wise_operators_read_repeated_rows(
    own: tuple[int, ...], target: tuple[int, ...], data_type: str, masked: bool
) -> None:
    require_vulkan()
    for limits in ({}, {"max_storage_buffer_range": 4096}):
        profile = device_profile(masked, **limits)
        made = Making(data_type)
        y = made.emit.max(made.emit.expand(made.operand(*own), target), made.operand(*target))
        node = made.kernel(y, profile)
        assert not node.operands["a"].is_dense
        assert_close(node, made.arrays, profile, 0)


def _halves(g: Making) -> Value:
    left, right = g.emit.split(g.operand(5, 3, 24), 2, axis=2)
    return g.emit.max(g.emit.abs(left), right)


def _odd_parts(g: Making) -> Value:
    a, b, c = g.emit.split(g.operand(3, 7, 9), [2, 2, 3], axis=1)
    return g.emit.max(g.emit.max(a, b), g.emit.slice(c, [0, 1, 0], [3, 2, 9]))


def _turned_and_repeated(g: Making) -> Value:
    return g.emit.max(g.turned(g.operand(3, 2, 8), 1, 0, 2), g.operand(5, 2, 3, 8))


def _turned_twice(g: Making) -> Value:
    x = g.turned(g.operand(6, 5, 4, 3), 3, 1, 0, 2)
    return g.emit.max(x, g.turned(g.operand(4, 6, 5, 3), 3, 2, 1, 0))


def _steps_apart(g: Making) -> Value:
    x = g.emit.slice(g.operand(40, 41), [1, 2], [19, 13], strides=[2, 3])
    return g.emit.max(x, g.operand(5))


def _one_element(g: Making) -> Value:
    return g.emit.max(g.emit.slice(g.operand(9), [5], [1]), g.operand(4, 3))


def _alone(g: Making) -> Value:
    return g.emit.abs(g.turned(g.operand(13, 37), 1, 0))


LYING = {
    f.__name__[1:]: f
    for f in (
        _halves, _odd_parts, _turned_and_repeated, _turned_twice, _steps_apart, _one_element, _alone
    )
}


@pytest.mark.parametrize(
    ("masked", "data_type"), [(False, "float32"), (True, "float16"), (False, "int64")]
)
@pytest.mark.parametrize("case", LYING)
def test_element_wise_operators_read_what_lies_anyhow(
    case: str, data_type: str, masked: bool
) -> None:
    require_vulkan()
    for limits in ({}, {"max_storage_buffer_range": 2048}):
        profile = device_profile(masked, **limits)
        made = Making(data_type)
        if "int" in data_type:
            made.rng = Integers(made.rng)
        node = made.kernel(LYING[case](made), profile)
        assert_close(node, made.arrays, profile, 0)


class Integers:
    """Random integers in place of numbers between -1 and 1."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def uniform(self, low: float, high: float, shape: tuple[int, ...]) -> np.ndarray:
        return self.rng.integers(-99, 99, shape)
