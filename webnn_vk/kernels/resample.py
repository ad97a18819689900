"""Resampling along two dimensions: an invocation computes outputs at one place."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from webnn_vk.codegen.spec import Buffer, KernelSpec, Param

from ..device_profile import DeviceProfile
from ..graph import Node
from ..ops.resample import resample2d
from . import axes, positions
from .dispatch import Dispatch
from .epilogue import Epilogue, build, nothing
from .expression import used_features
from .windows import bound, dispatch

EPILOGUE = True

_MODES = {"nearest-neighbor": "nearest", "linear": "linear"}
_PARAMS = (
    *positions.PARAMS, Param("between"),
    Param("size", "uint", 2), Param("new_size", "uint", 2),
)


def plan(node: Node, profile: DeviceProfile) -> list[Dispatch]:
    x = node.operands["input"]
    mode = _MODES[node.arguments["mode"]]
    # Which of the two axes comes first does not matter to the result.
    first, second = sorted(node.arguments["axes"])
    new_shape = node.results[0].shape
    operands = bound("x", x, profile), bound("out", node.output, profile, "w")
    epilogue = build(node)
    spec = _spec(mode, tuple(o.buffer for o in operands), epilogue, profile.features)
    between = prod(x.shape[first + 1 : second])
    new_size = new_shape[first], new_shape[second]
    shared = positions.share(
        prod(x.shape[:first]), prod(new_size) * between, prod(x.shape[second + 1 :]), profile
    )
    size, groups = axes.launch(shared.invocations, 1, profile)
    params = {
        "between": between,
        "size": (x.shape[first], x.shape[second]),
        "new_size": new_size,
    }
    return [
        dispatch(
            node, spec, operands, epilogue, groups, shared.params | params,
            {"LX": size} | shared.constants, profile, kernel="resample", variant=mode,
            flops=(8 if mode == "linear" else 0) * node.results[0].size,
        )
    ]


def _spec(
    mode: str, buffers: tuple[Buffer, ...], epilogue: Epilogue, features: frozenset[str]
) -> KernelSpec:
    buffers += epilogue.buffers
    return KernelSpec(
        "resample.comp.j2", buffers, _PARAMS + epilogue.params, positions.CONSTANTS,
        options=(("mode", mode), *epilogue.options),
        features=used_features(features, buffers, epilogue.int64),
    )


def catalogue(features: frozenset[str]) -> Iterator[KernelSpec]:
    for mode in _MODES.values():
        for data_type in resample2d.limit("input").types:
            buffers = Buffer("x", data_type), Buffer("out", data_type, "w")
            yield _spec(mode, buffers, nothing(data_type), features)
