"""Contexts for tests, validation messages as failures, and the SPIR-V count at the end.

The settings below apply to every process that a test starts, and to xdist's workers. Each can be
overridden in the environment: `WEBNN_VK_VALIDATE=0` runs without the validation layer, for example.
How the tests are organised, and the options: tests/README.md.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support import (
    discrete,
    discriminating,
    drivers,
    judges,
    leftovers,
    random_examples,
    repeats,
    selection,
    spirv_count,
    summary,
    watchdog,
)
from tests.support.contexts import open_context
from tests.support.drivers import NO_DRIVER, require_vulkan
from tests.support.golden import golden  # noqa: F401 - a fixture
from tests.support.numbers import rng  # noqa: F401 - a fixture
from tests.support.paths import ROOT

_LAYER_FILES = (
    Path("/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json"),
    Path("/etc/vulkan/explicit_layer.d/VkLayer_khronos_validation.json"),
)
LAYER_INSTALLED = any(path.is_file() for path in _LAYER_FILES)

# A colon between the two: with a semicolon this layer silently switches both off. Plain
# synchronisation validation doesn't detect hazards between submits.
_SYNCHRONISATION = (
    "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT:"
    "VALIDATION_CHECK_ENABLE_SYNCHRONIZATION_VALIDATION_QUEUE_SUBMIT"
)

#: The environment variable with the folder whose modules a run counts at its end.
_COUNTING = "WEBNN_VK_TESTS_COUNT_SPIRV"
_folder: pytest.StashKey[Path] = pytest.StashKey()
_counts: pytest.StashKey[bool] = pytest.StashKey()
_counted: pytest.StashKey[spirv_count.Count] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("webnn_vk")
    group.addoption("--explore", action="store_true", help="in place of the fixed suite: all that "
                    "draws at random, from another seed, at full length")
    group.addoption("--seed", help="the seed of --explore (default: drawn, and printed)")
    group.addoption("--minutes", type=float,
                    help="minutes after which --explore begins no further test (default: 60)")
    group.addoption("--discrete", action="store_true", help="take the Vulkan device for a discrete "
                    "GPU: its kernels, and memory that the host doesn't see")
    group.addoption("--update-golden", action="store_true",
                    help="write the committed texts instead of comparing with them")


@pytest.hookimpl(tryfirst=True)  # before hypothesis' plugin takes its seed
def pytest_configure(config: pytest.Config) -> None:
    if not _is_worker(config):  # the others have the seed from this process
        selection.configure(config)
    random_examples.configure(config)
    # A background job of a script, or of nohup, starts with SIGINT ignored, as would its children.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    watchdog.configure(config)
    if config.option.discrete:
        discrete.install()
    if _is_worker(config):
        return  # the process that started this one has set the environment
    os.environ.setdefault("WEBNN_VK_VALIDATE", "1" if LAYER_INSTALLED else "0")
    os.environ.setdefault("VK_LAYER_ENABLES", _SYNCHRONISATION)
    # lavapipe compiles the kernels of most tests in less time without LLVM's optimisations.
    if not config.option.explore:
        os.environ.setdefault("GALLIVM_PERF", "nopt")
    # Every graph that a test compiles is verified after every pass.
    os.environ.setdefault("WEBNN_VK_VERIFY_PASSES", "1")
    folder = tempfile.mkdtemp(prefix="webnn_vk-tests-")
    config.stash[_folder] = Path(folder)
    # The CPU device is the reference that others are compared with; tests of its engine ask for the
    # engine.
    os.environ.setdefault("WEBNN_VK_CPU_ENGINE", "numpy")
    # A separate cache: neither a developer's cache nor a stale entry affects a test.
    os.environ.setdefault("WEBNN_VK_CACHE", f"{folder}/cache")
    os.environ.setdefault("WEBNN_VK_DUMP_SPIRV", f"{folder}/spirv")
    Path(os.environ["WEBNN_VK_DUMP_SPIRV"]).mkdir(parents=True, exist_ok=True)
    # A run that a test starts leaves its modules to the count of the run that the test belongs to.
    if os.environ["WEBNN_VK_DUMP_SPIRV"] != os.environ.get(_COUNTING):
        os.environ[_COUNTING] = os.environ["WEBNN_VK_DUMP_SPIRV"]
        config.stash[_counts] = True


def _is_worker(config: pytest.Config) -> bool:
    """Whether this process runs tests for another one that reports them (xdist)."""
    return hasattr(config, "workerinput")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.support.scheduling import AloneLast

    return AloneLast(config, log)


# -- which tests run
#: Folders and files that can't be imported without a Vulkan loader.
_NEED_LOADER = tuple(ROOT / "tests" / place for place in (
    "device/driver", "device/gpu", "system/isa/test_beside.py", "unit/bench/test_isa_workloads.py",
))


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    if collection_path not in _NEED_LOADER or (problem := _loader_problem()) is None:
        return None
    _lines.append(f"NOT COLLECTED: {collection_path.relative_to(ROOT)}: {problem}")
    return True


def _loader_problem() -> str | None:
    """Why the Vulkan loader can't be loaded, or None."""
    from webnn_vk.driver.vulkan.errors import VulkanUnavailable

    try:
        import webnn_vk.driver.vulkan.binding  # noqa: F401
    except VulkanUnavailable as error:
        return str(error)
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """What is there after the collection stays to the end. Half a second of each `gc.collect()`
    would go into searching it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selection.mark_devices(items)
    selection.mark_full(items)
    skipped = selection.left_out(config, items)
    _left_out.update(skipped)
    _collected.update(selection.counted(items, skipped))
    if skipped:
        config.hook.pytest_deselected(items=[item for item in items if item in skipped])
        items[:] = [item for item in items if item not in skipped]
    selection.give_time(items)
    if config.option.explore:
        _lines.append(f"explored with --seed {selection.seed()}")
        selection.shuffle(items)
        for item in items:
            item.add_marker(pytest.mark.timeout(4 * 3600), append=False)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Counts those that -m or -k leave out, such as the second part of the suite."""
    if others := sum(item not in _left_out for item in items):
        _collected["deselected"] = others


#: Tests that the selection leaves out.
_left_out: set[pytest.Item] = set()
_begun = time.monotonic()


@pytest.hookimpl(specname="pytest_runtest_protocol", tryfirst=True)
def pytest_end_in_time(item: pytest.Item) -> bool | None:
    """Past the minutes of --explore no further test begins."""
    option = item.config.option
    if not option.explore or time.monotonic() < _begun + 60 * (option.minutes or 60):
        return None
    _collected["without a turn"] = _collected.get("without a turn", 0) + 1
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    watchdog.watch(item)
    random_examples.seed_for(item)
    try:
        return (yield)
    finally:
        watchdog.unwatch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    with discriminating.examples_together():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    watchdog.watch(item)  # pytest has ended it where the test failed


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if _terminal is not None:
        watchdog.show_failure(report, _terminal)


@pytest.hookimpl(trylast=True)  # after pytest has made its own
def pytest_sessionstart(session: pytest.Session) -> None:
    global _terminal
    if not _is_worker(session.config):
        _terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        _keep_archives(session.config)


def _keep_archives(config: pytest.Config) -> None:
    """Shader archives, whose names say of which sources they are, stay in pytest's own cache."""
    from webnn_vk.tools import archive_cache

    cache, own = getattr(config, "cache", None), config.stash[_folder] / "cache"
    # Not in a cache that the environment names: of a developer, or of the run that started this.
    if cache is None or os.environ["WEBNN_VK_CACHE"] != str(own):
        return
    with suppress(OSError):  # a checkout that can't be written to
        own.mkdir(mode=0o700)
        (own / archive_cache.FOLDER).symlink_to(cache.mkdir("archives"))


#: Prints the run, in the process that reports.
_terminal: Any = None

#: Lines that this process adds at the end of the run.
_lines: list[str] = []
#: How many tests were collected, and how many of them don't run, by reason.
_collected: dict[str, int] = {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _is_worker(session.config):
        session.config.workeroutput["lines"] = _lines
        session.config.workeroutput["collected"] = _collected
        return
    if session.config.option.collectonly:
        return
    if session.config.stash.get(_counts, False):
        count = spirv_count.count(Path(os.environ["WEBNN_VK_DUMP_SPIRV"]))
        session.config.stash[_counted] = count
        # In CI a missing spirv-val is a failure: scripts/test installs it there.
        if count.failed or (count.no_validator and os.environ.get("CI")):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            return
    if session.exitstatus == pytest.ExitCode.TESTS_FAILED and _terminal is not None:
        lines, passed = repeats.repeat(session.config, _terminal.stats)
        _lines.extend(lines)
        if passed:
            session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    _lines.extend(output.get("lines", ()))
    found = output.get("collected", {})  # the same in each of them, except for the last
    late = found.pop("without a turn", 0) + _collected.pop("without a turn", 0)
    _collected.update(found, **({"without a turn": late} if late else {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    stats = terminalreporter.stats
    for way, lines in summary.examples(summary.properties(stats, summary.EXAMPLES)).items():
        terminalreporter.section(f"differential, {way}: examples / data types of each operator")
        for line in lines:
            terminalreporter.write_line(line)
    without_driver = summary.without_driver(stats)
    if without_driver:
        terminalreporter.section("NO VULKAN DRIVER", sep="!", red=True, bold=True)
        terminalreporter.write_line(f"{without_driver} tests skipped: {NO_DRIVER}")
    if os.environ["WEBNN_VK_VALIDATE"] in ("", "0"):
        terminalreporter.write_line("validation layer OFF: not installed, or WEBNN_VK_VALIDATE=0")
    missing = judges.missing_ones(stats)
    if missing:
        terminalreporter.section(judges.MISSING, sep="!", red=True, bold=True)
    for line in missing:
        terminalreporter.write_line(line)
    for line in dict.fromkeys([*_lines, *summary.properties(stats, summary.LINE)]):
        terminalreporter.write_line(line)
    count = config.stash.get(_counted, None)
    if count is not None:
        for line in count.lines():
            terminalreporter.write_line(line, red=count.failed)
    if config.option.collectonly:
        return
    for line in summary.skipped(stats):
        terminalreporter.write_line(line)
    if config.option.explore:
        for line in summary.commands(stats, selection.seed()):
            terminalreporter.write_line(line)
    left_out = dict(_collected)
    terminalreporter.write_line(summary.of_all(stats, left_out.pop("collected", 0), left_out))


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(_folder, None)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _as_found() -> Iterator[None]:
    before = leftovers.state()
    yield
    left = leftovers.left(before)
    if left:
        pytest.fail("it leaves behind, for the tests after it:\n" + "\n".join(left), pytrace=False)


@pytest.fixture(autouse=True)
def _as_found_by_test() -> Iterator[None]:
    """A test that changes process-wide state fails: another test would depend on it."""
    yield from _as_found()


@pytest.fixture(autouse=True, scope="module")
def _as_found_by_file() -> Iterator[None]:
    """The same check for a file with its fixtures."""
    yield from _as_found()


@pytest.fixture(autouse=True)
def _device_marker(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test that uses Vulkan is left out by `-m "not device"`."""
    marked = request.node.get_closest_marker("device")
    drivers.unmarked = None if marked else request.node.nodeid
    yield
    drivers.unmarked = None


@pytest.fixture(autouse=True)
def _no_validation_message() -> Iterator[None]:
    """A test fails if the validation layer reported anything during it."""
    before = len(_validation_messages())
    yield
    if instance := sys.modules.get("webnn_vk.driver.vulkan.instance"):
        instance.drain_validation_messages()
    # A message may also have ended as the error of work whose outputs are never read.
    messages = _validation_messages()[before:]
    if messages:
        pytest.fail("validation layer:\n" + "\n".join(messages), pytrace=False)


def _validation_messages() -> list[str]:
    instance = sys.modules.get("webnn_vk.driver.vulkan.instance")
    return instance.reported if instance else []


@pytest.fixture(scope="session")
def vulkan() -> None:
    """Skips the test, counted in the summary, if there is no driver. A test that uses it, directly
    or through another fixture, is marked `device`."""
    require_vulkan()


@pytest.fixture(scope="session")
def vulkan_context(vulkan: None) -> Iterator[Any]:
    """One context on a Vulkan device, lavapipe included, for the whole session: don't destroy it.
    """
    with open_context() as context:
        yield context


@pytest.fixture(scope="session")
def cpu_context() -> Iterator[Any]:
    """One context on the CPU device for the whole session: don't destroy it."""
    with open_context("cpu") as context:
        yield context


@pytest.fixture(scope="session")
def engine_context() -> Iterator[Any]:
    """One context on the CPU device with ONNX Runtime, skipped if that isn't installed: don't
    destroy it."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    with open_context("cpu", cpu_engine="onnxruntime") as context:
        yield context


@pytest.fixture(params=["cpu", "vulkan"])
def context(request: pytest.FixtureRequest) -> Any:
    """The test runs on the CPU device and on a Vulkan device."""
    return request.getfixturevalue(f"{request.param}_context")
