"""A device that a test controls, and a stream of a timeline on it."""

import pytest

from tests.support.gated_device import FakeDevice
from webnn_vk.runtime import timeline
from webnn_vk.runtime.timeline import Timeline


@pytest.fixture
def device():
    return FakeDevice()


@pytest.fixture
def stream(device):
    """The one stream of a timeline."""
    made = Timeline(device)
    yield made.stream()
    device.gate.set()
    made.close()
    assert device.closed


@pytest.fixture
def never_quiet(monkeypatch):
    """What only the next call would use is kept, however long a busy machine takes for it."""
    monkeypatch.setattr(timeline, "QUIET_SECONDS", 3600.0)
