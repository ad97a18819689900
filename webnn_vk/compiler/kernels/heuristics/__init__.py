"""Constraints on schedules by class of devices: pure functions over profile and problem.

``device_classes`` has a record for each class of devices, with the figures of the cost model.
``Gpu`` and ``Software`` are the rules: their methods are named after the kernel families; each gets
the legal candidates and names what the cost model can't weigh (``Constraint``), the most important
first. ``choose`` compares the candidates that are left, by the cost model.
"""

from __future__ import annotations

from webnn_vk.driver.device_profile import DeviceProfile

from .device_classes import DEVICE_CLASSES, GpuClass, device_class
from .gpu import Gpu
from .rules import Constraint, Rules
from .software import Software


def rules_for(profile: DeviceProfile) -> Rules:
    """The rules for a device."""
    device = device_class(profile)
    if isinstance(device, GpuClass):
        return Gpu(device, profile)
    return Software(device, profile)
