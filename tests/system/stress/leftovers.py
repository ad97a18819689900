"""Objects that still hold device memory: printed when a check of memory fails."""

from __future__ import annotations

import gc
import sys
import threading
import types
from typing import Any

from webnn_vk.driver.vulkan.memory import Range, VulkanAllocation
from webnn_vk.runtime.storage import Storage

#: Levels of referrers, and how many referrers of each object.
DEPTH, BREADTH = 7, 4


def describe(driver: Any) -> str:
    """Living allocations of a driver (behind at most one proxy), with their referrers."""
    allocator = getattr(driver, "driver", driver)._memory
    objects = gc.get_objects()
    ranges = [o for o in objects if isinstance(o, Range) and o.allocator is allocator]
    lines = [f"{driver.memory_in_use()}; {len(ranges)} ranges live"]
    storages = [s for s in objects if isinstance(s, Storage) and s.backing is not None]
    del objects
    seen = {id(ranges), id(storages)}
    for held in ranges[:5]:
        lines.append(f"range of {held.size} bytes at {held.offset} of block {held.block.number}")
        _referrers(held, 1, seen, lines)
    lines += [f"thread {t.name}" for t in threading.enumerate()]
    return "\n".join(lines)


def _referrers(thing: Any, depth: int, seen: set[int], lines: list[str]) -> None:
    found = gc.get_referrers(thing)
    seen |= {id(found), id(sys._getframe())}
    shown = 0
    for referrer in found:
        if isinstance(referrer, types.FrameType) and referrer.f_code.co_filename == __file__:
            continue
        if isinstance(referrer, list) and id(referrer) in seen:
            continue  # our own
        if shown == BREADTH:
            lines.append("  " * depth + "…")
            break
        shown += 1
        known = id(referrer) in seen
        lines.append("  " * depth + _text(referrer) + " (see above)" * known)
        if not known:
            seen.add(id(referrer))
            if depth < DEPTH and not isinstance(referrer, types.ModuleType):
                _referrers(referrer, depth + 1, seen, lines)


def _text(thing: Any) -> str:
    if isinstance(thing, types.FrameType):
        return f"frame {thing.f_code.co_qualname} line {thing.f_lineno}"
    if isinstance(thing, types.FunctionType):
        return f"function {thing.__qualname__}"
    if isinstance(thing, (dict, list, tuple, set, types.CellType)):
        return f"{type(thing).__name__} of {sys.getsizeof(thing)} bytes"
    if isinstance(thing, Storage):
        return f"Storage {thing.serial} of {thing.size} bytes, error {thing.error!r}"
    if isinstance(thing, VulkanAllocation):
        return repr(thing)
    return f"{type(thing).__qualname__} {repr(thing)[:120]}"
