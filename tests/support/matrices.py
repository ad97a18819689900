"""Profiles of the test device that list cooperative matrices without the feature: kernels that use
them are planned, and run in their emulation. A device that has some uses these."""

from __future__ import annotations

from typing import Any

from tests.support import newer_mesa
from tests.support.forced import pretended_gpu
from tests.support.running import device_profile
from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.kernels import coopmat, lower_graph
from webnn_vk.compiler.passes import Compilation
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.driver.device_profile import CooperativeMatrix, DeviceProfile, FlexibleMatrix

#: Shapes (m, n, k) of fragments and sizes of subgroups, as on real devices.
SHAPES = {
    "16x16x16, subgroups of 32": ((16, 16, 16), 32),
    "16x8x16, subgroups of 32": ((16, 8, 16), 32),
    "8x8x16, subgroups of 8": ((8, 8, 16), 8),
}


def shape(m: int, n: int, k: int, data_type: str = "float16") -> CooperativeMatrix:
    """The shape of an m x k by k x n product of a data type, summed in float32."""
    return CooperativeMatrix(m, n, k, data_type, data_type, "float32", "float32")


def emulating(name: str = "", data_type: str = "float16") -> DeviceProfile:
    """The test device's profile with one shape of `SHAPES`; by default the device's own shapes, if
    it has any for this type."""
    profile = device_profile()
    if not name and coopmat.shape_for(data_type, profile):
        return profile
    sizes, subgroup = SHAPES[name or "8x8x16, subgroups of 8"]
    return profile.masked(["cooperative_matrix"]).replace(
        cooperative_matrices=(shape(*sizes, data_type),), subgroup_size=subgroup
    )


def flexible(
    m: int, n: int, k: int, invocations: int, results: tuple[str, ...] = ("float32", "float16")
) -> tuple[FlexibleMatrix, ...]:
    """Matrices of halves for workgroups of this many invocations, with these results: rows, columns
    and the inner dimension are multiples of m, n and k."""
    return tuple(
        FlexibleMatrix(m, n, k, "float16", "float16", result, result, invocations)
        for result in results
    )


def emulating_flexible(
    invocations: int = 32, results: tuple[str, ...] = ("float32", "float16"), **changes: Any
) -> DeviceProfile:
    """The test device's profile with workgroup matrices."""
    return device_profile(
        flexible_matrices=flexible(16, 16, 16, invocations, results), max_flexible_dimension=256,
        **changes,
    )


def fused_products(profile: DeviceProfile, kernel: str) -> list[KernelSpec]:
    """Products of halves followed by element-wise operators of several types; the device computes
    all of them by ``kernel``."""
    specs = []
    for finish in (
        lambda b, v, c: b.relu(b.add(v, c)),
        lambda b, v, c: b.cast(b.gelu(v), "uint8"),
        lambda b, v, c: b.cast(v, "int64"),
        lambda b, v, c: b.cast(b.add(v, c), "float32"),
    ):
        emit = Emitter()
        x = Value(MLOperandDescriptor("float16", (2, 128, 256)), name="x")
        product = emit.matmul(x, emit.constant([[0.5] * 384] * 256, "float16"))
        out = finish(emit, product, emit.constant([1.0] * 384, "float16"))
        graph = Graph({"x": x}, {"out": out}, tuple(emit.nodes))
        (work,) = lower_graph(graph, Compilation(profile)).works
        assert [d.kernel for d in work.dispatches] == [kernel]
        specs += [dispatch.spec for dispatch in work.dispatches]
    return specs


def pretended_gpu_with_own() -> dict[str, Any]:
    """As `forced.pretended_gpu`, with the test device's own matrices if it has any."""
    own = device_profile()
    if "cooperative_matrix" not in own.features:
        assert not newer_mesa.runs_this(), f"{own.name} lists no cooperative matrices"
        return pretended_gpu()
    return pretended_gpu() | {
        "cooperative_matrices": own.cooperative_matrices, "subgroup_size": own.subgroup_size,
    }
