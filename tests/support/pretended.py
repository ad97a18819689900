"""Contexts on a device that pretends to have other limits."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.support.drivers import require_vulkan
from webnn_vk import MLContext, Settings


def pretended_context(**limits: Any) -> MLContext:
    """A context on the Vulkan device of the tests as if its profile had these fields. Skips where
    there is no driver."""
    require_vulkan()
    from webnn_vk.navigator import _vulkan_context
    from webnn_vk.vulkan.devices import choose, list_devices
    from webnn_vk.vulkan.instance import instance

    settings = dataclasses.replace(Settings.from_environment(), device="vulkan")
    if settings.validate:
        instance(validate=True)
    found = list_devices()
    index = choose(
        [d.profile for d in found], override="vulkan", unusable=[d.unusable for d in found]
    )
    assert index is not None
    profile = found[index].profile.replace(**limits)
    physical = dataclasses.replace(found[index], profile=profile)
    return _vulkan_context(physical, settings, True)
