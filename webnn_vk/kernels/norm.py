"""Layer and instance normalisation: rows brought to mean 0 and variance 1, in two passes; and by
the root mean square alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param

from ..access import strides
from ..data_types import FLOAT_TYPES
from ..device_profile import DeviceProfile
from . import rows
from .dispatch import Dispatch
from .epilogue import Epilogue, build, nothing
from .expression import used_features
from .family import Family
from .loads import texel_bytes
from .node import KernelNode
from .portions import bound, dispatch, unread
from .rows import Rows, Split, Vectors
from .schedule import Schedule

_NORM = (*rows.PARAMS, Param("rows"), Param("len"), Param("epsilon", "float"))
_NORM_CONSTANTS = (
    *rows.CONSTANTS, Constant("SCALED"), Constant("SHIFTED"), Constant("CENTRED")
)
_AFFINE = ("scale", "bias")
_PLAIN = (Param("affine_step"), Param("channels"))
_PERMUTED = (Param("digits", "uint", 8), Param("affine_stride", "uint", 8))


@dataclass(frozen=True)
class Normalization:
    """Rows to normalise. ``affine`` are the parameters that lead to an element's scale and bias;
    ``permuted``: their dimensions are in another order than the row's; ``texels`` as in
    ``Rows``."""

    split: Split
    texels: bool
    permuted: bool
    affine: tuple[tuple[str, int | tuple[int, ...]], ...]

    @property
    def rows(self) -> Rows:
        # Iterations that an element costs: digits of its position where dimensions are permuted.
        passes = 12 if self.permuted else 3
        return Rows(self.split.rows, self.split.length, self.split.contiguous, passes, self.texels)


class Norm(Family):
    """See the module's docstring."""

    name = "norm"
    fuses = True
    input_loads = 3

    def problem(self, node: KernelNode) -> Normalization:
        shape, lowering = node.operands["input"].shape, node.lowering
        axes = lowering.axes(shape, node.arguments)
        affine: dict[str, int | tuple[int, ...]] = {"affine_step": 1, "channels": 1}
        permuted = False
        if lowering.channel is not None:
            channel = lowering.channel(shape, node.arguments)
            affine = {"affine_step": 0, "channels": shape[channel]}
        elif "scale" in node.operands or "bias" in node.operands:
            permuted = axes != tuple(sorted(axes))
        if permuted:
            affine = _permutation(shape, axes)
        texels = node.operands["input"].data_type == "float32"
        return Normalization(rows.split(shape, axes), texels, permuted, tuple(affine.items()))

    def candidates(self, problem: Normalization, profile: DeviceProfile) -> Sequence[Schedule]:
        return rows.schedules(problem.rows, profile)

    def lower(
        self, node: KernelNode, problem: Normalization, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        x, split = node.operands["input"], problem.split
        texels = texel_bytes(profile, schedule.load)
        epilogue = build(node, texels)
        vectors = Vectors() if problem.permuted else rows.vectors(problem.rows, schedule["lanes"])
        width = vectors.width
        # Channels have one scale and one bias a row.
        by_element = bool(vectors.way and dict(problem.affine)["affine_step"])
        side = 4 if by_element else 1
        affine = [
            bound(name, node.operands[name], profile, width=side, texels=texels)
            if name in node.operands else unread(name, x.data_type, x, side, texels)
            for name in _AFFINE
        ]
        operands = [
            bound("x", x, profile, width=width, texels=texels), *affine,
            bound("out", node.output, profile, "w", width=width),
        ]
        spec = _norm_spec(
            tuple(o.buffer for o in operands), schedule["lanes"] > 1, vectors, by_element,
            problem.permuted, epilogue, profile.features,
        )
        params = split.params | dict(problem.affine) | {
            "rows": split.rows, "len": split.length, "epsilon": node.arguments["epsilon"]
        }
        size, groups = rows.launch(split.rows, schedule["lanes"], profile)
        constants = split.constants | vectors.values | {
            "LX": size,
            "SCALED": int("scale" in node.operands),
            "SHIFTED": int("bias" in node.operands),
            "CENTRED": int(node.lowering.centred),
        }
        return [
            dispatch(
                node, spec, operands, epilogue, groups, params, constants, profile, kernel="norm",
                variant=vectors.named(schedule), flops=8 * x.size,
            )
        ]

    def catalogue(self, features: frozenset[str]) -> Iterator[KernelSpec]:
        for data_type in FLOAT_TYPES:
            for group, ways in rows.WAYS.items():
                for way in ways:
                    for permuted in (False,) if way.way else (False, True):
                        for side in sorted({1, way.width}):
                            out = Buffer("out", data_type, "w", way.width)
                            operands = (
                                rows.inputs("x", data_type, way.width),
                                *(rows.inputs(name, data_type, side) for name in _AFFINE),
                            )
                            for inputs in zip(*operands, strict=True):
                                yield _norm_spec(
                                    (*inputs, out), group, way, side == 4, permuted,
                                    nothing(data_type), features,
                                )


def _permutation(shape: tuple[int, ...], reduced: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """How a position in the row, row-major over the sorted axes, leads to an element of an operand
    whose dimensions are the axes as given."""
    step_of = dict(zip(reduced, strides(tuple(shape[a] for a in reduced)), strict=True))
    order = sorted(reduced)
    fill = 8 - len(order)
    return {
        "digits": (1,) * fill + tuple(shape[a] for a in order),
        "affine_stride": (0,) * fill + tuple(step_of[a] for a in order),
    }


def _norm_spec(
    buffers: tuple[Buffer, ...],
    group: bool,
    vectors: Vectors,
    by_element: bool,
    permuted: bool,
    epilogue: Epilogue,
    features: frozenset[str],
) -> KernelSpec:
    buffers += epilogue.buffers
    return KernelSpec(
        "norm.comp.j2", buffers,
        _NORM + (_PERMUTED if permuted else _PLAIN) + epilogue.params,
        _NORM_CONSTANTS + vectors.constants,
        options=(
            ("group", group), ("vectors", vectors.way), ("by_element", by_element),
            ("permuted", permuted), *epilogue.options,
        ),
        features=used_features(features, buffers, epilogue.int64),
    )
