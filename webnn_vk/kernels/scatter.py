"""scatter_elements and scatter_nd, deterministic: of several updates of one place the last wins.

Three steps: zero one word per place; every update claims its place with an atomic maximum; every
element of the output is then written exactly once, from the update that holds its place or from
the input. So no two invocations ever write one element, and nothing copies the input first.
"""

from __future__ import annotations

from collections.abc import Iterator

from webnn_vk.codegen.spec import Buffer, KernelSpec, Param

from ..device_profile import DeviceProfile
from ..graph import Node
from ..ops.gather import INDEX_TYPES
from . import elements
from .dispatch import Binding, Dispatch, Scratch, grid
from .gather import place_numbers, place_params

_FORMS = {"scatter_elements": "elements", "scatter_nd": "nd"}


def clear_spec() -> KernelSpec:
    """Zeroes the words of the places."""
    return KernelSpec(
        "scatter_clear.comp.j2", (Buffer("slots", "uint32", "w", 4),), (Param("count"),)
    )


def claim_spec(form: str, index_type: str) -> KernelSpec:
    """Marks each place with its last update."""
    return KernelSpec(
        "scatter_claim.comp.j2",
        (Buffer("indices", "uint32"), Buffer("slots", "uint32", "rw")),
        (
            *map(Param, ("first", "count", "run", "slot_first", "slot_count")),
            *place_params(form),
        ),
        options=(("form", form), ("index_type", index_type)),
    )


def select_spec(width: int, features: frozenset[str]) -> KernelSpec:
    """Writes the output, elements ``width`` bytes wide."""
    return KernelSpec(
        "scatter_select.comp.j2",
        (
            elements.buffer("src", width),
            elements.buffer("updates", width),
            Buffer("slots", "uint32"),
            elements.buffer("dst", width, "w"),
        ),
        tuple(map(Param, (
            "first", "count", "run", "slot_first", "update_first", "update_count",
        ))),
        features=elements.storage_features(width, features),
    )


def catalogue(features: frozenset[str]) -> Iterator[KernelSpec]:
    """Every kernel of this family."""
    yield clear_spec()
    for form in _FORMS.values():
        for index_type in INDEX_TYPES:
            yield claim_spec(form, index_type)
    for width in elements.WIDTHS:
        yield select_spec(width, features)


def plan(node: Node, profile: DeviceProfile) -> list[Dispatch]:
    """Clear, claim and select; again for each range of the output above the binding limit."""
    form = _FORMS[node.operator.name]
    target = node.output
    width = elements.item_size(target)
    # A place is a slice below the coordinates, or a single element.
    run = place_numbers(node, form, width)["run"] if form == "nd" else 1
    width = elements.widest(width, (run,))
    scale = width // elements.item_size(target)
    run //= scale
    # Ranges are bounded so that the words of their places, cut ones included, fit a binding too.
    per_element = max(width, 4 if run == 1 else 4 // run + 1)
    outs = list(elements.ranges(target.descriptor.size // scale, per_element, profile))
    places = [range(out.start // run, (out.stop - 1) // run + 1) for out in outs]
    slots = Scratch(4 * max(map(len, places)))
    dispatches = []
    for out, place in zip(outs, places, strict=True):
        dispatches.append(_clear(slots, profile))
        dispatches += _claims(node, form, slots, place, profile)
        dispatches += _selects(node, width, run, slots, out, profile)
    return dispatches


def _clear(slots: Scratch, profile: DeviceProfile) -> Dispatch:
    vectors = -(-slots.size // 16)
    invocations = elements.workgroup(profile)
    return Dispatch(
        clear_spec(), (Binding(slots),), grid(-(-vectors // invocations), profile),
        {"count": vectors}, {"LX": invocations},
        kernel="scatter", variant="clear", bytes=slots.size,
    )


def _claims(
    node: Node, form: str, slots: Scratch, places: range, profile: DeviceProfile
) -> Iterator[Dispatch]:
    indices = node.operands["indices"]
    numbers = place_numbers(node, form, elements.item_size(node.operands["input"]))
    per_update = numbers.get("coordinates", 1)
    size = elements.item_size(indices) * per_update
    invocations = elements.workgroup(profile)
    for part in elements.ranges(indices.descriptor.size // per_update, size, profile):
        yield Dispatch(
            claim_spec(form, indices.data_type),
            (elements.bind_range(indices, part, size), Binding(slots)),
            grid(-(-len(part) // invocations), profile),
            numbers | {
                "first": part.start, "count": len(part),
                "slot_first": places.start, "slot_count": len(places),
            },
            {"LX": invocations},
            kernel="scatter",
            variant=f"claim {form} {indices.data_type}",
            bytes=(size + 4) * len(part),
        )


def _selects(
    node: Node, width: int, run: int, slots: Scratch, out: range, profile: DeviceProfile
) -> Iterator[Dispatch]:
    source, updates, target = node.operands["input"], node.operands["updates"], node.output
    scale = width // elements.item_size(target)
    invocations = elements.workgroup(profile)
    for part in elements.ranges(updates.descriptor.size // scale, width, profile):
        yield Dispatch(
            select_spec(width, profile.features),
            (
                elements.bind_range(source, out, width),
                elements.bind_range(updates, part, width),
                Binding(slots),
                elements.bind_range(target, out, width),
            ),
            grid(-(-len(out) // invocations), profile),
            {
                "first": out.start, "count": len(out), "run": run,
                "slot_first": out.start // run,
                "update_first": part.start, "update_count": len(part),
            },
            {"LX": invocations},
            kernel="scatter",
            variant=f"select {8 * width} bit",
            bytes=2 * width * len(out) + 4 * len(out) // run,
        )
