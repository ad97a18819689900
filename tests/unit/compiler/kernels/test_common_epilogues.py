"""The fused kernels of the shader archive: common models start without a GLSL compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import webnn_vk
from bench.isa.catalogue import catalogue, common
from bench.isa.graphs import described
from bench.models import classic, mobilenet_v2
from tests.support.profiles import stored_profile
from webnn_vk.compiler.program import Target, compile_program

PROFILES = ("llvmpipe", "nvidia_ampere")


def of(describe: classic.Describe) -> Callable[[Any], Any]:
    def build(context: Any) -> Any:
        builder = webnn_vk.MLGraphBuilder(context)
        return builder.build(describe(builder))

    return build


MODELS = {
    "MobileNetV2": mobilenet_v2.build,
    "ResNet-50": of(classic.resnet50),
    "BERT": of(classic.bert(2)),
}


@pytest.mark.parametrize("model", MODELS)
def test_models_run_from_the_pack(model: str) -> None:
    """Every kernel, fused ones too, is in the archive, on software Vulkan and on GPUs."""
    graph = described(MODELS[model])
    for name in PROFILES:
        profile = stored_profile(name)
        program, _ = compile_program(graph, Target(profile))
        packed = {*catalogue(profile.features), *common(profile.features)}
        assert [spec for spec in program.kernels if spec not in packed] == [], name
        # Not for lack of fusion.
        assert any(spec.option("epilogue") for spec in program.kernels)


@pytest.mark.parametrize("swapped", [False, True])
def test_both_orders_of_an_addition_are_one_kernel(swapped: bool) -> None:
    def describe(builder: Any) -> dict[str, Any]:
        x, z = (builder.input(n, {"data_type": "float32", "shape": [64, 64]}) for n in "xz")
        product = builder.matmul(x, x)
        return {"y": builder.add(*((z, product) if swapped else (product, z)))}

    profile = stored_profile("llvmpipe")
    program, _ = compile_program(described(of(describe)), Target(profile))
    (spec,) = program.kernels
    assert spec.option("epilogue") == (("float32", "v"), ("float32", "w_add(t0, v_e0)"))
