"""What happens under stress beyond the calls of every day: kinds that have files of their own.

A file has a tuple ``KINDS`` and one line in ``all_kinds``. Each kind happens at least once in each
of the threads, and then by its share; a kind that never happened fails the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Kind:
    """``run(caller, world)`` makes it happen once, with values compared with the model where it
    makes any. It returns False when the world has nothing to do it with (not counted), raises
    ``Failure`` for what must not be, and goes around calls that may be refused with
    ``world.trying`` or ``world.using``."""

    name: str
    run: Callable[[Any, Any], bool | None]
    #: How often, among about 130 calls; of an event, among about 50 and 400 times less often.
    share: int
    #: The worlds that it is for.
    on: Literal["any", "vulkan", "cpu"] = "any"
    #: Something that costs seconds or a context (a child process, say).
    event: bool = False


def all_kinds() -> dict[str, Kind]:
    """By name. Imported when asked: what the kinds use imports this module."""
    from tests.system.stress import driver_calls, odd_buffers, processes, shortages

    found = [
        *driver_calls.KINDS,
        *odd_buffers.KINDS,
        *processes.KINDS,
        *shortages.KINDS,
    ]
    by_name = {kind.name: kind for kind in found}
    if len(by_name) < len(found):
        raise ValueError("two kinds of stress have one name")
    return by_name
