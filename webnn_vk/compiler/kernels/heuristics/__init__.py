"""The preferred schedules on each class of devices: pure functions over profile and problem.

``device_classes`` has a record for each class of devices. ``Gpu`` and ``Software`` are the rules:
their methods are named after the kernel families; each gets the legal candidates and names its
preferences among them (``Preference``), the most important first. ``choose`` compares.
"""

from __future__ import annotations

from webnn_vk.driver.device_profile import DeviceProfile

from .device_classes import DEVICE_CLASSES, GpuClass, device_class
from .gpu import Gpu
from .rules import Preference, Rules
from .software import Software


def rules_for(profile: DeviceProfile) -> Rules:
    """The rules for a device."""
    device = device_class(profile)
    if isinstance(device, GpuClass):
        return Gpu(device, profile)
    return Software(device, profile)
