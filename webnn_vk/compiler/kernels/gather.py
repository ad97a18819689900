"""gather, gather_elements and gather_nd: reading elements at positions from an index tensor.

What lies below the indexed dimensions is contiguous and moves as elements of up to 16 bytes. 64-bit
indices are read as two 32-bit words, so that no 64-bit arithmetic is needed. Tensors over the
binding limit are divided into ranges: there is a dispatch for each combination of ranges of output,
indices and input, which writes the elements whose index and source lie in those.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

from webnn_vk.codegen.spec import Buffer, KernelSpec, Param
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

#: Parameters by which a form finds its places; the same for scatter.
_ALONG_AXIS = (Param("rows"), Param("size"))
_COORDINATES = (
    Param("coordinates"), Param("sizes", count=MAX_RANK), Param("strides", count=MAX_RANK),
)


def place_params(form: str) -> tuple[Param, ...]:
    """The parameters by which the kernel turns an index into a position; scatter has the same."""
    return _COORDINATES if form == "nd" else _ALONG_AXIS


def place_numbers(node: KernelNode, form: str, width: int) -> dict[str, int | tuple[int, ...]]:
    """Values of `place_params` and of ``run``, the elements of ``width`` bytes below an index."""
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


@functools.cache
def gather_spec(
    width: int, form: str, index_type: str, features: frozenset[str]
) -> KernelSpec:
    """The kernel for elements of ``width`` bytes."""
    return KernelSpec(
        "gather.comp.j2",
        (
            raw_copy.buffer("src", width),
            Buffer("indices", "uint32"),
            raw_copy.buffer("dst", width, "w"),
        ),
        (
            *map(Param, ("first", "count", "run", "index_first", "index_count")),
            *map(Param, ("src_first", "src_count", "run_reciprocal", "rows_reciprocal")),
            *place_params(form),
        ),
        options=(("form", form), ("index_type", index_type)),
        features=raw_copy.storage_features(width, features),
    )


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
        spec = gather_spec(p.width, p.form, p.index_type, profile.features)
        numbers |= {
            "run_reciprocal": reciprocal(numbers["run"]),
            "rows_reciprocal": reciprocal(numbers.get("rows", 1)),
        }
        return [
            raw_copy.by_element(
                spec,
                (
                    bind_range(source, profile, part, p.width),
                    bind_range(indices, profile, read, index_size),
                    bind_range(target, profile, out, p.width),
                ),
                numbers | {
                    "first": out.start, "count": out.count,
                    "index_first": read.start, "index_count": read.count,
                    "src_first": part.start, "src_count": part.count,
                },
                schedule["LX"],
                profile,
                kernel="gather",
                variant=f"{p.form} {p.index_type} {8 * p.width} bit",
                bytes=2 * p.width * out.count + index_size * read.count,
            )
            for out, read, part in itertools.product(
                ranges(p.count, p.width, profile),
                ranges(p.indices, index_size, profile, per_row),
                ranges(p.sources, p.width, profile),
            )
        ]
