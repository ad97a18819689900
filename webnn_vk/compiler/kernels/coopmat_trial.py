"""A small product whose result is known, for kernels by cooperative matrices: a driver that gets
those wrong is found out before a graph relies on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass

from ..ir import Emitter, Value
from ..types.data_types import DATA_TYPES, MLOperandDescriptor
from . import coopmat
from .lowered_graph import DeviceWork, LoweredGraph
from .matmul import MATMUL
from .node import KernelNode
from .schedule import Schedule


@dataclass(frozen=True)
class Tiling:
    """The properties by which the computation of such kernels differs: the constants (sizes), the
    data type of the operands, and which of them are transposed."""

    numbers: tuple[tuple[str, int], ...]
    operand: str
    a_transposed: bool
    b_transposed: bool

    #: The feature of devices that it tries.
    feature: ClassVar[str] = "cooperative_matrix"


def tiling_of(
    kernel: str, spec: KernelSpec, constants: Sequence[tuple[int, bytes]]
) -> Tiling | None:
    """The tiling that shows whether a dispatch step computes rightly; None where it isn't by
    cooperative matrices."""
    if kernel != coopmat.KERNEL:
        return None
    values = {i: int.from_bytes(data, "little") for i, data in constants}
    names = ("LX", *(constant.name for constant in coopmat.CONSTANTS))
    numbers = tuple((name, values[spec.constant_ids[name]]) for name in names)
    transposed = spec.option("a_transposed"), spec.option("b_transposed")
    return Tiling(numbers, spec.option("operand"), *transposed)


def trial(
    tiling: Tiling, profile: DeviceProfile
) -> tuple[LoweredGraph, Mapping[str, np.ndarray], np.ndarray]:
    """A product by this tiling as work for the device, its inputs, and what must come out, exactly.

    All numbers are whole and small enough that float32 holds every sum of products, in any order.
    In the inner dimension's halves they all but cancel: a sum kept in float16 would lose that.
    """
    numbers = dict(tiling.numbers)
    # More than one tile, and no whole number of tiles.
    m, n = (numbers[tile] + numbers[part] for tile, part in (("BM", "FM"), ("BN", "FN")))
    k = 2 * (numbers["BK"] + numbers["FK"])
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
    schedule = Schedule(coopmat.KERNEL, tiling.numbers)
    dispatches = MATMUL.lower(node, MATMUL.problem(node), schedule, profile)
    works = (DeviceWork(("a trial of cooperative matrices",), tuple(dispatches)),)
    return LoweredGraph(values, {"out": out}, works), inputs, (a @ b).astype(dtype)

