"""Layer, instance and batch normalisation.

Layer and instance normalisation are one kernel: rows brought to mean 0 and variance 1, in two
passes.
Batch normalisation knows both beforehand: a factor per channel, computed first and applied next.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param

from ..data_types import FLOAT_TYPES
from ..device_profile import DeviceProfile
from ..graph import Node, Value
from . import axes, positions
from .dispatch import Binding, Dispatch, Scratch, strides
from .epilogue import Epilogue, build, nothing
from .expression import used_features
from .windows import Bound, bound, dispatch

EPILOGUE = True

_NORM = (*axes.PARAMS, Param("rows"), Param("len"), Param("epsilon", "float"))
_NORM_CONSTANTS = (*axes.CONSTANTS, Constant("SCALED"), Constant("SHIFTED"))
_PLAIN = (Param("affine_step"), Param("channels"))
_PERMUTED = (Param("digits", "uint", 8), Param("affine_stride", "uint", 8))
_FACTORS = (Param("channels"), Param("epsilon", "float"), Param("scaled"), Param("shifted"))


def plan(node: Node, profile: DeviceProfile) -> list[Dispatch]:
    if node.operator.name == "batch_normalization":
        return _batch(node, profile)
    x = node.operands["input"]
    if node.operator.name == "instance_normalization":
        nchw = node.arguments["layout"] == "nchw"
        reduced = (2, 3) if nchw else (1, 2)
        affine = {"affine_step": 0, "channels": x.shape[1 if nchw else 3]}
    else:
        reduced = node.arguments["axes"]
        affine = {"affine_step": 1, "channels": 1}
    permuted = reduced != tuple(sorted(reduced)) and (
        "scale" in node.operands or "bias" in node.operands
    )
    if permuted:
        affine = _permutation(x.shape, reduced)
    split = axes.split(x.shape, reduced)
    epilogue = build(node)
    operands = [
        bound("x", x, profile),
        _optional("scale", node, x, profile),
        _optional("bias", node, x, profile),
        bound("out", node.output, profile, "w"),
    ]
    passes = 12 if permuted else 3
    lanes = axes.lanes(split.rows, split.length, split.contiguous, profile, passes)
    spec = _norm_spec(_buffers(operands), lanes > 1, permuted, epilogue, profile.features)
    params = split.params | affine | {
        "rows": split.rows,
        "len": split.length,
        "epsilon": node.arguments["epsilon"],
    }
    size, groups = axes.launch(split.rows, lanes, profile)
    constants = split.constants | {
        "LX": size,
        "SCALED": int("scale" in node.operands),
        "SHIFTED": int("bias" in node.operands),
    }
    return [
        dispatch(
            node, spec, operands, epilogue, groups, params, constants, profile, kernel="norm",
            variant="group" if lanes > 1 else "invocation", flops=8 * x.descriptor.size,
        )
    ]


def _permutation(shape: tuple[int, ...], reduced: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """How a position in the row, row-major over the sorted axes, leads to an element of an operand
    whose dimensions are the axes as given."""
    own = dict(zip(reduced, strides(tuple(shape[a] for a in reduced)), strict=True))
    order = sorted(reduced)
    fill = 8 - len(order)
    return {
        "digits": (1,) * fill + tuple(shape[a] for a in order),
        "affine_stride": (0,) * fill + tuple(own[a] for a in order),
    }


def _batch(node: Node, profile: DeviceProfile) -> list[Dispatch]:
    x, axis = node.operands["input"], node.arguments["axis"]
    channels = x.shape[axis]
    factors = Scratch(3 * 4 * channels)
    features = profile.features
    mean = node.operands["mean"]
    operands = [
        bound("mean", mean, profile),
        bound("variance", node.operands["variance"], profile),
        _optional("scale", node, mean, profile),
        _optional("bias", node, mean, profile),
        bound("out", factors, profile, "w", "float32"),
    ]
    size, groups = axes.launch(channels, 1, profile)
    first = dispatch(
        node, _factors_spec(_buffers(operands), features), operands, nothing("float32"), groups,
        {
            "channels": channels,
            "epsilon": node.arguments["epsilon"],
            "scaled": int("scale" in node.operands),
            "shifted": int("bias" in node.operands),
        },
        {"LX": size}, profile, kernel="norm", variant="factors", flops=4 * channels,
    )
    epilogue = build(node)
    operands = [
        bound("x", x, profile),
        bound("factors", factors, profile, data_type="float32"),
        bound("out", node.output, profile, "w"),
    ]
    shared = positions.share(prod(x.shape[:axis]), channels, prod(x.shape[axis + 1 :]), profile)
    size, groups = axes.launch(shared.invocations, 1, profile)
    second = dispatch(
        node, _batch_spec(_buffers(operands), epilogue, features), operands, epilogue, groups,
        shared.params, {"LX": size} | shared.constants, profile, kernel="norm", variant="batch",
        flops=3 * x.descriptor.size,
    )
    return [first, second]


def _optional(name: str, node: Node, other: Value, profile: DeviceProfile) -> Bound:
    """An optional operand; an absent one has something bound that the kernel never reads."""
    if name in node.operands:
        return bound(name, node.operands[name], profile)
    return Bound(Buffer(name, other.data_type), (Binding(other, 0, 16),), {})


def _buffers(operands: list[Bound]) -> tuple[Buffer, ...]:
    return tuple(o.buffer for o in operands)


def _norm_spec(
    buffers: tuple[Buffer, ...],
    group: bool,
    permuted: bool,
    epilogue: Epilogue,
    features: frozenset[str],
) -> KernelSpec:
    buffers += epilogue.buffers
    return KernelSpec(
        "norm.comp.j2", buffers,
        _NORM + (_PERMUTED if permuted else _PLAIN) + epilogue.params, _NORM_CONSTANTS,
        options=(("group", group), ("permuted", permuted), *epilogue.options),
        features=used_features(features, buffers, epilogue.int64),
    )


def _factors_spec(buffers: tuple[Buffer, ...], features: frozenset[str]) -> KernelSpec:
    return KernelSpec(
        "batch_factors.comp.j2", buffers, _FACTORS, features=used_features(features, buffers)
    )


def _batch_spec(
    buffers: tuple[Buffer, ...], epilogue: Epilogue, features: frozenset[str]
) -> KernelSpec:
    buffers += epilogue.buffers
    return KernelSpec(
        "batch_norm.comp.j2", buffers, positions.PARAMS + epilogue.params, positions.CONSTANTS,
        options=epilogue.options, features=used_features(features, buffers, epilogue.int64),
    )


def catalogue(features: frozenset[str]) -> Iterator[KernelSpec]:
    for data_type in FLOAT_TYPES:
        def own(*names: str, data_type: str = data_type) -> tuple[Buffer, ...]:
            return tuple(Buffer(name, data_type) for name in names)

        out = Buffer("out", data_type, "w")
        for group in (False, True):
            for permuted in (False, True):
                buffers = (*own("x", "scale", "bias"), out)
                yield _norm_spec(buffers, group, permuted, nothing(data_type), features)
        factors = Buffer("out", "float32", "w")
        yield _factors_spec((*own("mean", "variance", "scale", "bias"), factors), features)
        buffers = (*own("x"), Buffer("factors", "float32"), out)
        yield _batch_spec(buffers, nothing(data_type), features)
