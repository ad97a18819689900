"""Selects which of the collected tests run: the `device` marker, the long ones, and samples.

A test is marked `device` if it is in tests/system or tests/device, or uses the fixture `vulkan`,
directly or through another one, or has the parameter "vulkan"; a test with the parameter "cpu"
outside tests/system is not. The other tests run without Vulkan, and first: `require_vulkan` fails
in a test without the marker.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterable

import pytest

#: The environment variable that holds the seed of the samples.
SEED = "WEBNN_VK_TEST_SEED"
#: The seed where the environment sets none.
FIXED = "fixed"


def seed() -> str:
    """The seed of this run: the same on every day and for every commit, unless the environment
    sets another one. It is stored in the environment for the worker processes."""
    return os.environ.setdefault(SEED, FIXED)


def chance(*about: object) -> random.Random:
    """Random numbers for a test's own samples, from this run's seed and a name."""
    return random.Random(" ".join(map(str, (seed(), *about))))


def mark_devices(items: Iterable[pytest.Item]) -> None:
    """Adds the marker `device`."""
    for item in items:
        if needs_device(item):
            item.add_marker("device")


def needs_device(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    parameters = [p for p in callspec.params.values() if isinstance(p, str)] if callspec else []
    if item.nodeid.startswith("tests/system/") or "vulkan" in parameters:
        return True
    if "cpu" in parameters:
        return False
    in_folder = item.nodeid.startswith("tests/device/")
    return in_folder or "vulkan" in getattr(item, "fixturenames", ())


def left_out(config: pytest.Config, items: list[pytest.Item]) -> set[pytest.Item]:
    """The tests that don't run: tests marked `long`, and tests marked `sample(share)` except that
    share of each function's cases; a function with one case runs with that share of the seeds.
    Empty with --long, and for tests that the command line names."""
    if config.option.explore:
        return set()
    skipped = {item for item in items if item.get_closest_marker("explore")}
    if config.option.keyword or any("::" in argument for argument in config.args):
        return skipped
    groups: dict[tuple[str, float], list[pytest.Item]] = defaultdict(list)
    for item in items:
        marker = item.get_closest_marker("sample")
        if marker is not None:
            function = item.nodeid.split("[")[0]
            groups[function, marker.args[0]].append(item)
    for (function, share), members in groups.items():
        draw = chance(function, share)
        count = max(1, round(share * len(members)))
        if len(members) == 1:
            count = int(draw.random() < share)
        kept = draw.sample(range(len(members)), count)
        skipped.update(item for i, item in enumerate(members) if i not in set(kept))
    return skipped


def counted(items: Iterable[pytest.Item], skipped: set[pytest.Item]) -> dict[str, int]:
    """How many tests there are ("collected"), and how many of them don't run, by reason."""
    listed = list(items)
    long = {item for item in skipped if item.get_closest_marker("explore")}
    return {
        "collected": len(listed), "explore": len(long), "not drawn": len(skipped - long),
    }


def sampled(items: Iterable[pytest.Item], skipped: set[pytest.Item]) -> tuple[int, int]:
    """How many of the sampled tests run, and how many there are."""
    members = [item for item in items if item.get_closest_marker("sample")]
    return sum(item not in skipped for item in members), len(members)


def seed_hypothesis(config: pytest.Config) -> None:
    """Random examples use the run's seed, unless the command line gives one."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(chance("hypothesis").getrandbits(64))
