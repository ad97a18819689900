"""Fixtures for tests of what a device computes."""

from collections.abc import Iterator

import pytest

from webnn_vk import MLContext, Settings, ml


@pytest.fixture
def fresh(context: MLContext) -> Iterator[MLContext]:
    """A new context on the same device, for tests that destroy it."""
    device = context.device_info.name if context.device_info.is_vulkan else "cpu"
    with ml.create_context(settings=Settings(device=device)).result() as made:
        yield made
