"""A small product whose result is known, for kernels by cooperative matrices: a driver that gets
those wrong is found out before a graph relies on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass

from ..ir import Emitter, Value
from ..types.data_types import DATA_TYPES, MLOperandDescriptor
from . import coopmat, coopmat2
from .lowered_graph import DeviceWork, LoweredGraph
from .matmul import MATMUL
from .node import KernelNode
from .schedule import Schedule


@dataclass(frozen=True)
class Tiling:
    """The properties by which the computation of such kernels differs: the name and the constants
    (sizes), data type of the operands, and which of them are transposed. Where the driver itself
    loads and stores tiles (``coopmat2``): whether rows are whole vectors, the result is stored as a
    tensor, and steps of the inner dimension are left over."""

    kernel: str
    numbers: tuple[tuple[str, int], ...]
    operand: str
    a_transposed: bool
    b_transposed: bool
    whole_vectors: bool = False
    out_tensor: bool = False
    left_over: bool = True

    @property
    def feature(self) -> str:
        """The feature of devices that it tries."""
        return _FEATURES[self.kernel]


_FEATURES = {coopmat.KERNEL: "cooperative_matrix", coopmat2.KERNEL: "cooperative_matrix2"}
_CONSTANTS = {coopmat.KERNEL: coopmat.CONSTANTS, coopmat2.KERNEL: coopmat2.CONSTANTS}


def tilings_of(
    kernel: str, spec: KernelSpec, constants: Sequence[tuple[int, bytes]]
) -> tuple[Tiling, ...]:
    """The tilings that show whether a dispatch step computes rightly; none where it isn't by
    cooperative matrices."""
    if kernel not in _CONSTANTS:
        return ()
    values = {i: int.from_bytes(data, "little") for i, data in constants}
    names = ("LX", *(constant.name for constant in _CONSTANTS[kernel]))
    numbers = tuple((name, values[spec.constant_ids[name]]) for name in names)
    transposed = spec.option("a_transposed"), spec.option("b_transposed")
    if kernel == coopmat.KERNEL:
        return (Tiling(kernel, numbers, spec.option("operand"), *transposed),)
    return tuple(
        Tiling(
            kernel, numbers, coopmat2.OPERAND, *transposed, spec.option("whole_vectors"),
            spec.option("out_tensor"), left_over,
        )
        for left_over in (False, True)
    )


def trial(
    tiling: Tiling, profile: DeviceProfile
) -> tuple[LoweredGraph, Mapping[str, np.ndarray], np.ndarray]:
    """A product by this tiling as work for the device, its inputs, and what must come out, exactly.

    All numbers are whole and small enough that float32 holds every sum of products, in any order.
    In the inner dimension's halves they all but cancel: a sum kept in float16 would lose that.
    """
    m, n, k = _sizes(tiling)
    rng = np.random.default_rng(1)
    large, small = rng.integers(-500, 501, (m, k // 2)), rng.integers(-1, 2, (m, k // 2))
    a = np.concatenate([large + small, -large], axis=1)
    b = np.tile(rng.integers(-8, 9, (k // 2, n)), (2, 1))
    dtype = DATA_TYPES[tiling.operand].numpy
    inputs = {
        "a": np.ascontiguousarray(a.T if tiling.a_transposed else a, dtype),
        "b": np.ascontiguousarray(b.T if tiling.b_transposed else b, dtype),
    }
    emit = Emitter()
    values = {
        name: Value(MLOperandDescriptor(tiling.operand, array.shape), name=name)
        for name, array in inputs.items()
    }
    out = emit.gemm(
        values["a"], values["b"], a_transpose=tiling.a_transposed, b_transpose=tiling.b_transposed
    )
    node = KernelNode.of(emit.nodes[-1])
    schedule = Schedule(tiling.kernel, tiling.numbers)
    if tiling.kernel == coopmat2.KERNEL and not tiling.out_tensor:
        # Without matrices of halves for results, these are stored one by one.
        profile = profile.replace(flexible_matrices=tuple(
            shape for shape in profile.flexible_matrices if shape.result != tiling.operand
        ))
    dispatches = MATMUL.lower(node, MATMUL.problem(node), schedule, profile)
    works = (DeviceWork(("a trial of cooperative matrices",), tuple(dispatches)),)
    return LoweredGraph(values, {"out": out}, works), inputs, (a @ b).astype(dtype)


def _sizes(tiling: Tiling) -> tuple[int, int, int]:
    """Rows, columns and steps: of more than one tile, and no whole number of them."""
    numbers = dict(tiling.numbers)
    m, n, k = (numbers[name] for name in ("BM", "BN", "BK"))
    if tiling.kernel == coopmat.KERNEL:
        return m + numbers["FM"], n + numbers["FN"], 2 * (k + numbers["FK"])
    # Tiles inside of both matrices are computed in another way than those at the edge.
    odd = not tiling.whole_vectors
    return m + 16 + 3 * odd, n + 24 + 5 * odd, 2 * k + (8 + 2 * odd) * tiling.left_over
