"""Kernels on float16 and on float32, compiled for a chip: how many instructions each has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.graphs import graph_input, graph_of
from tests.support.kernels import compile_spec
from tests.support.running import plan
from webnn_vk.codegen.inspect import module_of_spec
from webnn_vk.codegen.isa import chip_profile, compile_for
from webnn_vk.compiler.ir import Emitter, Value
from webnn_vk.compiler.kernels.fusion import fuse
from webnn_vk.compiler.kernels.lower import kernelize
from webnn_vk.driver.device_profile import DeviceProfile

ROWS, IMAGES = (8192, 1024), (8, 64, 56, 56)
#: Those whose arithmetic is shorter in float16, with 16 elements an invocation.
SHORT: dict[str, tuple[tuple[int, ...], Callable[[Emitter, Value], Value]]] = {
    **{
        name: (IMAGES, lambda emit, x, name=name: getattr(emit, name)(x))
        for name in ("gelu", "erf", "tanh", "sigmoid", "exp", "sqrt", "reciprocal")
    },
    "softmax": (ROWS, lambda emit, x: emit.softmax(x, 1)),
}
#: Those that have the same, and a chain, which also rounds between its operators.
OTHERS = {
    "x/exp x + x": (IMAGES, lambda emit, x: emit.add(emit.div(x, emit.exp(x)), x)),
    "relu": (IMAGES, lambda emit, x: emit.relu(x)),
    "layer_normalization": (ROWS, lambda emit, x: emit.layer_normalization(x, axes=[1])),
    "reduce_sum": (ROWS, lambda emit, x: emit.reduce_sum(x, axes=[1])),
    "max_pool2d": (IMAGES, lambda emit, x: emit.max_pool2d(x, window_dimensions=[3, 3])),
    "resample2d": (IMAGES, lambda emit, x: emit.resample2d(x, mode="linear", sizes=[112, 112])),
}


def instructions(chip: str) -> dict[str, dict[str, Any]]:
    """By data type and name."""
    profile = DeviceProfile.from_json(chip_profile(chip))
    cases = [(t, name) for t in ("float16", "float32") for name in (*SHORT, *OTHERS)]
    modules = []
    for data_type, name in cases:
        shape, make = (SHORT | OTHERS)[name]
        emit, x = Emitter(), graph_input("x", shape, data_type)
        graph = graph_of(emit, {"y": make(emit, x)}, x)
        (node,) = fuse(kernelize(graph), profile).nodes
        (step,) = plan(node, profile)
        modules.append(module_of_spec(step.spec, compile_spec(step.spec), step.constants, name))
    counts: dict[str, dict[str, Any]] = {"float16": {}, "float32": {}}
    for (data_type, name), done in zip(
        cases, compile_for(chip, modules, assembly=False), strict=True
    ):
        statistics = {key.lower(): value for key, value in done.statistics.items()}
        counts[data_type][name] = (
            statistics.get("instructions") or statistics["instruction count"]
        )
    return counts


def assert_short_forms(counts: dict[str, dict[str, Any]]) -> None:
    """Beside what relu has, which loads, converts and stores, at most three quarters of float32's
    instructions."""
    half, single = counts["float16"], counts["float32"]
    for name in SHORT:
        assert half[name] - half["relu"] <= 0.75 * (single[name] - single["relu"]), name
