"""Whether this machine has Vulkan, for tests that need it, and a pipeline of a driver."""

from __future__ import annotations

from typing import Any

import pytest

NO_DRIVER = "no Vulkan driver on this machine"

#: The running test, if it isn't marked `device`; set by tests/conftest.py.
unmarked: str | None = None


def require_vulkan() -> None:
    """Skips the test, counted in the summary, if there is no driver. Fails it, with or without a
    driver, if it isn't marked `device`."""
    from webnn_vk.tools.devices import vulkan_problem

    if unmarked is not None:
        pytest.fail(
            f"{unmarked} needs Vulkan without being marked so: let it use the fixture `vulkan`, or "
            "see tests/README.md",
            pytrace=False,
        )
    if vulkan_problem():
        pytest.skip(NO_DRIVER)


def pipeline_of(driver: Any, spirv: bytes, **request: Any) -> Any:
    """A pipeline of a driver; ``request``: fields of `PipelineRequest`."""
    from webnn_vk.driver import PipelineRequest

    return driver.pipelines([PipelineRequest(spirv, **request)])[0]
