"""The context timeline: ordered work on a device, and the memory it works on."""

from .cpu import CpuDevice
from .device import Device, Executable, Storage
from .gpu import GpuDevice
from .timeline import Fence, Timeline
from .work import Dispatch, Read, Run, Write

__all__ = [
    "CpuDevice",
    "Device",
    "Dispatch",
    "Executable",
    "Fence",
    "GpuDevice",
    "Read",
    "Run",
    "Storage",
    "Timeline",
    "Write",
]
