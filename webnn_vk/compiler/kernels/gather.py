"""gather, gather_elements and gather_nd: reading elements at positions from an index tensor.

What lies below the indexed dimensions is contiguous and moves as elements of up to 16 bytes. 64-bit
indices are read as two 32-bit words, so that no 64-bit arithmetic is needed. Tensors over the
binding limit are divided into ranges: there is a dispatch for each combination of ranges of output,
indices and input, which writes the elements whose index and source lie in those.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from webnn_vk.codegen.spec import Buffer
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass

from ..types.access import strides
from ..types.data_types import MAX_RANK
from . import raw_copy
from .dispatch import Dispatch, workgroup
from .expression import reciprocal
from .family import Family
from .node import KernelNode
from .parts import bind_range, ranges
from .schedule import Schedule


def place_numbers(node: KernelNode, form: str, width: int) -> dict[str, int | tuple[int, ...]]:
    """The parameters by which the kernel turns an index into a position, the same for scatter, and
    ``run``, the elements of ``width`` bytes below an index."""
    source, indices = node.operands["input"], node.operands["indices"]
    shape, scale = source.shape, width // raw_copy.item_size(source.value)
    if form == "nd":
        count = indices.shape[-1]
        # Coordinates count slices: the kernel multiplies by the run where it needs elements.
        return {
            "coordinates": count,
            "sizes": shape[:count] + (1,) * (MAX_RANK - count),
            "strides": strides(shape[:count]) + (0,) * (MAX_RANK - count),
            "run": math.prod(shape[count:]) // scale,
        }
    axis = node.arguments["axis"]
    return {
        "rows": indices.shape[axis] if form == "elements" else indices.size,
        "size": shape[axis],
        "run": math.prod(shape[axis + 1 :]) // scale,
    }


@dataclass(frozen=True)
class Gathering:
    """``count`` elements of ``width`` bytes are read at the positions that indices give."""

    form: str
    index_type: str
    width: int
    count: int
    sources: int
    indices: int
    numbers: tuple[tuple[str, int | tuple[int, ...]], ...]


class GatherFamily(Family):
    """See the module's docstring."""

    name = "gather"

    def problem(self, node: KernelNode) -> Gathering:
        form = node.lowering.form
        source, indices, target = node.operands["input"], node.operands["indices"], node.output
        itemsize = width = raw_copy.item_size(target.value)
        if form != "elements":
            width = raw_copy.widest(width, (place_numbers(node, form, width)["run"],))
        scale = width // itemsize
        return Gathering(
            form, indices.data_type, width, target.size // scale, source.size // scale,
            indices.size, tuple(place_numbers(node, form, width).items()),
        )

    def candidates(self, problem: Gathering, profile: DeviceProfile) -> Sequence[Schedule]:
        return [Schedule("gather", (("LX", workgroup(profile)),))]

    def lower(
        self, node: KernelNode, problem: Gathering, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """One dispatch, or one per combination of ranges above the binding limit."""
        p, numbers = problem, dict(problem.numbers)
        source, indices, target = (
            access.value
            for access in (node.operands["input"], node.operands["indices"], node.output)
        )
        per_row = numbers.get("coordinates", 1)
        index_size = raw_copy.item_size(indices)
        numbers |= {
            "run_reciprocal": reciprocal(numbers["run"]),
            "rows_reciprocal": reciprocal(numbers.get("rows", 1)),
        }
        return [
            raw_copy.by_element(
                "gather",
                (
                    (raw_copy.buffer("src", p.width), bind_range(source, profile, part, p.width)),
                    (Buffer("indices", "uint32"), bind_range(indices, profile, read, index_size)),
                    (raw_copy.buffer("dst", p.width, "w"),
                     bind_range(target, profile, out, p.width)),
                ),
                {
                    "first": out.start, "count": out.count,
                    "index_first": read.start, "index_count": read.count,
                    "src_first": part.start, "src_count": part.count, **numbers,
                },
                p.width, profile, (("form", p.form), ("index_type", p.index_type)),
                variant=f"{p.form} {p.index_type} {8 * p.width} bit",
                bytes=2 * p.width * out.count + index_size * read.count,
            )
            for out, read, part in itertools.product(
                ranges(p.count, p.width, profile),
                ranges(p.indices, index_size, profile, per_row),
                ranges(p.sources, p.width, profile),
            )
        ]
