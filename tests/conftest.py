"""Contexts to test with, validation messages as failures, and the SPIR-V count at the end.

The settings below reach every process that a test starts. Each can be overridden in the
environment: `WEBNN_VK_VALIDATE=0` runs without the validation layer, for example.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.support import spirv_count
from tests.support.drivers import NO_DRIVER, require_vulkan

_LAYER_FILES = (
    Path("/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json"),
    Path("/etc/vulkan/explicit_layer.d/VkLayer_khronos_validation.json"),
)
LAYER_INSTALLED = any(path.is_file() for path in _LAYER_FILES)

# A colon between the two: with a semicolon this layer silently switches both off. Plain
# synchronisation validation doesn't see hazards between submits.
_SYNCHRONISATION = (
    "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT:"
    "VALIDATION_CHECK_ENABLE_SYNCHRONIZATION_VALIDATION_QUEUE_SUBMIT"
)

hypothesis.settings.register_profile("dev", deadline=None, max_examples=50)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=200, derandomize=True)
hypothesis.settings.register_profile("long", deadline=None, max_examples=5000)


def pytest_configure(config: pytest.Config) -> None:
    profile = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
    hypothesis.settings.load_profile(profile)
    os.environ.setdefault("WEBNN_VK_VALIDATE", "1" if LAYER_INSTALLED else "0")
    os.environ.setdefault("VK_LAYER_ENABLES", _SYNCHRONISATION)
    folder = tempfile.mkdtemp(prefix="webnn_vk-tests-")
    config.stash[_folder] = Path(folder)
    # A cache of its own: neither a developer's cache nor a stale entry decides a test.
    os.environ.setdefault("WEBNN_VK_CACHE", f"{folder}/cache")
    os.environ.setdefault("WEBNN_VK_DUMP_SPIRV", f"{folder}/spirv")
    Path(os.environ["WEBNN_VK_DUMP_SPIRV"]).mkdir(parents=True, exist_ok=True)


_folder: pytest.StashKey[Path] = pytest.StashKey()
_counted: pytest.StashKey[spirv_count.Count] = pytest.StashKey()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.collectonly:
        return
    count = spirv_count.count(Path(os.environ["WEBNN_VK_DUMP_SPIRV"]))
    session.config.stash[_counted] = count
    # In CI a missing spirv-val is a failure: scripts/test installs it there.
    if count.failed or (count.no_validator and os.environ.get("CI")):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    without_driver = sum(NO_DRIVER in str(report.longrepr) for report in skipped)
    if without_driver:
        terminalreporter.section("NO VULKAN DRIVER", sep="!", red=True, bold=True)
        terminalreporter.write_line(f"{without_driver} tests skipped: {NO_DRIVER}")
    if os.environ["WEBNN_VK_VALIDATE"] in ("", "0"):
        terminalreporter.write_line("validation layer OFF: not installed, or WEBNN_VK_VALIDATE=0")
    count = config.stash.get(_counted, None)
    if count is not None:
        for line in count.lines():
            terminalreporter.write_line(line, red=count.failed)


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(_folder, None)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def _no_validation_message() -> Iterator[None]:
    """A test in which the validation layer said anything fails."""
    before = _validation_total()
    yield
    instance = sys.modules.get("webnn_vk.vulkan.instance")
    messages = instance.drain_validation_messages() if instance else []
    # A message may also have ended as the error of work whose outputs nobody read.
    count = _validation_total() - before
    if count > len(messages):
        messages = instance.last_validation_messages(count)
    if messages:
        pytest.fail("validation layer:\n" + "\n".join(messages), pytrace=False)


def _validation_total() -> int:
    instance = sys.modules.get("webnn_vk.vulkan.instance")
    return instance.validation_total() if instance else 0


@pytest.fixture(scope="session")
def vulkan_context() -> Iterator[Any]:
    """One context on a Vulkan device, lavapipe included, for the whole session: don't destroy it.

    Skips, counted in the summary, where there is no driver.
    """
    from webnn_vk.tools.devices import open_context

    require_vulkan()
    with open_context("vulkan") as context:
        yield context


@pytest.fixture(scope="session")
def cpu_context() -> Iterator[Any]:
    """One context on the CPU device for the whole session: don't destroy it."""
    from webnn_vk.tools.devices import open_context

    with open_context("cpu") as context:
        yield context


@pytest.fixture(params=["cpu", "vulkan"])
def context(request: pytest.FixtureRequest) -> Any:
    """The test runs on the CPU device and on a Vulkan device."""
    return request.getfixturevalue(f"{request.param}_context")
