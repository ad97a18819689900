"""Whether this machine has Vulkan, for tests that need it."""

import pytest

NO_DRIVER = "no Vulkan driver on this machine"


def require_vulkan() -> None:
    """Skip the test, counted in the summary, where there is no driver."""
    from webnn_vk.tools.devices import vulkan_problem

    if vulkan_problem():
        pytest.skip(NO_DRIVER)
