"""Rarer events of the stress test: kinds that have their own files.

A file has a tuple ``KINDS`` and one line in ``all_kinds``. Each kind happens at least once in each
thread, and then by its share. A kind that never happened fails the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Kind:
    """``run(caller, world)`` makes it happen once and compares values, if any, with the model. It
    returns False when the world has no objects for it (not counted), raises ``Failure`` for wrong
    outcomes, and makes calls that may be refused inside ``world.trying`` or ``world.using``."""

    name: str
    run: Callable[[Any, Any], bool | None]
    #: Frequency among about 130 calls; events are about 50 to 400 times rarer.
    share: int
    #: The worlds that it is for.
    on: Literal["any", "vulkan", "cpu"] = "any"
    #: Costs seconds or a context (a child process, say).
    event: bool = False
    #: Makes no calls on the world, which may end meanwhile.
    apart: bool = False


def all_kinds() -> dict[str, Kind]:
    """Kinds by name. Imported on demand: the kinds use modules that import this one."""
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
