"""scatter_elements and scatter_nd, deterministic: of several updates of one place the last wins.

Into a donated input (``donation``) the updates are written in place, and nothing else: each
invocation first looks whether a later update has the same place.

Otherwise there are three steps: zero one word per place; every update claims its place with an
atomic maximum; every element of the output is then written exactly once, from the update that holds
its place or from the input. So no two invocations ever write one element, and nothing copies the
input first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webnn_vk.codegen.spec import Buffer
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import ceil_divide

from . import raw_copy
from .dispatch import Binding, Dispatch, Scratch
from .family import Family
from .gather import place_numbers
from .node import KernelNode
from .parts import Items, bind_range, ranges
from .schedule import Schedule

#: Updates that are compared with each other when they are written in place.
_MOST_IN_PLACE = 4096


@dataclass(frozen=True)
class Scattering:
    """``count`` elements of ``width`` bytes, of which each place has ``run``."""

    form: str
    index_type: str
    width: int
    count: int
    run: int


class ScatterFamily(Family):
    """See the module's docstring."""

    name = "scatter"
    templates = ("scatter_claim", "scatter_clear", "scatter_select", "scatter_update")

    def problem(self, node: KernelNode) -> Scattering:
        form, target = node.lowering.form, node.output
        itemsize = raw_copy.item_size(target.value)
        # A place is a slice below the coordinates, or a single element.
        run = place_numbers(node, form, itemsize)["run"] if form == "nd" else 1
        width = raw_copy.widest(itemsize, (run,))
        scale = width // itemsize
        return Scattering(
            form, node.operands["indices"].data_type, width, target.size // scale, run // scale
        )

    def candidates(self, problem: Scattering, profile: DeviceProfile) -> Sequence[Schedule]:
        return [Schedule("scatter")]

    def lower(
        self, node: KernelNode, problem: Scattering, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """Clear, claim and select; again for each range of the output above the binding limit."""
        p = problem
        if node.in_place and (update := _update(node, p, profile)) is not None:
            return [update]
        # Ranges are bounded so that the words of their places, cut ones included, fit a binding
        # too.
        per_element = max(p.width, 4 if p.run == 1 else 4 // p.run + 1)
        outs = list(ranges(p.count, per_element, profile))
        places = [Items(out.start // p.run, (out.stop - 1) // p.run + 1) for out in outs]
        slots = Scratch(4 * max(place.count for place in places))
        dispatches = []
        for out, place in zip(outs, places, strict=True):
            dispatches.append(_clear(slots, profile))
            dispatches += _claims(node, p.form, slots, place, profile)
            dispatches += _selects(node, p.width, p.run, slots, out, profile)
        return dispatches


def _update(node: KernelNode, p: Scattering, profile: DeviceProfile) -> Dispatch | None:
    """The updates written in place; None if they are too many to be compared with each other, or
    if a tensor exceeds a binding."""
    indices, updates = (node.operands[name].value for name in ("indices", "updates"))
    numbers = place_numbers(node, p.form, raw_copy.item_size(updates))
    count = updates.descriptor.size * raw_copy.item_size(updates) // p.width
    if count // p.run > _MOST_IN_PLACE:
        return None
    bound = (indices, updates, node.output.value)
    if any(v.descriptor.byte_length > profile.max_storage_buffer_range for v in bound):
        return None
    buffers = (
        Buffer("indices", "uint32"), raw_copy.buffer("updates", p.width),
        raw_copy.buffer("dst", p.width, "w"),
    )
    return raw_copy.by_element(
        "scatter_update", [*zip(buffers, map(Binding, bound), strict=True)],
        {**numbers, "count": count, "extent": p.run, "updates": count // p.run},
        p.width, profile, (("form", p.form), ("index_type", p.index_type)), kernel="scatter",
        variant=f"update {p.form} {p.index_type} {8 * p.width} bit",
        bytes=2 * count * p.width + indices.descriptor.byte_length,
    )


def _clear(slots: Scratch, profile: DeviceProfile) -> Dispatch:
    count = {"count": ceil_divide(slots.size, 16)}
    operands = ((Buffer("slots", "uint32", "w", 4), Binding(slots)),)
    return raw_copy.by_element(
        "scatter_clear", operands, count, 4, profile, kernel="scatter", variant="clear",
        bytes=slots.size,
    )


def _claims(
    node: KernelNode, form: str, slots: Scratch, places: Items, profile: DeviceProfile
) -> Iterator[Dispatch]:
    indices = node.operands["indices"].value
    numbers = place_numbers(node, form, raw_copy.item_size(node.operands["input"].value))
    per_update = numbers.get("coordinates", 1)
    size = raw_copy.item_size(indices) * per_update
    for part in ranges(indices.descriptor.size // per_update, size, profile):
        params = numbers | {
            "first": part.start, "count": part.count,
            "slot_first": places.start, "slot_count": places.count,
        }
        yield raw_copy.by_element(
            "scatter_claim",
            (
                (Buffer("indices", "uint32"), bind_range(indices, profile, part, size)),
                (Buffer("slots", "uint32", "rw"), Binding(slots)),
            ),
            params, 4, profile, (("form", form), ("index_type", indices.data_type)),
            kernel="scatter", variant=f"claim {form} {indices.data_type}",
            bytes=(size + 4) * part.count,
        )


def _selects(
    node: KernelNode, width: int, run: int, slots: Scratch, out: Items, profile: DeviceProfile
) -> Iterator[Dispatch]:
    source, updates, target = (
        access.value for access in (node.operands["input"], node.operands["updates"], node.output)
    )
    scale = width // raw_copy.item_size(target)
    for part in ranges(updates.descriptor.size // scale, width, profile):
        operands = (
            (raw_copy.buffer("src", width), bind_range(source, profile, out, width)),
            (raw_copy.buffer("updates", width), bind_range(updates, profile, part, width)),
            (Buffer("slots", "uint32"), Binding(slots)),
            (raw_copy.buffer("dst", width, "w"), bind_range(target, profile, out, width)),
        )
        params = {
            "first": out.start, "count": out.count, "run": run, "slot_first": out.start // run,
            "update_first": part.start, "update_count": part.count,
        }
        yield raw_copy.by_element(
            "scatter_select", operands, params, width, profile, kernel="scatter",
            variant=f"select {8 * width} bit",
            bytes=2 * width * out.count + 4 * out.count // run,
        )
