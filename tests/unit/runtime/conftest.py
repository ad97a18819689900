"""A device that a test controls, and a stream of a timeline on it."""

import pytest

from tests.support.gated_device import FakeDevice
from webnn_vk.runtime.timeline import Timeline


@pytest.fixture
def device():
    return FakeDevice()


@pytest.fixture
def stream(device):
    """The one stream of a timeline."""
    timeline = Timeline(device)
    yield timeline.stream()
    device.gate.set()
    timeline.close()
    assert device.closed
