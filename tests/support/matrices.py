"""Profiles of the test device that list cooperative matrices without the feature: kernels that use
them are planned, and run in their emulation. A device that has some uses these."""

from __future__ import annotations

import pytest

from tests.support.running import device_profile
from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.kernels import block_product, coopmat, lower_graph
from webnn_vk.compiler.kernels.expression import HALF_CONVERSIONS
from webnn_vk.compiler.passes import Compilation
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.driver.device_profile import CooperativeMatrix, DeviceProfile

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


def with_denormals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products with weights in blocks have cooperative matrices on newer versions of lavapipe too:
    these keep denormals of float16, but don't say so."""
    profile = device_profile()
    if profile.is_software and "cooperative_matrix" in profile.features:
        features = HALF_CONVERSIONS & profile.features
        monkeypatch.setattr(block_product, "HALF_CONVERSIONS", features)


def fused_products(profile: DeviceProfile, kernel: str) -> list[KernelSpec]:
    """Products of halves followed by element-wise operators of several types; the rules choose
    ``kernel`` for all of them on the device."""
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
