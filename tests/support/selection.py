"""Selects which of the collected tests run, in which order, and from which seed they draw.

The fixed suite (`pytest`) is the same on every machine, on every day and in every order: all tests
but those marked `explore`, of `sample(share)` a fixed share of each function's cases. Its first
part, `scripts/test`, leaves out the tests marked `full`. Exploring (`pytest --explore`) runs what
draws: the tests marked `explore`, all cases of sampled ones, and all others that use random
numbers, from another seed and in a random order.

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

#: The environment variable that hands the seed to the processes that a run starts.
SEED = "WEBNN_VK_TEST_SEED"
#: The seed of the fixed suite.
FIXED = "fixed"

#: Paths of the fixed suite's second part, beside the tests that are marked `full` themselves: what
#: needs further packages, judges other drivers, tests the library as a whole in processes of its
#: own, or makes much fail.
FULL = (
    "tests/conformance/differential/test_chains.py",
    "tests/conformance/differential/test_special_values.py",
    "tests/conformance/onnx/test_backend.py",
    "tests/conformance/onnx/test_random_nodes.py",
    "tests/conformance/pack/",
    "tests/conformance/swiftshader/",
    "tests/conformance/wpt/test_engine.py",
    "tests/conformance/wpt_js/",
    "tests/device/api/interop/test_wgpu.py",
    "tests/device/api/test_dynamic_encoder.py",
    "tests/device/bench/",
    "tests/device/compiler/kernels/test_newer_mesa.py",
    "tests/device/compiler/test_matrices_in_models.py",
    "tests/device/distributed/",
    "tests/device/driver/kompute/",
    "tests/device/driver/vulkan/test_failing_calls.py",
    "tests/device/driver/vulkan/test_failing_drivers.py",
    "tests/device/driver/vulkan/test_failing_facets.py",
    "tests/device/examples/",
    "tests/device/generate/test_activations.py",
    "tests/device/generate/test_batches.py",
    "tests/device/generate/test_blocks.py",
    "tests/device/generate/test_docs_decoder.py",
    "tests/device/generate/test_gguf.py",
    "tests/device/generate/test_sampling.py",
    "tests/device/onnx/test_open_dimensions.py",
    "tests/device/tools/test_ends.py",
    "tests/system/",
    "tests/unit/bench/",
    "tests/unit/codegen/test_coopmat.py",
    "tests/unit/codegen/test_describe.py",
    "tests/unit/codegen/test_origins.py",
    "tests/unit/distributed/",
    "tests/unit/docs/test_contributing.py",
    "tests/unit/profiler/pictures/test_browser.py",
    "tests/unit/scripts/",
    "tests/unit/support/test_packages.py",
    "tests/unit/test_completion.py",
    "tests/unit/test_platforms.py",
    "tests/unit/tools/test_batch.py",
    "tests/unit/tools/test_cli.py",
    "tests/unit/typing/",
)
#: Of these paths, what the first part has.
FIRST = ("tests/system/packaging/test_first_steps.py",)

#: What waits for the compilers of chips, which CI installs while the other tests run: comes after
#: these (`scheduling.py`).
LATE = (
    "tests/conformance/swiftshader/",
    "tests/device/compiler/kernels/test_newer_mesa.py",
    "tests/device/compiler/test_matrices_in_models.py",
    "tests/system/isa/",
)
#: Seconds that one of them may wait and run.
PATIENCE = 1800


def seed() -> str:
    """The seed of this run."""
    return os.environ.get(SEED, FIXED)


def configure(config: pytest.Config) -> None:
    """Sets the seed of the run for this process and those that it starts."""
    asked, explore = config.option.seed, config.option.explore
    if asked is not None and not explore:
        raise pytest.UsageError("--seed needs --explore: the fixed suite always draws the same")
    minutes = config.option.minutes
    if minutes is not None and (not explore or minutes <= 0):
        raise pytest.UsageError("--minutes needs --explore, and a number above 0")
    os.environ[SEED] = (asked or str(random.SystemRandom().randrange(10**6))) if explore else FIXED


def chance(*about: object) -> random.Random:
    """Random numbers for a test's own samples, from this run's seed and a name."""
    return random.Random(" ".join(map(str, (seed(), *about))))


def mark_full(items: Iterable[pytest.Item]) -> None:
    """Adds the marker `full` below the paths of FULL, and for Kompute as a parameter."""
    for item in items:
        kompute = any(text.startswith("kompute") for text in _texts(item))
        if kompute or item.nodeid.startswith(FULL) and not item.nodeid.startswith(FIRST):
            item.add_marker("full")


def mark_devices(items: Iterable[pytest.Item]) -> None:
    """Adds the marker `device`."""
    for item in items:
        if needs_device(item):
            item.add_marker("device")


def needs_device(item: pytest.Item) -> bool:
    parameters = _texts(item)
    if item.nodeid.startswith("tests/system/") or "vulkan" in parameters:
        return True
    if "cpu" in parameters:
        return False
    in_folder = item.nodeid.startswith("tests/device/")
    return in_folder or "vulkan" in getattr(item, "fixturenames", ())


def _texts(item: pytest.Item) -> list[str]:
    """A test's parameters that are texts."""
    callspec = getattr(item, "callspec", None)
    return [p for p in callspec.params.values() if isinstance(p, str)] if callspec else []


def left_out(config: pytest.Config, items: list[pytest.Item]) -> set[pytest.Item]:
    """The tests that don't run. In the fixed suite: tests marked `explore`, and of each function
    that is marked `sample(share)` all cases except that share, which its name draws; tests that the
    command line names are not sampled. When exploring: tests that draw nothing."""
    named = bool(config.option.keyword) or any("::" in argument for argument in config.args)
    if config.option.explore:
        return set() if named else {item for item in items if not draws(item)}
    skipped = {item for item in items if item.get_closest_marker("explore")}
    if named:
        return skipped
    groups: dict[tuple[str, float], list[pytest.Item]] = defaultdict(list)
    for item in items:
        marker = item.get_closest_marker("sample")
        if marker is not None:
            groups[item.nodeid.split("[")[0], marker.args[0]].append(item)
    for (function, share), members in groups.items():
        count = max(1, round(share * len(members)))
        kept = set(chance(function, share).sample(range(len(members)), count))
        skipped.update(item for i, item in enumerate(members) if i not in kept)
    return skipped


def draws(item: pytest.Item) -> bool:
    """Whether a test is worth repeating with another seed: it is marked `explore` or `sample`,
    takes the fixture `rng`, or its module uses hypothesis or `chance`."""
    if item.get_closest_marker("explore") or item.get_closest_marker("sample"):
        return True
    if "rng" in getattr(item, "fixturenames", ()):
        return True
    return any(
        getattr(value, "__name__", "") in ("hypothesis", __name__)
        or getattr(value, "__module__", "") in ("hypothesis.core", __name__)
        for value in vars(getattr(item, "module", None) or object).values()
    )


def counted(items: Iterable[pytest.Item], skipped: set[pytest.Item]) -> dict[str, int]:
    """How many tests there are ("collected"), and how many of them don't run, by reason."""
    explore = {item for item in skipped if item.get_closest_marker("explore")}
    return {
        "collected": len(list(items)), "to explore": len(explore),
        "not drawn" if seed() == FIXED else "fixed": len(skipped - explore),
    }


def give_time(items: Iterable[pytest.Item]) -> None:
    """Adds a timeout to the tests of LATE that have none of their own."""
    for item in items:
        if item.nodeid.startswith(LATE):
            item.add_marker(pytest.mark.timeout(PATIENCE))


def shuffle(items: list[pytest.Item]) -> None:
    """Files in an order that the seed draws, for runs that end before all had their turn."""
    files: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.nodeid.split("::")[0]].append(item)
    names = list(files)
    chance("order").shuffle(names)
    items[:] = [item for name in names for item in files[name]]
