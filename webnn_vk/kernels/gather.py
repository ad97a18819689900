"""gather, gather_elements and gather_nd: reading elements at positions from an index tensor.

Slices below the indexed dimensions move as elements of up to 16 bytes. Indices are resolved from
their 32-bit words, so 64-bit ones need no 64-bit arithmetic. Tensors over the binding limit are
covered range by range: each dispatch writes what lies in its ranges of output, indices and input.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

from webnn_vk.codegen.spec import Buffer, KernelSpec, Param

from ..data_types import MAX_RANK
from ..device_profile import DeviceProfile
from ..graph import Node
from ..ops.gather import INDEX_TYPES
from . import elements
from .dispatch import Dispatch, grid, strides
from .expression import reciprocal

_FORMS = {"gather": "axis", "gather_elements": "elements", "gather_nd": "nd"}

#: Parameters by which a form finds its places; the same for scatter.
_ALONG_AXIS = (Param("rows"), Param("size"))
_COORDINATES = (
    Param("coordinates"), Param("sizes", count=MAX_RANK), Param("strides", count=MAX_RANK),
)


def place_params(form: str) -> tuple[Param, ...]:
    """Parameters that say what an index means."""
    return _COORDINATES if form == "nd" else _ALONG_AXIS


def place_numbers(node: Node, form: str, width: int) -> dict[str, int | tuple[int, ...]]:
    """Values of `place_params` and of ``run``, the elements of ``width`` bytes below an index."""
    source, indices = node.operands["input"], node.operands["indices"]
    shape, scale = source.shape, width // elements.item_size(source)
    if form == "nd":
        count = indices.shape[-1]
        # Coordinates count slices: the kernel multiplies by the run where it needs elements.
        own = strides(shape[:count])
        return {
            "coordinates": count,
            "sizes": shape[:count] + (1,) * (MAX_RANK - count),
            "strides": own + (0,) * (MAX_RANK - count),
            "run": math.prod(shape[count:]) // scale,
        }
    axis = node.arguments["axis"]
    return {
        "rows": indices.shape[axis] if form == "elements" else indices.descriptor.size,
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
            elements.buffer("src", width),
            Buffer("indices", "uint32"),
            elements.buffer("dst", width, "w"),
        ),
        (
            *map(Param, ("first", "count", "run", "index_first", "index_count")),
            *map(Param, ("src_first", "src_count", "run_reciprocal", "rows_reciprocal")),
            *place_params(form),
        ),
        options=(("form", form), ("index_type", index_type)),
        features=elements.storage_features(width, features),
    )


def catalogue(features: frozenset[str]) -> Iterator[KernelSpec]:
    """Every kernel of this family."""
    for width in elements.WIDTHS:
        for form in _FORMS.values():
            for index_type in INDEX_TYPES:
                if width < 16 or form != "elements":
                    yield gather_spec(width, form, index_type, features)


def plan(node: Node, profile: DeviceProfile) -> list[Dispatch]:
    """One dispatch, or one per combination of ranges above the binding limit."""
    form = _FORMS[node.operator.name]
    source, indices, target = node.operands["input"], node.operands["indices"], node.output
    width = elements.item_size(target)
    if form != "elements":
        width = elements.widest(width, (place_numbers(node, form, width)["run"],))
    numbers = place_numbers(node, form, width)
    per_row = numbers.get("coordinates", 1)
    index_size = elements.item_size(indices)
    spec = gather_spec(width, form, indices.data_type, profile.features)
    invocations = elements.workgroup(profile)
    scale = width // elements.item_size(target)
    dispatches = []
    for out in elements.ranges(target.descriptor.size // scale, width, profile):
        for read in elements.ranges(indices.descriptor.size, index_size, profile, per_row):
            for part in elements.ranges(source.descriptor.size // scale, width, profile):
                bindings = tuple(
                    elements.bind_range(value, span, size)
                    for value, span, size in (
                        (source, part, width), (indices, read, index_size), (target, out, width)
                    )
                )
                params = numbers | {
                    "first": out.start, "count": len(out),
                    "index_first": read.start, "index_count": len(read),
                    "src_first": part.start, "src_count": len(part),
                    "run_reciprocal": reciprocal(numbers["run"]),
                    "rows_reciprocal": reciprocal(numbers.get("rows", 1)),
                }
                dispatches.append(Dispatch(
                    spec,
                    bindings,
                    grid(-(-len(out) // invocations), profile),
                    params,
                    {"LX": invocations},
                    kernel="gather",
                    variant=f"{form} {indices.data_type} {8 * width} bit",
                    bytes=2 * width * len(out) + index_size * len(read),
                ))
    return dispatches
