"""Whether Kompute can be tested here."""

from __future__ import annotations

import pytest

from tests.support.drivers import require_vulkan

INSTALL = "scripts/install-kompute installs it"


def problem() -> str | None:
    """Why Kompute can't be tested, or None."""
    from webnn_vk.driver import DriverUnavailable
    from webnn_vk.driver.kompute.binding import load

    try:
        load()
    except DriverUnavailable as error:
        return str(error)
    return None


def require_kompute() -> None:
    """Skips the test if Kompute or Vulkan is missing. The end of the run reports that once."""
    require_vulkan()
    if why := problem():
        pytest.skip(why)
