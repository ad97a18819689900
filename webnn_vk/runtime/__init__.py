"""The context timeline: ordered work on a device, and the memory it works on."""

from .cpu import CpuDevice
from .device import Device, Executable, Storage
from .gpu import GpuDevice
from .timeline import Timeline
from .work import Dispatch, Read, Run, Write

__all__ = [
    "CpuDevice",
    "Device",
    "Dispatch",
    "Executable",
    "GpuDevice",
    "Read",
    "Run",
    "Storage",
    "Timeline",
    "Write",
]
