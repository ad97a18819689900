"""Layer and instance normalisation: rows brought to mean 0 and variance 1, in two passes; and by
the root mean square alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import ceil_divide

from ..types.access import strides
from . import rows
from .dispatch import Dispatch
from .epilogue import build
from .family import Family
from .loads import SHUFFLES, SUBGROUP_SUMS, lanes_of_processor, shuffling, texel_bytes
from .multi_binding import bound, dispatch, unread
from .node import KernelNode
from .rows import Rows, Split, Vectors
from .schedule import Schedule

_FLOATS = {"share": "float", "epsilon": "float"}
_AFFINE = ("scale", "bias")
# Rows that share what a workgroup reads of scale and bias.
_ROWS = (1, 2)


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

    @property
    def by_element(self) -> bool:
        """Whether a row's elements have a scale and a bias each, instead of one for all."""
        return bool(dict(self.affine)["affine_step"])

    def vectors(self, lanes: int, subgroups: bool) -> Vectors:
        """How ``lanes`` invocations load a row."""
        return Vectors() if self.permuted else rows.vectors(self.rows, lanes, subgroups)


class Norm(Family):
    """See the module's docstring."""

    name = "norm"
    templates = ("norm", "norm_kept")
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
        candidates = rows.schedules(problem.rows, profile)
        if not problem.permuted:
            together = _ROWS if problem.by_element else _ROWS[:1]
            candidates += rows.by_subgroups(problem.rows, candidates, profile, together)
        return candidates

    def lower(
        self, node: KernelNode, problem: Normalization, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        x, split, lanes = node.operands["input"], problem.split, schedule["lanes"]
        texels = texel_bytes(profile, schedule.load)
        subgroups = schedule.kernel == "subgroups"
        vectors = problem.vectors(lanes, subgroups)
        width = vectors.width
        by_element = bool(vectors.way and problem.by_element)
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
        params: dict[str, Any] = {
            "rows": split.rows, "len": split.length, "share": 1 / split.length,
            "epsilon": node.arguments["epsilon"],
        }
        constants = vectors.constants | {
            "SCALED": int("scale" in node.operands),
            "SHIFTED": int("bias" in node.operands),
            "CENTRED": int(node.lowering.centred),
        }
        template, together = "norm", 1
        if vectors.kept:  # the elements of a row lie side by side
            template, together = "norm_kept", schedule["rows"] if subgroups else 1
            options: dict[str, Any] = {"by_element": by_element, "subgroups": subgroups}
            params["channels"] = dict(problem.affine)["channels"]
            constants |= {"ROWS": together} | rows.kept_constants(
                problem.rows, lanes, vectors.kept, subgroups, profile
            )
        else:
            options = {
                "group": lanes > 1, "vectors": vectors.way, "by_element": by_element,
                "permuted": problem.permuted,
            }
            params |= split.params | dict(problem.affine)
            constants |= split.constants
        size, groups = rows.launch(ceil_divide(split.rows, together), lanes, profile)
        step = dispatch(
            node, template, operands, build(node, texels), groups, params,
            constants | {"LX": size}, profile, options.items(), kernel="norm",
            variant=vectors.named(schedule), flops=8 * x.size, types=_FLOATS,
        )
        if template == "norm":
            exchange = by_element and lanes == 1 and all(
                step.spec.buffers[i].load == "texel" for i in (1, 2)
            )
            return [shuffling(step, lanes_of_processor(profile, SHUFFLES) if exchange else 0)]
        used = step.spec.features | (SUBGROUP_SUMS if subgroups else frozenset())
        return [replace(step, spec=replace(step.spec, features=used))]


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
